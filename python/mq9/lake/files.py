"""Files and folders on any file system that Arrow opens: a path, `file:`, `hdfs:`, `s3a:`.

Knows no tables and no Spark. Runs on the driver and touches names, never data.
"""

import pyarrow.fs as pafs

from mq9.spark.places import opened


class Files:
    """A folder; all names are relative to it."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._system, self._inside = opened(self.root)

    def path(self, name: str) -> str:
        """The full path of a name."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return bool(self._info(name).type != pafs.FileType.NotFound)

    def folders(self, name: str) -> list[str]:
        """Names of the folders inside a folder; none if it does not exist."""
        return sorted(
            info.base_name
            for info in self._listed(name, recursive=False)
            if info.type == pafs.FileType.Directory
        )

    def data(self, name: str) -> list[tuple[str, int]]:
        """The paths and sizes of the files that readers look at, also in folders inside."""
        return sorted(
            (self.path(info.path.removeprefix(self._inside).lstrip("/")), info.size)
            for info in self._listed(name, recursive=True)
            if info.type == pafs.FileType.File and info.base_name.endswith(".parquet")
        )

    def read_text(self, name: str) -> str:
        """The contents of a small file."""
        with self._system.open_input_stream(self._at(name)) as stream:
            return bytes(stream.read()).decode()

    def write_text(self, name: str, text: str) -> None:
        """Makes a small file that is there with all of its contents or not at all."""
        unfinished = f"{name}.unfinished"
        self._make_room(unfinished)
        with self._system.open_output_stream(self._at(unfinished)) as stream:
            stream.write(text.encode())
        self.move(unfinished, name)

    def remove(self, name: str) -> None:
        """Removes a file or folder; nothing happens if there is none."""
        kind = self._info(name).type
        if kind == pafs.FileType.Directory:
            self._system.delete_dir(self._at(name))
        elif kind != pafs.FileType.NotFound:
            self._system.delete_file(self._at(name))

    def move(self, name: str, to: str) -> None:
        """Gives a file or folder another name, in the place of whatever has that name."""
        self.remove(to)
        self._make_room(to)
        if isinstance(self._system, pafs.S3FileSystem):
            # There are no folders on S3: files are moved one by one.
            for info in self._listed(name, recursive=True):
                if info.type == pafs.FileType.File:
                    inside = info.path.removeprefix(self._at(name))
                    self._system.move(info.path, self._at(to) + inside)
            self.remove(name)
        else:
            self._system.move(self._at(name), self._at(to))

    def _make_room(self, name: str) -> None:
        self._system.create_dir(self._at(name).rpartition("/")[0], recursive=True)

    def _info(self, name: str) -> pafs.FileInfo:
        return self._system.get_file_info(self._at(name))

    def _listed(self, name: str, *, recursive: bool) -> list[pafs.FileInfo]:
        listed: list[pafs.FileInfo] = self._system.get_file_info(
            pafs.FileSelector(self._at(name), allow_not_found=True, recursive=recursive)
        )
        return listed

    def _at(self, name: str) -> str:
        return f"{self._inside}/{name}"

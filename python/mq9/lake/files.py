"""Files and folders on any file system that Hadoop knows: `file`, `hdfs`, `s3a`.

Knows no tables. Runs on the driver and touches names, never data.
"""

from typing import Any

from pyspark.sql import SparkSession


class Files:
    """A folder; all names are relative to it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._utf8 = jvm.java.nio.charset.StandardCharsets.UTF_8
        self._io = jvm.org.apache.commons.io.IOUtils
        configuration = spark._jsc.hadoopConfiguration()
        self._system = self._path(self.root).getFileSystem(configuration)

    def path(self, name: str) -> str:
        """The full path of a name."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return bool(self._system.exists(self._at(name)))

    def folders(self, name: str) -> list[str]:
        """Names of the folders inside a folder; none if it does not exist."""
        if not self.exists(name):
            return []
        found = (status for status in self._system.listStatus(self._at(name)))
        return sorted(status.getPath().getName() for status in found if status.isDirectory())

    def data(self, name: str) -> list[tuple[str, int]]:
        """The paths and sizes of the files that readers look at, also in folders inside."""
        if not self.exists(name):
            return []
        found, listed = [], self._system.listFiles(self._at(name), True)
        while listed.hasNext():
            status = listed.next()
            path = status.getPath()
            if path.getName().endswith(".parquet"):
                found.append((path.toString(), status.getLen()))
        return sorted(found)

    def read_text(self, name: str) -> str:
        """The contents of a small file."""
        stream = self._system.open(self._at(name))
        try:
            return str(self._io.toString(stream, self._utf8))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Makes a small file that is there with all of its contents or not at all."""
        unfinished = f"{name}.unfinished"
        stream = self._system.create(self._at(unfinished), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(unfinished, name)

    def remove(self, name: str) -> None:
        """Removes a file or folder; nothing happens if there is none."""
        self._system.delete(self._at(name), True)

    def move(self, name: str, to: str) -> None:
        """Gives a file or folder another name, in the place of whatever has that name."""
        target = self._at(to)
        self._system.delete(target, True)
        self._system.mkdirs(target.getParent())
        if not self._system.rename(self._at(name), target):
            raise OSError(f"cannot move {self.path(name)} to {self.path(to)}")

    def _at(self, name: str) -> Any:  # noqa: ANN401
        return self._path(self.path(name))

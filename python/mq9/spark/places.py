"""Folders by the names that Hadoop gives them, as Arrow opens them: a path, file:, s3a:, hdfs:."""

import re

import pyarrow.fs as pafs


def opened(folder: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a folder, and the folder's path in it."""
    # Hadoop's name for the same thing.
    folder = re.sub(r"^s3[an]://", "s3://", folder)
    if "://" not in folder and not folder.startswith("file:"):
        return pafs.LocalFileSystem(), folder.rstrip("/")
    system, path = pafs.FileSystem.from_uri(re.sub(r"^file:/(?!/)", "file:///", folder))
    return system, path.rstrip("/")

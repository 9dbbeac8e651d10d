"""Files on any file system that Hadoop knows: this machine's, HDFS, object stores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from jlog.spark.syncing import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Reads, writes and moves files as the driver sees them."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._conf), found

    def local_path(self, path: str) -> str | None:
        """Returns the path on this machine's own file system, or on one that is mounted there; None for any other."""
        system, at = self._at(path)
        if system.getUri().getScheme() != "file":
            return None
        return unquote(urlsplit(system.makeQualified(at).toUri().toString()).path)

    def exists(self, path: str) -> bool:
        system, at = self._at(path)
        return bool(system.exists(at))

    def names(self, path: str) -> list[str]:
        """Returns the names in a directory, without those of checksums; none where there is no such directory."""
        system, at = self._at(path)
        local = self.local_path(path)
        if local is not None:  # each name of Java's is a call of its own
            found = os.listdir(local) if os.path.isdir(local) else []
            return [name for name in found if not (name.startswith(".") and name.endswith(".crc"))]
        return [file.getPath().getName() for file in system.listStatus(at)] if system.exists(at) else []

    def read(self, path: str) -> str | None:
        """Returns the content of a file; None where there is none."""
        system, at = self._at(path)
        if not system.exists(at):
            return None
        stream = system.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Writes a file as a whole or not at all, even if the process is killed. It does not replace a file."""
        new = f"{os.path.dirname(path)}/_{os.path.basename(path)}"
        system, at = self._at(new)
        stream = system.create(at, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        self.sync([new])
        self.move(new, path)
        self.sync(directories_of([path], os.path.dirname(path)))

    def replace(self, path: str, text: str) -> None:
        """Writes a file, also where there is one."""
        system, at = self._at(path)
        stream = system.create(at, True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def move(self, source: str, target: str) -> None:
        """Moves a file to where there is none; or finds that this was done before."""
        system, to = self._at(target)
        if system.exists(to):
            return
        system.mkdirs(to.getParent())
        if not system.rename(self._at(source)[1], to):
            raise OSError(f"{source} could not be renamed to {target}")

    def remove(self, path: str) -> None:
        system, at = self._at(path)
        system.delete(at, True)

    def is_empty(self, path: str) -> bool:
        """Says whether the directory has no file that a reader would look at."""
        return not self.exists(path) or next(self.parquet_below(path), None) is None

    def parquet_below(self, path: str) -> Iterator[tuple[str, str]]:
        """Yields each file, with the directory below `path` that it is in."""
        system, at = self._at(path)
        if not system.exists(at):
            return
        root = system.makeQualified(at).toString() + "/"
        found = system.listFiles(at, True)
        names = []
        while found.hasNext():
            names.append(found.next().getPath().toString().removeprefix(root))
        for name in sorted(names):
            if not any(part.startswith(("_", ".")) for part in name.split("/")):
                yield root + name, os.path.dirname(name)

    def records(self, path: str) -> int:
        """Returns the number of records in the file's footer."""
        hadoop = self._jvm.org.apache.parquet.hadoop
        reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromPath(self._at(path)[1], self._conf))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def sync(self, paths: Iterable[str]) -> None:
        """Syncs files and directories on this machine's file systems; other file systems do so themselves."""
        found = (local for path in paths if (local := self.local_path(path)) is not None)
        # A directory that this process may not list was there before.
        sync(local for local in found if not os.path.isdir(local) or os.access(local, os.R_OK))


def directories_of(files: Iterable[str], root: str) -> set[str]:
    """Returns the directories of these files up to `root`, and the one around it: each of them may be new, and is found after a
    power loss if the one around it is synced."""
    found = {root, os.path.dirname(root)}
    for path in files:
        while (path := os.path.dirname(path)) not in found and path.startswith(root):
            found.add(path)
    return found

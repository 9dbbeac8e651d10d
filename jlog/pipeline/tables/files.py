"""Files on any file system that Hadoop knows: this machine's, HDFS, object stores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from jlog.system.files import sync_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SYNCS_AT_ONCE = 16  # a file system writes its journal once for all that wait


class Files:
    """Reads, writes and moves files as the driver sees them. A call through Java takes a millisecond and more, so what is done
    for each file of a batch goes directly to the file systems of this machine."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._conf), found

    def local_path(self, path: str) -> str | None:
        """Returns the path on this machine's own file system, or on one that is mounted there; None for any other."""
        if path.startswith("/") and self._is_local:  # without seven calls through Java
            return path.rstrip("/") or path
        system, at = self._at(path)
        if system.getUri().getScheme() != "file":
            return None
        return unquote(urlsplit(system.makeQualified(at).toUri().toString()).path)

    @cached_property
    def _is_local(self) -> bool:
        """Whether a path without a scheme is on this machine."""
        return str(self._jvm.org.apache.hadoop.fs.FileSystem.get(self._conf).getUri().getScheme()) == "file"

    def exists(self, path: str) -> bool:
        system, at = self._at(path)
        return bool(system.exists(at))

    def names(self, path: str) -> list[str]:
        """Returns the names in a directory, without those of checksums; none where there is no such directory."""
        local = self.local_path(path)
        if local is not None:
            found = os.listdir(local) if os.path.isdir(local) else []
            return [name for name in found if not (name.startswith(".") and name.endswith(".crc"))]
        system, at = self._at(path)
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

    # --- Small files --------------------------------------------------------------------------------------------------

    def create(self, path: str, text: str) -> bool:
        """Writes a file as a whole or not at all, for good. Returns False where there is one: of several processes, one
        creates it."""
        local, new = self._written(path, text)
        if local is None:
            system, at = self._at(new)
            if system.rename(at, self._at(path)[1]):
                return True
            system.delete(at, False)
            return False
        try:
            os.link(new, local)
        except FileExistsError:
            return False
        finally:
            os.unlink(new)
        self.sync(directories_of([local], os.path.dirname(local)))
        return True

    def replace(self, path: str, text: str) -> None:
        """Writes a file, or replaces it, in one step and for good."""
        local, new = self._written(path, text)
        if local is None:
            hadoop = self._jvm.org.apache.hadoop.fs
            overwrite = self._gateway.new_array(hadoop.Options.Rename, 1)
            overwrite[0] = hadoop.Options.Rename.OVERWRITE
            system, at = self._at(path)
            hadoop.FileContext.getFileContext(system.getUri(), self._conf).rename(self._at(new)[1], at, overwrite)
            return
        os.replace(new, local)
        self.sync(directories_of([local], os.path.dirname(local)))

    def _written(self, path: str, text: str) -> tuple[str | None, str]:
        """Writes a new file beside the path. Returns the path on this machine, if it is there, and that of the new file."""
        local = self.local_path(path)
        folder, name = os.path.split(local or path)
        new = f"{folder}/_{name}-{os.getpid()}"
        if local is None:
            system, at = self._at(new)
            stream = system.create(at, True)
            stream.write(bytearray(text.encode()))
            stream.close()
        else:
            os.makedirs(folder, exist_ok=True)
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        return local, new

    # --- Files of a table -------------------------------------------------------------------------------------------------

    def move(self, source: str, target: str) -> None:
        """Moves a file to where there is none; or finds that this was done before, since the source is gone."""
        local, to = self.local_path(source), self.local_path(target)
        if local is not None and to is not None:
            if os.path.exists(to):
                if os.path.exists(local):
                    raise FileExistsError(f"{to} is there already, and is not the file of this batch; move it away")
                return
            os.makedirs(os.path.dirname(to), exist_ok=True)
            os.rename(local, to)
            return
        system, at = self._at(target)
        if system.exists(at):
            return
        system.mkdirs(at.getParent())
        if not system.rename(self._at(source)[1], at):
            raise OSError(
                f"{source} could not be renamed to {target}, and the file system gives no reason. Look at the rights there, "
                "and run the pipeline again"
            )

    def remove(self, path: str) -> None:
        system, at = self._at(path)
        system.delete(at, True)

    def is_empty(self, path: str) -> bool:
        """Says whether the directory has no file that a reader would look at."""
        return not self.exists(path) or next(self.parquet_below(path), None) is None

    def parquet_below(self, path: str) -> Iterator[str]:
        """Yields the path of each file from this directory on, but for those that no reader of Parquet looks at."""
        local = self.local_path(path)
        names = self._below(path) if local is None else _below(local)
        yield from sorted(name for name in names if not any(part.startswith(("_", ".")) for part in name.split("/")))

    def _below(self, path: str) -> Iterator[str]:
        system, at = self._at(path)
        if not system.exists(at):
            return
        root = system.makeQualified(at).toString() + "/"
        found = system.listFiles(at, True)
        while found.hasNext():
            yield found.next().getPath().toString().removeprefix(root)

    def records(self, path: str) -> int:
        """Returns the number of records in the file's footer."""
        import pyarrow.parquet

        local = self.local_path(path)
        if local is not None:
            return int(pyarrow.parquet.read_metadata(local).num_rows)
        hadoop = self._jvm.org.apache.parquet.hadoop
        reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromPath(self._at(path)[1], self._conf))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def sync(self, paths: Iterable[str]) -> None:
        """Syncs files and directories on this machine's file systems, several at once; other file systems do so themselves."""
        found = [local for path in paths if (local := self.local_path(path)) is not None]
        # A directory that this process may not list was there before.
        due = [local for local in found if not os.path.isdir(local) or os.access(local, os.R_OK)]
        if due:
            with ThreadPoolExecutor(min(SYNCS_AT_ONCE, len(due))) as pool:
                list(pool.map(sync_file, due))


def _below(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def directories_of(files: Iterable[str], root: str) -> set[str]:
    """Returns the directories of these files up to `root`, and the one around it: each of them may be new, and is found after a
    power loss if the one around it is synced."""
    found = {root, os.path.dirname(root)}
    for path in files:
        while (path := os.path.dirname(path)) not in found and path.startswith(root):
            found.add(path)
    return found

"""A folder of an archive, on any file system that fsspec reaches: puts files, reads them back, lists and fetches them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jlog._core.format.checksum import crc32c
from jlog._core.system.durable import sync_directory
from jlog.errors import JournalError
from jlog.system.files import sync_file, write_whole

PIECE_BYTES = 4 << 20
PART = ".part"  # end of the name while a file is being uploaded
# File systems on which an upload is there as a whole or not at all. Elsewhere it gets its name once it is whole.
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"})


class ArchiveFolder:
    """One folder. Raises JournalError, with the message of the file system, for whatever fails there."""

    def __init__(self, url: str, fs: Any = None, root: str = "") -> None:
        self.url: str = url.rstrip("/")
        if fs is None:
            with self._explained("it cannot be opened"):
                fs, root = _open(url)
        self._fs = fs
        self._root = root.rstrip("/")
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        self._is_local = "file" in protocols
        self._puts_whole = bool(protocols & OBJECT_STORES)

    def below(self, name: str) -> ArchiveFolder:
        return ArchiveFolder(self.url_of(name), self._fs, self._path(name))

    def url_of(self, name: str) -> str:
        return f"{self.url}/{name}"

    def local_path(self, name: str = "") -> str | None:
        """Returns the path of a file that is on this machine; None elsewhere."""
        if not self._is_local:
            return None
        return self._path(name) if name else self._root

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except JournalError:
            raise
        except Exception as error:
            told = str(error) or type(error).__name__
            raise JournalError(
                f"{self.url}: {what}: {told}; check that the place can be reached and that this user may read and write it, "
                "then try again"
            ) from error

    # --- Reading ----------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int | None]:
        """Returns the size of each file by its name, None for a directory; an empty dict where there is nothing."""
        with self._explained("it cannot be listed"):
            self._fs.invalidate_cache()  # other processes write there too
            try:
                found = self._fs.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
        sizes = {}
        for entry in found:
            name = entry["name"].rstrip("/").rpartition("/")[2]
            sizes[name] = None if entry["type"] == "directory" else entry["size"]
        return sizes

    def read(self, names: list[str], most: int) -> list[bytes]:
        """Returns the content of small files, several at once where the file system can. It reads at most one byte more than
        `most` of each."""
        with self._explained(f"{names[0] if len(names) == 1 else 'its files'} cannot be read"):
            paths = [self._path(name) for name in names]
            found = self._fs.cat_ranges(paths, [0] * len(paths), [most + 1] * len(paths), on_error="raise")
            return [bytes(content) for content in found]

    def read_if_there(self, name: str, most: int) -> bytes | None:
        """Returns the content of a small file, but at most one byte more than `most`; None where there is no such file."""
        with self._explained(f"{name} cannot be read"):
            try:
                return bytes(self._fs.cat_file(self._path(name), start=0, end=most + 1))
            except FileNotFoundError:
                return None

    def read_ranges(self, name: str, ranges: list[tuple[int, int]], size: int) -> list[bytes] | None:
        """Returns these ranges of a file, which should have this size; None where it has less."""
        if not ranges:
            return []
        path = self._path(name)
        starts, ends = zip(*ranges, strict=True)
        try:
            with self._explained(f"{name} cannot be read"):
                found = self._fs.cat_ranges([path] * len(ranges), list(starts), list(ends), on_error="raise")
                contents = [bytes(content) for content in found]
                if [len(content) for content in contents] == [end - start for start, end in ranges]:
                    return contents
                raise OSError("the store returned fewer or more bytes than requested")
        except JournalError:
            if self._size(name) < size:
                return None
            raise

    def _size(self, name: str) -> int:
        with self._explained(f"{name} cannot be read"):
            self._fs.invalidate_cache()
            return int(self._fs.size(self._path(name)))

    def size_and_crc(self, name: str) -> tuple[int, int]:
        """Reads the whole file back, and returns its size and CRC."""
        size = crc = 0
        self._fs.invalidate_cache()
        for piece in self._pieces(name):
            crc = crc32c(piece, crc)
            size += len(piece)
        return size, crc

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yields the content of the file in pieces."""
        with self._explained(f"{name} cannot be read"):
            file = self._fs.open(self._path(name), "rb", block_size=PIECE_BYTES, cache_type="readahead")
        with file:
            while True:
                with self._explained(f"{name} cannot be read"):
                    piece = file.read(PIECE_BYTES)
                if not piece:
                    return
                yield piece

    def fetch(self, name: str, path: str, size: int) -> None:
        """Makes the file readable at `path`. Raises JournalError where less arrives than the file has, and than it should have,
        which is `size`."""
        local = self.local_path(name)
        if local is not None:
            os.symlink(local, path)
            return
        with self._explained(f"{name} cannot be fetched"):
            self._fs.get_file(self._path(name), path)
            if os.path.getsize(path) < min(size, self._size(name)):
                raise OSError("the download ended before the end of the file")

    def copy(self, name: str, fd: int) -> None:
        """Copies the whole file to the descriptor of an empty one."""
        at = 0
        for piece in self._pieces(name):
            write_whole(fd, piece, at)
            at += len(piece)

    # --- Writing ----------------------------------------------------------------------------------------------------

    def put(self, path: str, name: str, progress: Callable[[int], None] | None = None) -> None:
        """Uploads a file. A reader sees all of it or nothing, and a file that was there is replaced as a whole. On return it
        survives a power loss, where the folder is on this machine."""
        from fsspec.callbacks import Callback

        done = 0

        def tell(size: int | None, value: int) -> None:  # noqa: ARG001
            nonlocal done
            if progress is not None and value > done:
                progress(value - done)
            done = max(done, value)

        with self._explained(f"{name} cannot be written"), self._whole(name) as target:
            self._fs.put_file(path, target, callback=Callback(hooks={"tell": tell}))
        tell(None, os.path.getsize(path))

    def put_bytes(self, content: bytes, name: str) -> None:
        with self._explained(f"{name} cannot be written"), self._whole(name) as target:
            self._fs.pipe_file(target, content)

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """Yields the path to write to. Where an upload is not put as a whole, this is another name, and the file is renamed at
        the end."""
        self._make_directory()
        if self._puts_whole:
            yield self._path(name)
            return
        beside = f".{name}.{os.urandom(8).hex()}{PART}"
        try:
            yield self._path(beside)
            self._rename(beside, name)
        except BaseException:
            with suppress(OSError):  # the same error may prevent this: then the next upload removes it
                self._discard(beside)
            raise

    def discard_parts(self, name: str, names: list[str]) -> None:
        """Removes the files that killed uploads of this file have left, among the names given."""
        for left in names:
            if left.startswith(f".{name}.") and left.endswith(PART):
                self._discard(left)

    def _make_directory(self) -> None:
        """Creates the folder. An object store has none; there, this could only make a bucket that nobody asked for."""
        if self._puts_whole:
            return
        self._fs.makedirs(self._root, exist_ok=True)
        if self._is_local:
            sync_directory(os.path.dirname(self._root))

    def _rename(self, beside: str, name: str) -> None:
        if not self._is_local:
            self._fs.mv(self._path(beside), self._path(name))
            return
        sync_file(self._path(beside))
        os.replace(self._path(beside), self._path(name))
        sync_directory(self._root)

    def _discard(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))


def _open(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise JournalError("an archive needs fsspec, which is not installed: pip install 'pyjlog[archive]'") from None
    from urllib.parse import unquote

    # A % is written as %25, as in every file: URL; fsspec treats it in another way.
    fs, root = url_to_fs(unquote(url) if url.startswith("file://") else url)
    return fs, root

"""The folder `quarantine/` holds bytes that a repair takes out of a journal because they cannot be read. It is no part of the
journal."""

from __future__ import annotations

import os
import time

from jlog._core.recover.recovery import sync_directory
from jlog._core.segments.segment import end_of_content
from jlog.storage.copying import BUFFER_BYTES
from jlog.system.files import Directory, open_file, read_whole, write_whole

NAME = "quarantine"


class Quarantine:
    """The quarantine of the journal at `path`. What it has taken survives a power loss."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())

    def keep(self, file: str, start: int = 0, end: int | None = None) -> None:
        """Copies bytes of a file, without the zeros at their end; copies nothing of zeros, or of no regular file. The
        file stays as it is."""
        if not os.path.isfile(file):
            return
        with open(file, "rb", opener=open_file) as source:
            size = os.fstat(source.fileno()).st_size
            end = end_of_content(source.fileno(), start, size if end is None else min(end, size))
            if end <= start:
                return
            name = f"{os.path.basename(file)}.{start}" if start else os.path.basename(file)
            with self._opened() as folder:
                with folder.made(folder.free_name(f"{name}.{self._stamp}")) as target:
                    for at in range(start, end, BUFFER_BYTES):
                        piece = read_whole(source.fileno(), min(BUFFER_BYTES, end - at), at)
                        write_whole(target, piece, at - start)
                sync_directory(folder.path)

    def take(self, file: str) -> None:
        """Moves a whole file. Of a link it moves the link itself, not the file that the link names."""
        with self._opened() as folder:
            os.rename(file, folder.free_name(f"{os.path.basename(file)}.{self._stamp}"), dst_dir_fd=folder.fd)
            sync_directory(folder.path)
        sync_directory(os.path.dirname(file))

    def _opened(self) -> Directory:
        is_there = os.path.isdir(os.path.join(self._path, NAME))
        folder = Directory(self._path, NAME, make=True)
        try:
            if not is_there:
                sync_directory(self._path)
        except BaseException:
            folder.close()
            raise
        return folder

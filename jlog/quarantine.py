"""`quarantine/`: where what is taken out of a journal is kept, for nothing can be read of it. It is no part of the journal."""

from __future__ import annotations

import os
import time

from jlog._core.recovery import sync_directory
from jlog.copying import BUFFER_BYTES
from jlog.filesystem import share

NAME = "quarantine"


class Quarantine:
    """Of the journal at `path`. What it has taken is durable."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = os.path.join(path, NAME)
        self._stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())

    def would_keep(self, file: str, start: int = 0, end: int | None = None) -> bool:
        """Whether there are bytes other than zeros."""
        with open(file, "rb") as source:
            size = os.fstat(source.fileno()).st_size
            return _end_of_content(source.fileno(), start, size if end is None else min(end, size)) > start

    def keep(self, file: str, start: int = 0, end: int | None = None) -> None:
        """Copies bytes of a file, but for the zeros at their end; nothing where there are only zeros. The file is left as it
        is."""
        with open(file, "rb") as source:
            size = os.fstat(source.fileno()).st_size
            end = _end_of_content(source.fileno(), start, size if end is None else min(end, size))
            if end <= start:
                return
            name = f"{os.path.basename(file)}.{start}" if start else os.path.basename(file)
            with open(self._free_name(name), "xb") as target:
                source.seek(start)
                while source.tell() < end:
                    target.write(source.read(min(BUFFER_BYTES, end - source.tell())))
                target.flush()
                os.fsync(target.fileno())
        share(target.name, self._path)
        sync_directory(self._folder)

    def take(self, file: str) -> None:
        """Moves a whole file."""
        os.rename(file, self._free_name(os.path.basename(file)))
        sync_directory(self._folder)
        sync_directory(os.path.dirname(file))

    def _free_name(self, name: str) -> str:
        if not os.path.isdir(self._folder):
            os.makedirs(self._folder, exist_ok=True)
            share(self._folder, self._path)
            sync_directory(self._path)
        free, number = os.path.join(self._folder, f"{name}.{self._stamp}"), 1
        while os.path.lexists(free):
            number += 1
            free = os.path.join(self._folder, f"{name}.{self._stamp}.{number}")
        return free


def _end_of_content(fd: int, start: int, end: int) -> int:
    """Where the zeros begin that fill the rest."""
    while end > start:
        size = min(BUFFER_BYTES, end - start)
        piece = os.pread(fd, size, end - size).rstrip(b"\0")
        if piece:
            return end - size + len(piece)
        end -= size
    return start

"""`quarantine/`: keeps the bytes that recovery or repair takes out of a journal. It is not part of the journal."""

import os
import time

from jlog._core.segments.segment import end_of_content
from jlog._core.system.durable import sync_directory
from jlog.system.files import Directory, directory_of, file_in, is_there, open_file, place_of, read_whole, write_whole

NAME = "quarantine"
PIECE_BYTES = 1 << 20  # a file is copied in pieces of this size


class Quarantine:
    """The quarantine of the journal at `path`. All files that one object takes have the same time in their names."""

    def __init__(self, path):
        self._path = path
        self._stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())

    def keep(self, file, start=0, end=None):
        """Copies bytes of a file, except the zeros at their end. Does nothing if there are only zeros, or if the file is not a
        regular file. The file stays as it is. The copy and its directory are durable."""
        if os.path.isfile(file):
            self.copy(file, start, end, folder_durable=True)

    def copy(self, file, start=0, end=None, *, folder_durable=False):
        """Copies bytes of a file, as keep() does. Without `folder_durable`, a quarantine directory that this call creates is
        durable only once the journal's directory is synced."""
        source = open_file(file)
        try:
            end = _content_end(source, start, end)
            if end <= start:
                return
            name = f"{os.path.basename(file)}.{start}" if start else os.path.basename(file)
            folder = self._opened(folder_durable)
            try:
                folder.make(folder.free_name(f"{name}.{self._stamp}"), lambda fd: _copy_pieces(source.fileno(), start, end, fd))
                sync_directory(folder.path)
            finally:
                folder.close()
        finally:
            source.close()

    def take(self, file):
        """Moves a whole file. A link is moved itself, not the file that it names. The move is durable."""
        sync_directory(self.move(file, folder_durable=True))
        sync_directory(directory_of(file))

    def move(self, file, *, folder_durable=False):
        """Moves a whole file, and syncs nothing. Returns the path of the quarantine."""
        folder = self._opened(folder_durable)
        try:
            name, directory = place_of(file)
            free = folder.free_name(f"{os.path.basename(file)}.{self._stamp}")
            os.rename(name, free, src_dir_fd=directory, dst_dir_fd=folder.fd)
            return folder.path
        finally:
            folder.close()

    def _opened(self, durable):
        existed = is_there(file_in(self._path, NAME))
        folder = Directory(self._path, NAME, make=True)
        try:
            if durable and not existed:
                sync_directory(self._path)
        except BaseException:
            folder.close()
            raise
        return folder


def _copy_pieces(source, start, end, target):
    for at in range(start, end, PIECE_BYTES):
        write_whole(target, read_whole(source, min(PIECE_BYTES, end - at), at), at - start)


def _content_end(source, start, end):
    size = os.fstat(source.fileno()).st_size
    return end_of_content(source.fileno(), start, size if end is None else min(end, size))

"""Makes files and directory entries survive a power loss."""

import os

from jlog._core.system.file cimport jlog_sync_data, jlog_sync_directory

from jlog.system.files import open_directory


def sync_data(int fd, path) -> None:
    """Syncs a file's data: what was written through this descriptor survives a power loss when this returns."""
    cdef int error
    with nogil:
        error = jlog_sync_data(fd)
    check(error, path)


def sync_directory(path) -> None:
    """Syncs a directory: its entries survive a power loss when this returns."""
    fd = open_directory(path)
    try:
        check(jlog_sync_directory(fd), path)
    finally:
        os.close(fd)


cdef int check(int error, path) except -1:
    if error != 0:
        raise OSError(error, os.strerror(error), os.fspath(path))
    return 0

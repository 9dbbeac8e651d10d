"""Makes files and directory entries survive a power loss."""

import os

from jlog._core.system.file cimport OpenFile, jlog_sync_data, jlog_sync_directory

from jlog.system.files import open_directory


def sync_data(int fd, path) -> None:
    """Returns when the bytes that were written through this descriptor survive a power loss."""
    cdef int error
    with nogil:
        error = jlog_sync_data(fd)
    check(error, path)


def sync_directory(path) -> None:
    """Returns when the entries of the directory survive a power loss."""
    cdef OpenFile directory = open_directory(path)
    try:
        check(jlog_sync_directory(directory.fd), path)
    finally:
        directory.close()


cdef int check(int error, path) except -1:
    if error != 0:
        raise OSError(error, os.strerror(error), os.fspath(path))
    return 0

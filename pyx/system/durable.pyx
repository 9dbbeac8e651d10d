"""Makes files and directory entries survive a power loss."""

from jlog._core.system.file cimport OpenFile, check_error, jlog_sync_data, jlog_sync_directory

from jlog.system.files import open_directory


def sync_data(int fd, path) -> None:
    """Returns when the bytes that were written through this descriptor survive a power loss."""
    cdef int error
    with nogil:
        error = jlog_sync_data(fd)
    check_error(error, path)


def sync_directory(path) -> None:
    """Returns when the entries of the directory survive a power loss."""
    cdef OpenFile directory = open_directory(path)
    try:
        check_error(jlog_sync_directory(directory.fd), path)
    finally:
        directory.close()

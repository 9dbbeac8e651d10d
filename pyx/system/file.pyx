"""Open files and directories, each with an owner from the system call on that opens it.

A signal's handler that raises ends a Python frame between any two of its steps, also between os.open() and the statement that
keeps the number: that descriptor would stay open for ever. Here the object is there first, and no step of Python lies between
the system call and the object. An allocation that fails leaves no descriptor for the same reason.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix cimport unistd
from posix.fcntl cimport AT_FDCWD, O_CLOEXEC, openat


cdef class OpenFile:
    """Opens a file as os.open(name, flags, mode, dir_fd=directory) does. The descriptor is above those of standard input,
    output and error, and closes when the context or the object ends."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, name not None, int flags, directory=None, int mode=0o666):
        cdef bytes encoded = os.fsencode(name)
        cdef const char *path = encoded
        cdef int at = AT_FDCWD if directory is None else directory
        cdef int error
        if b"\0" in encoded:  # C would take what is before it for the name
            raise ValueError("embedded null byte")
        self.close()
        while True:
            with nogil:
                self.fd = openat(at, path, flags | O_CLOEXEC, mode)
                error = errno if self.fd < 0 else 0
            if error != EINTR:
                break
            PyErr_CheckSignals()
        if error == 0:
            self.fd = jlog_above_standard(self.fd)
            error = -self.fd if self.fd < 0 else jlog_identify(self.fd, &self.file)
        if error != 0:
            if self.fd >= 0:  # close() knows only files that it can tell from others
                unistd.close(self.fd)
                self.fd = -1
            check_error(error, name)

    def __dealloc__(self):
        self.close()

    cpdef void close(self) noexcept:
        """Closes the descriptor, unless the program has closed it and opened another file under its number. A second call does
        nothing."""
        jlog_close_file(self.detach(NULL), &self.file)

    cdef int detach(self, jlog_identity *file) noexcept:
        """Returns the descriptor, which the caller owns from now on, and of which file it is, unless that is NULL."""
        cdef int fd = self.fd
        self.fd = -1
        if file != NULL:
            file[0] = self.file
        return fd

    def is_own(self) -> bool:
        """Returns whether the descriptor still is that of this file, and not one that the program has opened since."""
        return jlog_is_file(self.fd, &self.file)

    def hand_over(self, _path, _flags) -> int:
        """Returns the descriptor, which the caller owns from now on: an opener for open(), which calls it without a step of
        Python."""
        number = <object> self.fd
        self.detach(NULL)
        return number

    def fileno(self) -> int:
        return self.fd

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()


cdef int check_error(int error, path) except -1:
    """Raises the OSError of this errno, unless it is 0."""
    if error != 0:
        raise OSError(error, os.strerror(error), os.fspath(path))
    return 0


cdef int64_t check_result(int64_t result, path) except -1:
    """Returns the result of a call, or raises the OSError of a negative one, which is -errno."""
    if result < 0:
        check_error(<int> -result, path)
    return result

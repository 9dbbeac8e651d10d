"""Open files and directories, each with an owner from the system call on that opens it. All are on the list in fork.h: a child
of a fork keeps none.

A signal's handler that raises ends a Python frame between any two of its steps, also between os.open() and the statement that
keeps the number: that descriptor would stay open for ever. Here the object is there first, and no step of Python lies between
the system call and the object. An allocation that fails leaves no descriptor for the same reason.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.stdint cimport int64_t, uint64_t
from posix.fcntl cimport AT_FDCWD, O_CREAT, O_EXCL, O_RDWR

from jlog._core.system.failpoint cimport JLOG_FAILPOINT

cdef extern from "<fcntl.h>" nogil:
    int O_NOFOLLOW


cdef extern from "<unistd.h>" nogil:
    int unlinkat(int directory, const char *name, int flags)


cdef extern from "system/fork.h" nogil:
    int jlog_process_start()
    const uint64_t *jlog_process_token()
    int jlog_open_listed(int origin, const char *name, int flags, unsigned mode)
    int jlog_identify(int fd, jlog_identity *found)
    bint jlog_is_file(int fd, const jlog_identity *file)
    void jlog_close_file(int fd, const jlog_identity *file)
    void jlog_drop(int fd, bint closes)


cdef const uint64_t *process_token() noexcept:
    """Returns the address of this process's token. An object that has noted another value was created before a fork."""
    return jlog_process_token()


cdef int open_at(int directory, const char *name, int flags, unsigned mode) noexcept nogil:
    """Returns the descriptor, or -errno: ELOOP for a symbolic link, because no file of a journal is one."""
    cdef int failure = JLOG_FAILPOINT(b"file.open")
    cdef int fd = -failure
    while failure == 0:
        fd = jlog_open_listed(directory, name, flags | O_NOFOLLOW, mode)
        if fd != -EINTR:
            break
    return fd


cdef int create_at(int directory, const char *name) noexcept nogil:
    """Creates a file with the directory's permissions, for reading and writing. Returns the descriptor or -errno. A file that a
    killed process has left under this name is removed first; of a link, the link itself and not its target."""
    cdef int fd
    unlinkat(directory, name, 0)
    fd = open_at(directory, name, O_RDWR | O_CREAT | O_EXCL, 0o666)
    if fd >= 0:
        jlog_share(fd, directory)
    return fd


cdef int duplicate(int fd) noexcept nogil:
    """Returns a second descriptor of the same open file description, or -errno."""
    return jlog_open_listed(fd, NULL, 0, 0)


cdef int identify(int fd, jlog_identity *file) noexcept nogil:
    """Finds out what an open file is. Returns 0 or an errno."""
    return jlog_identify(fd, file)


cdef bint is_file(int fd, const jlog_identity *file) noexcept nogil:
    """Returns whether the descriptor still is that of this opening of this file, in this process."""
    return jlog_is_file(fd, file)


cdef void close_file(int fd, const jlog_identity *file) noexcept nogil:
    """Closes the descriptor, if it still is that of this opening of this file."""
    jlog_close_file(fd, file)


cdef void close_descriptor(int fd) noexcept nogil:
    """Closes a descriptor in the call that has opened it."""
    jlog_drop(fd, True)


cdef class OpenFile:
    """Opens a file as os.open(name, flags, mode, dir_fd=directory) does. The descriptor is above those of standard input,
    output and error, and closes when the context or the object ends."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, name not None, int flags, directory=None, int mode=0o666):
        cdef bytes encoded = os.fsencode(name)
        cdef const char *path = encoded
        cdef int at = AT_FDCWD if directory is None else directory
        cdef int fd
        if b"\0" in encoded:  # C would take what is before it for the name
            raise ValueError("embedded null byte")
        self.close()
        while True:
            with nogil:
                fd = jlog_open_listed(at, path, flags, mode)
            if fd != -EINTR:
                break
            PyErr_CheckSignals()
        check_result(fd, name)
        self.fd = fd
        identify(fd, &self.file)

    def __dealloc__(self):
        self.close()

    cpdef void close(self) noexcept:
        """Closes the descriptor, unless the program has closed it and opened another file under its number. A second call does
        nothing."""
        close_file(self.detach(NULL), &self.file)

    cdef int detach(self, jlog_identity *file) noexcept:
        """Returns the descriptor, which the caller owns from now on, and of which file it is, unless that is NULL."""
        cdef int fd = self.fd
        self.fd = -1
        if file != NULL:
            file[0] = self.file
        return fd

    def is_own(self) -> bool:
        """Returns whether the descriptor still is that of this file, and not one that the program has opened since."""
        return is_file(self.fd, &self.file)

    def hand_over(self, _path, _flags) -> int:
        """Returns the descriptor, which the caller owns from now on: an opener for open(), which calls it without a step of
        Python."""
        number = <object> self.fd
        jlog_drop(self.detach(NULL), False)
        return number

    def fileno(self) -> int:
        return self.fd

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()


cdef plain(path):
    """Returns the path as an error holds it: an object that holds a directory open would hold it as long as the error."""
    return str(path) if isinstance(path, str) else os.fspath(path)


cdef int check_error(int error, path) except -1:
    """Raises the OSError of this errno, unless it is 0."""
    if error != 0:
        raise OSError(error, os.strerror(error), plain(path))
    return 0


cdef int64_t check_result(int64_t result, path) except -1:
    """Returns the result of a call, or raises the OSError of a negative one, which is -errno."""
    if result < 0:
        check_error(<int> -result, path)
    return result


cdef int _error = jlog_process_start()
if _error != 0:
    raise OSError(_error, os.strerror(_error))

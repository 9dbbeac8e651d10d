"""Locks that the kernel holds for a process and frees at its death: fcntl locks of an open file description.

They carry all that is rare, and all liveness: which process lives is never read from a file, only asked of the kernel.
"""

import errno
import os
import time

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport uint64_t

from jlog._core.file cimport jlog_ofd_lock, jlog_range_is_held, jlog_try_lock_range, jlog_unlock_range

from jlog.files import open_file, open_or_create


cdef extern from "<fcntl.h>" nogil:
    enum:
        F_RDLCK
        F_WRLCK
        F_OFD_SETLKW


cdef extern from "fork.h" nogil:
    int jlog_process_start()
    const uint64_t *jlog_process_token()
    int jlog_close_in_child(int fd)
    void jlog_close_now(int fd)


RANGES = {"open": OPEN_BYTE, "bounds": BOUNDS_BYTE, "table": TABLE_BYTE, "writers": WRITERS_BYTE,
          "copy": COPY_BYTE}
OWNERS = OWNERS_BYTE, 1024  # byte range of the slots of writing processes: as many as JLOG_OWNERS_MAX
POLL_SECONDS = 0.005
SHARED = (OPEN_BYTE, BOUNDS_BYTE)  # what a call that the collector sets off may want too
_held = 0  # so many of them does this process hold now
_held_process = 0  # whose count that is: not a child's
_deferred = []  # calls that wait until it is 0


def when_nothing_is_held(call) -> None:
    """Now, or as soon as no thread of this process opens or writes `bounds`: for what the garbage collector may set off
    anywhere, under that very lock too."""
    if _held and _held_process == jlog_process_token()[0]:
        _deferred.append(call)
    else:
        call()


cdef const uint64_t *process_token() noexcept:
    """Where this process's token stands: whoever has noted another value came here through a fork."""
    return jlog_process_token()


def current_process_token() -> int:
    """A number that no other process on this side of a fork has: compare it to learn of a fork."""
    return jlog_process_token()[0]


cdef class LockFile:
    """A file that processes lock ranges of. One description each: its ranges exclude every other LockFile, in this
    process too, and are freed by close() and by the death of the process, not by a forked child."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, str path not None, *, bint create=False, bint writable=True):
        """Opens it. `writable=False` can only ask who holds a range, as a reader on a read-only mount must."""
        self.path = path
        self.process = process_token()
        self.token = self.process[0]
        fd = open_or_create(path) if create else open_file(path, os.O_RDWR if writable else os.O_RDONLY)
        if jlog_close_in_child(fd) != 0:
            os.close(fd)
            raise MemoryError
        self.fd = fd

    def __dealloc__(self):
        if self.is_open():
            jlog_close_now(self.fd)

    def close(self):
        if self.fd >= 0 and self.is_open():
            jlog_close_now(self.fd)
        self.fd = -1

    cdef bint is_open(self) noexcept nogil:
        return self.fd >= 0 and self.process[0] == self.token

    def fileno(self) -> int:
        return self.fd

    cdef int try_lock(self, short kind, uint64_t start, uint64_t size) noexcept nogil:
        return jlog_try_lock_range(self.fd, kind, start, size)

    cdef int unlock(self, uint64_t start, uint64_t size) noexcept nogil:
        return jlog_unlock_range(self.fd, start, size)

    def acquire(self, uint64_t start, uint64_t size=1, *, bint shared=False, timeout=None) -> bool:
        """Waits for a range, for ever or `timeout` seconds; False when they have passed. Ctrl-C gets through."""
        cdef short kind = F_RDLCK if shared else F_WRLCK
        cdef int error
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            error = jlog_try_lock_range(self.fd, kind, start, size)
            if error == EAGAIN and deadline is None:
                with nogil:
                    error = jlog_ofd_lock(self.fd, F_OFD_SETLKW, kind, start, size)
            if error == 0:
                return True
            PyErr_CheckSignals()
            if error == EAGAIN:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_SECONDS)  # the kernel has no wait for a lock that ends
            elif error != EINTR:
                raise OSError(error, os.strerror(error), self.path)

    def release(self, uint64_t start, uint64_t size=1) -> None:
        cdef int error = jlog_unlock_range(self.fd, start, size)
        if error != 0:
            raise OSError(error, os.strerror(error), self.path)

    def is_held(self, uint64_t start, uint64_t size=1) -> bool:
        """Whether another description holds any of the range."""
        cdef int held = jlog_range_is_held(self.fd, start, size)
        if held < 0:
            raise OSError(-held, os.strerror(-held), self.path)
        return held == 1

    def held(self, uint64_t start, uint64_t size=1, *, timeout=None):
        """A context in which the range is held. TimeoutError when `timeout` seconds have passed."""
        return _Held(self, start, size, timeout)


class _Held:
    def __init__(self, lock_file, start, size, timeout):
        self._lock_file, self._start, self._size, self._timeout = lock_file, start, size, timeout

    def __enter__(self):
        if not self._lock_file.acquire(self._start, self._size, timeout=self._timeout):
            raise TimeoutError(errno.ETIMEDOUT, f"the lock was held for {self._timeout} s", self._lock_file.path)
        global _held, _held_process
        if _held_process != jlog_process_token()[0]:
            _held, _held_process = 0, jlog_process_token()[0]
            _deferred.clear()
        _held += self._start in SHARED

    def __exit__(self, *_):
        global _held
        self._lock_file.release(self._start, self._size)
        _held -= self._start in SHARED
        while _deferred and not _held:
            run_deferred(_deferred.pop())


cdef void run_deferred(call) noexcept:
    """What it raises is no more the caller's than where the collector calls: it is reported and goes no further."""
    call()


cdef int _error = jlog_process_start()
if _error != 0:
    raise OSError(_error, os.strerror(_error))

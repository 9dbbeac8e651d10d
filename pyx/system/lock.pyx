"""Locks that the kernel holds for a process and frees at its death: fcntl locks of an open file description.

All rare operations use them. They also tell whether a process lives: the kernel knows it for certain, and a file does not.
"""

import os
import time

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport EAGAIN, EBADF, EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from posix.fcntl cimport F_RDLCK, F_WRLCK

from jlog._core.system.atomic cimport JLOG_OWNERS_MAX
from jlog._core.system.clock cimport CLOCK_MONOTONIC, jlog_clock_us
from jlog._core.system.file cimport (
    OpenFile, check_error, check_result, close_file, is_file, jlog_identity, jlog_ofd_lock, jlog_range_is_held, jlog_sync_data,
    jlog_try_lock_range, jlog_unlock_range, process_token)

from jlog.errors import JournalClosed, JournalLocked
from jlog.system.files import descriptors_closed, directory_of, open_directory, open_file
from jlog.system.holders import holders_of
from jlog.system.threads import real_lock, real_sleep


cdef extern from "<fcntl.h>" nogil:
    enum:
        F_OFD_SETLKW


cdef extern from "<sys/file.h>" nogil:
    int flock(int fd, int operation)
    enum:
        LOCK_EX
        LOCK_NB
        LOCK_SH
        LOCK_UN


RANGES = {"open": OPEN_BYTE, "bounds": BOUNDS_BYTE, "table": TABLE_BYTE, "writers": WRITERS_BYTE,
          "copy": COPY_BYTE, "sink": SINK_BYTE}
OWNERS = OWNERS_BYTE, JLOG_OWNERS_MAX  # byte range of the writer slots
POLL_SECONDS = 0.005
DYING_SECONDS = 5  # for so long the kernel may still take down a process that has freed one lock and not the other yet
cdef int _held = 0  # how many of the ranges for which is_shared() returns True this process holds now
cdef uint64_t _held_process = 0  # token of the process to which `_held` belongs; a forked child begins at 0
cdef dict holders = {}  # (path of a lock file, start of a range): the _TakenRange of the thread that took it last
cdef Deferred _deferred = None  # the last one that waits until no such lock is held


cdef class Deferred:
    """Work of the garbage collector, which may begin at any moment, also under a lock that the work takes. A subclass says what
    it is. To put it off needs no memory."""

    cdef void run(self) noexcept:
        pass


cdef void when_nothing_is_held(Deferred work) noexcept:
    """Does the work now, or as soon as no thread of this process opens a journal or writes `bounds`."""
    global _deferred
    if _held and _held_process == process_token()[0]:
        work.following, _deferred = _deferred, work
    else:
        work.run()


def current_process_token() -> int:
    """Returns a number that differs between a process and its forked children: compare it to notice a fork."""
    return process_token()[0]


cdef class Deadline:
    """The moment until which one public call waits, for all locks together. It is made where the call begins, and handed down.
    `timeout` is in seconds from now; None waits for ever."""

    def __init__(self, timeout):
        self.begin(timeout)

    cdef int begin(self, timeout) except -1:
        self.until_us = -1
        if timeout is not None and timeout < 1e9:  # about 30 years; more could overflow below
            self.until_us = jlog_clock_us(CLOCK_MONOTONIC) + <int64_t> (max(timeout, 0) * 1e6)
        return 0

    cdef int64_t left_us(self, int64_t at_most) noexcept:
        if self.until_us < 0:
            return at_most
        return max(0, min(at_most, self.until_us - jlog_clock_us(CLOCK_MONOTONIC)))

    def left(self):
        """Returns the seconds that are left, as LockFile.acquire() takes them; None if the call waits for ever."""
        return None if self.until_us < 0 else max(0, self.until_us - jlog_clock_us(CLOCK_MONOTONIC)) / 1e6

    def at_most(self, timeout) -> Deadline:
        """Returns the earlier one of this deadline and `timeout` seconds from now."""
        other = Deadline(timeout)
        return other if self.until_us < 0 or 0 <= other.until_us < self.until_us else self


NEVER = Deadline(None)
AT_ONCE = Deadline(0)  # takes a free lock, and never waits


cdef class _TakenRange:
    """A range that a lock file has taken, and the thread that has it."""


@cython.no_gc_clear  # its finalizer needs `taken`
cdef class LockFile:
    """A file in which processes lock ranges of bytes. Each LockFile has an open file description of its own: its ranges exclude
    every other LockFile, also in this process. close() and the death of the process free them; a forked child does not."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path not None, *, bint create=False, bint writable=True):
        """Opens the file. With `writable=False` it can only be asked whether a range is held: a reader on a read-only mount
        needs that."""
        self.path = path
        self.process = process_token()
        self.token = self.process[0]
        self.fd = (<OpenFile> open_file(path, (os.O_RDWR if writable else os.O_RDONLY)
                                        | (os.O_CREAT if create else 0))).detach(&self.file)

    def __dealloc__(self):
        if self.is_open():
            close_locked(self.fd, &self.file)
        self.forget_taken()

    def close(self):
        """Closes the descriptor. If calls still use it, the last of them closes it when it ends."""
        self.closed = True
        if self.uses == 0:
            if self.fd >= 0 and self.process[0] == self.token:
                close_locked(self.fd, &self.file)
            self.fd = -1
        self.forget_taken()
        self.path = str(self.path)  # no descriptor of the directory stays open for it

    cdef void forget_taken(self) noexcept:
        """Forgets the ranges that it held. Without memory an entry stays, and names no thread."""
        cdef _TakenRange one
        taken, self.taken = self.taken, None
        if taken is not None:
            for one in taken:
                one.thread = 0
                try:
                    if holders.get((self.path, one.start)) is one:
                        del holders[self.path, one.start]
                except MemoryError:
                    pass

    cdef bint is_open(self) noexcept nogil:
        return self.fd >= 0 and not self.closed and self.process[0] == self.token

    cdef bint is_own(self) noexcept nogil:
        """Returns whether the descriptor still is that of this file, and not one that the program has opened since."""
        return is_file(self.fd, &self.file)

    cdef int check_own(self) except -1:
        if not self.is_own():
            raise descriptors_closed(self.path)
        return 0

    def sync(self) -> None:
        """Makes everything that was written to the file survive a power loss."""
        cdef int error
        if not self.is_open():
            raise JournalClosed(f"{self.path}: it is closed; open it again")
        self.check_own()
        self.uses += 1
        with nogil:
            error = jlog_sync_data(self.fd)
        self.end_use()
        check_error(error, self.path)

    cdef int end_use(self) except -1:
        self.uses -= 1
        if self.closed:
            self.close()
        return 0

    def fileno(self) -> int:
        return self.fd

    cdef int try_lock(self, short kind, uint64_t start, uint64_t size) noexcept nogil:
        return jlog_try_lock_range(self.fd, kind, start, size) if self.is_own() else EBADF

    cdef int unlock(self, uint64_t start, uint64_t size) noexcept nogil:
        return jlog_unlock_range(self.fd, start, size)

    def acquire(self, uint64_t start, uint64_t size=1, *, bint shared=False, timeout=None) -> bool:
        """Waits for a range, for ever or for `timeout` seconds. Returns False when they have passed. Ctrl-C ends the wait.
        Raises JournalLocked if this thread holds it: a signal's handler has interrupted the call that it would wait for."""
        cdef short kind = F_RDLCK if shared else F_WRLCK
        cdef int error
        deadline = None if timeout is None else time.monotonic() + timeout
        self.check_own()
        while True:
            error = jlog_try_lock_range(self.fd, kind, start, size)
            if error == EAGAIN and timeout != 0 and self.is_held_by_this_thread(start):
                raise held_by_this_thread(self.path)
            if error == EAGAIN and deadline is None:
                with nogil:
                    error = jlog_ofd_lock(self.fd, F_OFD_SETLKW, kind, start, size)
            if error == 0:
                try:
                    self.note_taken(start)
                except BaseException:
                    jlog_unlock_range(self.fd, start, size)
                    raise
                return True
            PyErr_CheckSignals()
            if error == EAGAIN:
                if time.monotonic() >= deadline:
                    return False
                real_sleep(POLL_SECONDS)  # the kernel's own wait has no timeout
            elif error != EINTR:
                check_error(error, self.path)

    cdef int note_taken(self, uint64_t start) except -1:
        cdef _TakenRange taken = self.taken_range(start)
        if taken is None:
            taken = _TakenRange()
            taken.start = start
            if self.taken is None:
                self.taken = []
            self.taken.append(taken)
        holders[self.path, start] = taken
        taken.process, taken.thread = process_token()[0], PyThread_get_thread_ident()
        return 0

    cdef _TakenRange taken_range(self, uint64_t start):
        """Returns the range if it was ever taken; else None. It needs no memory."""
        cdef Py_ssize_t i
        if self.taken is not None:
            for i in range(len(self.taken)):
                if (<_TakenRange> self.taken[i]).start == start:
                    return <_TakenRange> self.taken[i]
        return None

    cdef bint is_held_by_this_thread(self, uint64_t start) except -1:
        cdef _TakenRange taken = holders.get((self.path, start))
        return (taken is not None and taken.thread == PyThread_get_thread_ident()
                and taken.process == process_token()[0])

    def release(self, uint64_t start, uint64_t size=1) -> None:
        check_error(self.give(start, size), self.path)

    cdef int give(self, uint64_t start, uint64_t size) noexcept:
        """Frees a range. Returns 0 or an errno. It needs no memory."""
        cdef _TakenRange taken = self.taken_range(start)
        if taken is not None:
            taken.thread = 0
        return jlog_unlock_range(self.fd, start, size)

    def is_held(self, uint64_t start, uint64_t size=1) -> bool:
        """Returns whether another description holds any of the range."""
        self.check_own()
        return check_result(jlog_range_is_held(self.fd, start, size), self.path) == 1

    def holders(self, uint64_t start, uint64_t size=1) -> str:
        """Returns " (PID 4711)" for the processes that hold any of the range, as far as they can be known, or ""."""
        return holders_of(self.fd, start, size)

    def held(self, uint64_t start, uint64_t size=1, *, Deadline deadline not None=NEVER, what="it", mutex=None):
        """Returns a context in which the range is held; compiled code calls its take() and give(). `mutex` is a Mutex that is
        taken first, because a range does not exclude threads that share this object. Raises JournalLocked at the deadline;
        `what` says in its message what the other process did."""
        return _Held(self, start, size, deadline, what, mutex)


cdef class HeldRange:
    """A context in which a range of a lock file is held, with a description of its own. It is compiled, so that no exception of
    a signal's handler comes between the lock and the context. Raises JournalLocked, as `refused` says, at the deadline."""

    def __init__(self, path not None, uint64_t start, Deadline deadline not None, refused):
        self.start, self.deadline, self.refused = start, deadline, refused
        self.file = LockFile(path)

    def __enter__(self):
        if not self.file.acquire(self.start, timeout=self.deadline.left()):
            refused = self.refused.replace("another process", f"another process{self.file.holders(self.start)}")
            self.file.close()
            raise JournalLocked(refused)

    def __exit__(self, kind, error, trace):
        self.file.close()  # frees the lock too


cdef held_by_this_thread(path):
    return JournalLocked(f"{directory_of(path)}: this thread holds the lock itself, in the call that a signal's handler has "
                         "interrupted; let the handler set a flag, and make its call after that one")


cdef class Mutex:
    """A lock between the threads of this process, which knows its owner: a thread that would wait for itself is refused."""

    def __init__(self, path):
        self.path, self.lock = path, real_lock()

    cdef bint take(self, timeout) except -1:
        """Waits for the lock, for ever or for `timeout` seconds. Returns False when they have passed."""
        if self.owner == PyThread_get_thread_ident():
            raise held_by_this_thread(self.path)
        if not self.lock.acquire(True, -1 if timeout is None else timeout):
            return False
        self.owner = PyThread_get_thread_ident()
        return True

    cdef bint try_take(self) except -1:
        if not self.lock.acquire(False):
            return False
        self.owner = PyThread_get_thread_ident()
        return True

    cdef int give(self) except -1:
        self.owner = 0
        self.lock.release()
        return 0


cdef class DirectoryLock:
    """The lock of a journal's directory, which all writing processes share. The kernel keeps it whatever becomes of the files
    in there: a process that finds no owner in the file `lock` learns from it that the file was removed under living writers, as
    cleaners of temporary directories do. Every call needs the open lock."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path not None):
        self.path = path
        self.process = process_token()
        self.token = self.process[0]
        self.fd = (<OpenFile> open_directory(path)).detach(&self.file)

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        """Frees the lock. A second call does nothing."""
        if self.fd >= 0 and self.process[0] == self.token:
            if is_file(self.fd, &self.file):
                flock(self.fd, LOCK_UN)  # a child that was forked a moment ago may not have closed its copy yet
            close_locked(self.fd, &self.file)
        self.fd = -1

    def share(self, bint alone) -> None:
        """Takes the lock beside other writing processes. Raises JournalLocked if there are some though `alone` says that there
        are none."""
        if alone:
            self.take(LOCK_EX)
        self.take(LOCK_SH)

    cdef int take(self, int kind) except -1:
        cdef int64_t until_us = jlog_clock_us(CLOCK_MONOTONIC) + DYING_SECONDS * 1_000_000
        while flock(self.fd, kind | LOCK_NB) != 0:
            if errno == EAGAIN and jlog_clock_us(CLOCK_MONOTONIC) < until_us:
                PyErr_CheckSignals()
                real_sleep(POLL_SECONDS)  # the kernel's own wait has no timeout
            elif errno == EAGAIN:
                raise JournalLocked(f"{self.path}: a process writes to it, and its file `lock` was removed or replaced "
                                    "meanwhile; end all processes that have the journal open, and open it again")
            elif errno != EINTR:
                return 0  # this file system has no such locks: the file `lock` stands alone
        return 0


def check_alone(path) -> None:
    """Raises JournalLocked if a process writes to the journal. The caller has the open lock, and has found no owner in the file
    `lock`."""
    directory = DirectoryLock(path)
    try:
        directory.take(LOCK_EX)
    finally:
        directory.close()


cdef void close_locked(int fd, const jlog_identity *file) noexcept nogil:
    """Closes a file with locks. They are released first: a child that was forked a moment ago may not have closed its copy of
    the descriptor yet, and until then they would stay."""
    if is_file(fd, file):
        jlog_unlock_range(fd, 0, 0)
        close_file(fd, file)


cdef bint is_shared(uint64_t start) noexcept:
    """Returns whether a call from the garbage collector may need this range too."""
    return start == OPEN_BYTE or start == BOUNDS_BYTE


cdef class _Held:
    """A context in which a range is held. A close() meanwhile closes the file once the range is given back."""

    cdef LockFile _lock_file
    cdef uint64_t _start
    cdef uint64_t _size
    cdef Mutex _mutex
    cdef object _deadline
    cdef object _what

    def __init__(self, lock_file, start, size, deadline, what, Mutex mutex):
        self._lock_file, self._start, self._size, self._mutex = lock_file, start, size, mutex
        self._deadline, self._what = deadline, what

    def take(self):
        if self._mutex is not None and not self._mutex.take(self._deadline.left()):
            raise self._locked("another thread of this process")
        self._lock_file.uses += 1
        try:
            if not self._lock_file.acquire(self._start, self._size, timeout=self._deadline.left()):
                raise self._locked(f"another process{self._lock_file.holders(self._start, self._size)}")
        except BaseException:
            try:
                self._lock_file.end_use()
            finally:
                if self._mutex is not None:
                    self._mutex.give()
            raise
        global _held, _held_process, _deferred
        if _held_process != process_token()[0]:
            _held, _held_process = 0, process_token()[0]
            _deferred = None
        _held += is_shared(self._start)

    def give(self):
        cdef int error = self._lock_file.give(self._start, self._size)
        cdef Deferred work
        global _held, _deferred
        try:
            self._lock_file.end_use()
        finally:
            if self._mutex is not None:
                self._mutex.give()
            _held -= is_shared(self._start)
        check_error(error, self._lock_file.path)
        while _deferred is not None and not _held:
            work = _deferred
            _deferred, work.following = work.following, None
            work.run()

    def __enter__(self):
        self.take()

    def __exit__(self, kind, error, trace):
        self.give()

    def _locked(self, others):
        return JournalLocked(f"{directory_of(self._lock_file.path)}: {others} {self._what} for the whole lock_timeout; "
                             "if that process is stopped, continue or end it")

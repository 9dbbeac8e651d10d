from libc.stdint cimport uint8_t, uint64_t

cdef enum Use:
    FREE = 0
    IN_USE = 1  # a compiled call works with it
    HELD = 2  # a call of several steps has it
    OWED = 4  # what was taken from `began` on has not been handed out

cdef class ReadPosition:
    cdef readonly object path
    cdef const uint64_t *process
    cdef uint64_t token  # of the process that created it; 0: closed
    cdef uint8_t use
    cdef uint64_t began  # the position before the call that is under way, or that was interrupted; only while OWED

    cdef int note(self, path) except -1
    cdef int prepare(self) except -1
    cdef int hold(self, bint goes_back) except -1
    cdef int let_go(self, bint done) except -1
    cdef int owe(self) except -1
    cdef uint64_t where(self) except? -1
    cdef int go_back(self, uint64_t sequence) except -1
    cdef void release(self) noexcept

cdef bint is_own(BaseException error)


cdef inline int begin_use(ReadPosition position) except -1:
    """Takes the position, before anything that may let another thread run: that thread is refused until end_use()."""
    if position.use != FREE or position.token == 0 or position.process[0] != position.token:
        position.prepare()
    position.use = IN_USE
    return 0


cdef inline int begin_step(ReadPosition position) except -1:
    """Does the same for a step of a call that holds the position."""
    if position.use & IN_USE or position.use == OWED or position.token == 0 or position.process[0] != position.token:
        position.prepare()
    position.use |= IN_USE
    return 0


cdef inline void end_use(ReadPosition position) noexcept:
    position.use &= ~IN_USE
    if position.token == 0 and not position.use & HELD:  # close() was called meanwhile
        position.release()

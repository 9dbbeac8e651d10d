from libc.stdint cimport int64_t, uint32_t

from jlog._core.buffer.precommit cimport Precommit


cdef extern from "buffer/wake.h" nogil:
    enum:
        JLOG_WORDS_MAX

    struct jlog_awaited:
        pass

    void jlog_await(jlog_awaited *awaited, const uint32_t *word, uint32_t value, bint shared)
    int jlog_wait_for_any(jlog_awaited *awaited, unsigned count, int64_t timeout_us)
    void jlog_wait_private(uint32_t *word, uint32_t value, int64_t timeout_us)
    void jlog_ring(uint32_t *word)


cdef class Waker:
    cdef uint32_t word

    cpdef ring(self)
    cdef bint wait(self, int64_t timeout_us) noexcept


cdef class WakeWord:
    cdef Precommit precommit
    cdef void *page
    cdef uint32_t *word

    cdef uint32_t counter(self) noexcept nogil
    cdef bint ask(self) noexcept nogil


cdef WakeWord wake_word(WakeWord known, Precommit precommit)

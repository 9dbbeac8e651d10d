"""Compresses the open block outside the append lock. The operation that has marked it as closed does it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.format.format cimport jlog_crc32c
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, jlog_body, jlog_page, jlog_slot, jlog_word_used
from jlog._core.system.atomic cimport jlog_full_fence, jlog_futex_wait, jlog_load_acquire
from jlog._core.system.clock cimport CLOCK_MONOTONIC, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.format.lz4 cimport compressed_or_none
from jlog._core.process.operation cimport APPEND, ROLL, Append, Operation
from jlog._core.process.process cimport WritingProcess

cdef enum:
    PATIENCE_BYTES_PER_US = 100  # the slowest speed of compression that is expected of a running process
    PATIENCE_MIN_US = 200
    PATIENCE_SLICE_US = 50


cdef object compress_open_block(WritingProcess process, Operation *operation):
    """Compresses a copy of the block that the operation has marked closed. It takes a copy because another operation may lose
    patience and rotate meanwhile: then new records overwrite the body. Returns the compressed bytes, which the operation
    points into; None if the block stays uncompressed."""
    cdef jlog_page *page = process.buffer.page
    cdef uint64_t generation = jlog_load_acquire(&page.generation)
    cdef jlog_slot *slot = &page.slots[generation & 1]
    cdef uint32_t used = jlog_word_used(jlog_load_acquire(&slot.publish_word))
    cdef const uint8_t *body = jlog_body(&process.buffer, generation)
    cdef bytes raw, stored
    if generation != operation.closing.marked_closed or used < JLOG_BASE_BYTES:
        return None
    raw = PyBytes_FromStringAndSize(<const char *> body + JLOG_BASE_BYTES, used - JLOG_BASE_BYTES)
    jlog_full_fence()
    if jlog_load_acquire(&page.generation) != generation:
        return None
    JLOG_FAILPOINT(b"compress.copied")
    stored = compressed_or_none(raw)
    operation.closing.compressed.generation = generation
    operation.closing.compressed.data = NULL
    if stored is not None:
        operation.closing.compressed.data = <const uint8_t *> PyBytes_AS_STRING(stored)
        operation.closing.compressed.size = len(stored)
        operation.closing.compressed.crc = jlog_crc32c(0, operation.closing.compressed.data, operation.closing.compressed.size)
    # A roll and a direct block need an empty block next. They compress only once: other writers could come first for ever.
    operation.closing.plain = operation.kind == ROLL or (operation.kind == APPEND and (<Append *> operation).direct)
    return stored


cdef int wait_for_generation(WritingProcess process, Operation *operation) except -1:
    """Waits while another operation compresses the open block. When the time is up, this operation compresses it itself."""
    cdef jlog_page *page = process.buffer.page
    cdef uint64_t generation = jlog_load_acquire(&page.generation)
    cdef int64_t until_us = jlog_clock_us(CLOCK_MONOTONIC) + PATIENCE_MIN_US + (
        <int64_t> jlog_word_used(page.slots[generation & 1].publish_word) // PATIENCE_BYTES_PER_US)
    with nogil:
        while jlog_load_acquire(&page.generation) == generation and jlog_clock_us(CLOCK_MONOTONIC) < until_us:
            jlog_futex_wait(NULL, 0, PATIENCE_SLICE_US)
    PyErr_CheckSignals()
    operation.closing.marked_closed = generation
    return 0

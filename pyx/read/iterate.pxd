from jlog._core.read.blocks cimport BlockReader
from jlog._core.format.format cimport jlog_is_state, jlog_record
from jlog._core.records.record cimport Record, fill_record

cdef extern from * nogil:
    void __builtin_prefetch(const void *address)

cdef enum:
    PREFETCH_BYTES = 1024  # walking records with a cold cache is bound by memory latency


cdef inline bint to_next_record(BlockReader blocks, jlog_record *record, size_t *size) except -1:
    """Decodes the next record, without moving past it. Returns False at the noted end."""
    while True:
        if blocks.at == blocks.end and not blocks.advance():
            return False
        __builtin_prefetch(blocks.at + PREFETCH_BYTES)
        size[0] = blocks.decode(record)
        if not jlog_is_state(record):
            return True
        blocks.at += size[0]


cdef inline Record next_record(BlockReader blocks):
    """Returns the next record and moves past it; None at the noted end. The cursor is taken, because making an object may run
    the garbage collector, and that lets other threads run."""
    cdef jlog_record record
    cdef size_t size
    cdef Record made
    if not to_next_record(blocks, &record, &size):
        return None
    made = Record.__new__(Record)
    fill_record(made, &record, blocks.sequence)
    if blocks.decoder is not None:
        made.decoder = blocks.decoder
    blocks.at += size  # only once the object is created: without memory no record is skipped
    blocks.sequence += 1
    return made

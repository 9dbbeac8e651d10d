from jlog._core.read.cursor cimport Cursor
from jlog._core.format.format cimport JLOG_TAG_LONG, JLOG_TAG_STATE, jlog_record
from jlog._core.records.record cimport Record, make_record

cdef extern from * nogil:
    void __builtin_prefetch(const void *address)

cdef enum:
    PREFETCH_BYTES = 1024  # walking records with a cold cache is bound by memory latency


cdef inline bint to_next_record(Cursor cursor, jlog_record *record, size_t *size) except -1:
    """Decodes it where it stands. False at the end."""
    while True:
        if cursor.at == cursor.end and not cursor.advance():
            return False
        __builtin_prefetch(cursor.at + PREFETCH_BYTES)
        size[0] = cursor.decode(record)
        if not (record.tag & JLOG_TAG_LONG and record.tag & JLOG_TAG_STATE):
            return True
        cursor.at += size[0]


cdef inline Record next_record(Cursor cursor):
    """Hands it out; None at the end. The cursor is taken: the collector, which may run when an object is made, lets others
    run."""
    cdef jlog_record record
    cdef size_t size
    cdef Record made
    if not to_next_record(cursor, &record, &size):
        return None
    made = make_record(&record, cursor.sequence)
    cursor.at += size  # once there is the object: without memory nothing is skipped
    cursor.sequence += 1
    return made

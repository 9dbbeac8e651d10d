"""The live state that extend(state=) stores: each new segment begins with it, and its size is limited."""

from jlog._core.format.format cimport JLOG_STATE_BYTES_MAX
from jlog._core.buffer.page cimport jlog_page
from jlog._core.system.atomic cimport jlog_load_acquire
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.process.operation cimport NewRecords
from jlog._core.process.process cimport WritingProcess

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog.errors import RecordTooLarge


cdef class LiveState:
    def __init__(self, WritingProcess process not None):
        self.process = process

    cdef bint read(self) except -1:
        """Brings `values` up to date. `generation` becomes that of the open block. Returns False while the open segment's file
        is being replaced. The process that replaces it may have died; then the next holder of the append lock completes it."""
        cdef jlog_page *page = self.process.buffer.page
        while True:
            generation = jlog_load_acquire(&page.generation)
            if self.values is not None and page.state < self.generation:
                self.generation = generation
                return True
            incarnation = jlog_load_acquire(&page.incarnation)
            if incarnation & 1:
                return False
            segment, offset, _ = self.process.written_place()
            file = SegmentFile(self.process.path, segment, self.process.uuid)
            if jlog_load_acquire(&page.generation) != generation or jlog_load_acquire(&page.incarnation) != incarnation:
                continue
            state, start = {}, SEGMENT_HEADER_BYTES
            if self.values is not None and self.end[:2] == (segment, incarnation):
                state, start = self.values, self.end[2]  # reads only the blocks that came since
            self.values = file.state_between(start, offset, state)
            self.end = segment, incarnation, offset
            self.generation = generation
            return True

    cdef int check(self, NewRecords *new) except -1:
        """Raises RecordTooLarge if the state would become too large with the operation's entries. Otherwise notes the
        generation for which this is known."""
        if not self.read():
            return 0
        new.state_generation = self.generation
        live = {**self.values, **<dict> new.state}
        size = sum(len(key) + len(value) for key, value in live.items() if value is not None)
        if size > JLOG_STATE_BYTES_MAX:
            raise RecordTooLarge(f"the live state would have {size} bytes with its keys, and at most {JLOG_STATE_BYTES_MAX} "
                                 "are allowed; delete keys by storing None")
        return 0

    cdef void note(self, NewRecords *new) noexcept:
        """Adds the entries that the operation has stored, so that they need not be read back. Without memory they are read
        back: the operation itself has succeeded."""
        if self.values is None or self.generation != new.state_generation:
            return  # another thread has brought the values up to date meanwhile
        try:
            state = {**self.values, **<dict> new.state}
            values = {key: value for key, value in state.items() if value is not None}
            end = new.published.segment, new.published.incarnation, new.published.end
        except MemoryError:
            return
        self.values, self.end, self.generation = values, end, new.published.generation

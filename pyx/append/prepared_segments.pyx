"""Prepares segment files before the append lock is taken."""

import os

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from jlog._core.system.file cimport (
    close_file, create_at, identify, is_file, jlog_allocate, jlog_sync_data, jlog_write_at, plain)
from jlog._core.format.format cimport JLOG_NONE, jlog_block_header
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.process.operation cimport APPEND, NewRecords, Operation, Prepared, new_records
from jlog._core.process.process cimport WritingProcess

from jlog._core.segments.build import segment_start
from jlog.system.files import open_error


cdef extern from "<unistd.h>" nogil:
    int unlinkat(int directory, const char *name, int flags)


cdef class PreparedSegments:
    def __init__(self, WritingProcess process not None, LiveState state not None):
        self.process = process
        self.state = state

    def __dealloc__(self):
        self.drop_spare()

    cdef bytes next_name(self):
        """Returns a name for an unfinished file. If this process dies, the next owner of its slot removes the file."""
        self.count += 1
        return f"next.{self.process.locks.slot}.{self.count}".encode()

    cdef void take_spare(self, Operation *operation) noexcept:
        """Gives the spare to an operation that has no file yet."""
        if self.spare != NULL and not is_file(self.spare.fd, &self.spare.file):
            self.drop_spare()
        if operation.rolling.prepared == NULL and self.spare != NULL:
            operation.rolling.prepared, self.spare = self.spare, NULL

    cdef prepare(self, Operation *operation):
        """Creates the next segment's file for the operation: allocates it, and fills in all fields but those known only
        under the lock."""
        cdef Prepared *prepared
        cdef bytes name, start
        cdef uint64_t replaces = JLOG_NONE
        if operation.rolling.prepared != NULL:
            self.drop(operation.rolling.prepared)
            operation.rolling.prepared = NULL
        if not self.state.read():
            return
        generation = self.state.generation  # read now, because another thread may bring the state up to date meanwhile
        start = self.start_of(operation.rolling.wants_name, &replaces)
        name = self.next_name()
        prepared = <Prepared *> calloc(1, sizeof(Prepared))
        if prepared == NULL:
            raise MemoryError
        prepared.fd = -1
        try:
            prepared.fd = create_at(self.process.descriptors.directory, name)
            if prepared.fd < 0:
                raise open_error(-prepared.fd, os.path.join(self.process.path, name.decode()))
            identify(prepared.fd, &prepared.file)
            memcpy(prepared.name, <const char *> name, len(name) + 1)
            prepared.start = <uint8_t *> malloc(len(start))
            if prepared.start == NULL:
                raise MemoryError
            memcpy(prepared.start, <const uint8_t *> start, len(start))
            prepared.start_bytes = len(start)
            prepared.state_generation = generation
            prepared.replaces = replaces
            self.fill(prepared, operation)
        except BaseException:
            self.drop(prepared)
            raise
        operation.rolling.prepared = prepared

    cdef bytes start_of(self, bint replacing, uint64_t *replaces):
        """Returns the beginning of the file: the header and the state block. For a file that replaces the open segment both are
        complete."""
        cdef WritingProcess process = self.process
        cdef SegmentFile replaced
        state = self.state.values
        if not replacing:
            return segment_start(process.uuid, process.epoch, 0, None, state)
        replaced = SegmentFile(process.path, process.written_place()[0], process.uuid)
        replaces[0] = replaced.segment
        return segment_start(process.uuid, process.epoch, replaced.segment, previous_of(replaced), state,
                             durable_end=process.buffer.page.durable_end, floor_us=process.buffer.page.floor_us,
                             replacements=replaced.replacements + 1)

    cdef int fill(self, Prepared *prepared, Operation *operation) except -1:
        """Allocates the file, and writes the parts that are known before the lock is taken."""
        cdef NewRecords *new = new_records(operation)
        cdef uint64_t needed = prepared.start_bytes, wanted
        cdef bint wants_block = operation.rolling.wants_block, wants_name = operation.rolling.wants_name
        cdef int error
        if operation.kind == APPEND:
            needed += sizeof(jlog_block_header) + max(new.records.bytes, new.stored.bytes)
        wanted = max(needed, self.process.buffer.page.segment_bytes)
        with nogil:
            error = jlog_allocate(prepared.fd, 0, needed, wanted, &prepared.reserved_end)
            if error == 0 and wants_block:
                error = jlog_write_at(prepared.fd, new.stored.data, new.stored.bytes,
                                      prepared.start_bytes + sizeof(jlog_block_header))
            if error == 0 and wants_name:
                error = jlog_write_at(prepared.fd, prepared.start, prepared.start_bytes, 0)
                if error == 0:
                    error = jlog_sync_data(prepared.fd)
        prepared.has_block = wants_block
        if error != 0:
            raise OSError(error, f"{os.strerror(error)}, preparing the next segment; nothing of this call is readable; "
                                 "call it again", plain(self.process.path))
        return 0

    cdef int keep_or_drop(self, Operation *operation, bint keep) except -1:
        """Keeps a file that was prepared and not needed as the spare for the next roll, unless it holds this operation's
        records."""
        cdef Prepared *prepared = operation.rolling.prepared
        operation.rolling.prepared = NULL
        if prepared == NULL:
            return 0
        if self.spare == NULL and prepared.fd >= 0 and keep and not (
                prepared.has_block or prepared.spoiled or prepared.replaces != JLOG_NONE):
            self.spare = prepared
        else:
            self.drop(prepared)
        return 0

    cdef void drop(self, Prepared *prepared) noexcept:
        if prepared == NULL:
            return
        if prepared.fd >= 0:
            close_file(prepared.fd, &prepared.file)
            if self.process is not None and self.process.locks.file is not None and self.process.locks.file.is_open():
                unlinkat(self.process.descriptors.directory, prepared.name, 0)  # else the next owner of the slot removes it
        free(prepared.start)
        free(prepared)

    cdef void drop_spare(self) noexcept:
        self.drop(self.spare)
        self.spare = NULL


cdef tuple previous_of(SegmentFile file):
    """Returns the place where the segment before this one ends, as segment_start takes it."""
    if file.previous_segment == JLOG_NONE:
        return None
    return file.previous_segment, file.previous_end_offset, file.previous_end_sequence

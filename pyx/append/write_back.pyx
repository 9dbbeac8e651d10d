"""Closes the open block and writes it to its place in the segment, under the append lock or after its release.

All of it runs without the interpreter. The steps are those of tools/model.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from posix.fcntl cimport O_RDWR

from jlog._core.system.file cimport close_descriptor, jlog_write_two_at, open_at
from jlog._core.format.format cimport (
    JLOG_CODEC_LZ4, JLOG_CODEC_NONE, JLOG_KIND_RECORDS, JLOG_NAME_BYTES, JLOG_COMPRESS_BYTES_MIN, jlog_block_header,
    jlog_block_header_valid, jlog_crc32c, jlog_crc32c_shift, jlog_earliest_absolute_us, jlog_load64, jlog_segment_name)
from jlog._core.process.operation cimport (
    DAMAGED, DONE, NEEDS_COMPRESSION, NEEDS_WAIT, NEEDS_WRITE_BACK, Operation, CompressedBlock, failed)
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES, jlog_body, jlog_has_immutable, jlog_open_slot, jlog_page, jlog_slot, jlog_word_crc, jlog_word_raw,
    jlog_word_used)
from jlog._core.buffer.publish cimport jlog_now_or_floor_us, jlog_rotate
from jlog._core.buffer.room cimport jlog_block_capacity
from jlog._core.system.atomic cimport jlog_load32_acquire, jlog_pause, jlog_store_release, jlog_try_lock, jlog_unlock
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.segments.build cimport jlog_block_content, jlog_build_block_header, jlog_earliest_us, jlog_latest_us

cdef enum:
    DRAIN_TURNS = 4000  # about 100 us: the time to write a block of the default size


cdef int close_block(WritingProcess process, Operation *operation) noexcept nogil:
    """Writes the open block to its place in the segment, and opens the next one. There is nothing to do if it is empty. A block
    that is to be compressed is only marked as closed: this returns NEEDS_COMPRESSION, and the operation calls again with the
    compressed body."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef const uint8_t *stored = jlog_body(&process.buffer, slot.generation) + JLOG_BASE_BYTES
    cdef const CompressedBlock *compressed = &operation.closing.compressed
    cdef jlog_block_content content
    cdef jlog_block_header header
    cdef int error, fd, status = drain(process, operation)
    if status != DONE or jlog_word_used(slot.publish_word) == 0:
        return status
    if compressed.generation != page.generation and not is_plain(page, slot, operation):
        if page.closed == page.generation and operation.closing.marked_closed != page.generation:
            return NEEDS_WAIT
        page.closed = operation.closing.marked_closed = page.generation
        JLOG_FAILPOINT(b"close.intent")
        return NEEDS_COMPRESSION
    fd = process.descriptors.of_open(slot.segment)
    if fd < 0:
        return failed(operation, -fd, b"opening the newest segment")
    describe_open_block(process, slot, &content)
    if compressed.generation == page.generation and compressed.data != NULL:
        content.codec = JLOG_CODEC_LZ4
        stored, content.stored_bytes, content.stored_crc = compressed.data, compressed.size, compressed.crc
    build_header(process, slot, &content, &header)
    JLOG_FAILPOINT(b"close.before_write")
    error = jlog_write_two_at(fd, &header, sizeof(header), stored, header.stored_bytes, slot.offset)
    if error != 0:
        return failed(operation, error, b"writing a block")  # it stays open, and is written again
    JLOG_FAILPOINT(b"close.written")
    rotate(page, slot, &header)
    operation.rotated = True
    return DONE


cdef bint is_plain(jlog_page *page, const jlog_slot *slot, const Operation *operation) noexcept nogil:
    """Returns whether the open block goes into its segment uncompressed, for example because compression does not make it
    smaller."""
    if operation.closing.compressed.generation == page.generation:
        return operation.closing.compressed.data == NULL
    return (page.codec == JLOG_CODEC_NONE or operation.closing.plain
            or jlog_word_raw(slot.publish_word) < JLOG_COMPRESS_BYTES_MIN)


cdef void describe_open_block(WritingProcess process, const jlog_slot *slot, jlog_block_content *content) noexcept nogil:
    """Fills in the content of the open block, uncompressed."""
    cdef jlog_page *page = process.buffer.page
    cdef const uint8_t *body = jlog_body(&process.buffer, slot.generation)
    cdef uint64_t raw_bytes = jlog_word_raw(slot.publish_word)
    cdef uint64_t records = page.next_sequence - slot.first_sequence
    cdef int64_t absolute_us
    content.kind, content.codec, content.has_state = JLOG_KIND_RECORDS, JLOG_CODEC_NONE, False
    content.record_count = records
    content.first_sequence = slot.first_sequence
    content.raw_bytes = content.stored_bytes = raw_bytes
    # The running CRC covers the base time, the block's does not: crc(a + b) = shift(crc(a), len(b)) ^ crc(b).
    content.raw_crc = content.stored_crc = jlog_word_crc(slot.publish_word) ^ jlog_crc32c_shift(
        jlog_crc32c(0, body, JLOG_BASE_BYTES), raw_bytes)
    content.base_time_us = jlog_load64(body)
    content.max_timestamp_us = jlog_latest_us(records, page.explicit_count, page.explicit_max_us, page.floor_us)
    content.earliest_us = content.base_time_us
    if page.explicit_count != 0:
        absolute_us = jlog_earliest_absolute_us(body + JLOG_BASE_BYTES, raw_bytes)
        content.earliest_us = jlog_earliest_us(records, page.explicit_count, absolute_us, content.base_time_us)


cdef void build_header(WritingProcess process, const jlog_slot *slot, const jlog_block_content *content,
                       jlog_block_header *header) noexcept nogil:
    """Builds the header of the open block with this content."""
    cdef jlog_page *page = process.buffer.page
    jlog_build_block_header(header, content, jlog_now_or_floor_us(&process.buffer), page.durable_end, page.uuid, slot.segment,
                            slot.offset)


cdef void rotate(jlog_page *page, const jlog_slot *slot, const jlog_block_header *header) noexcept nogil:
    """Opens the next block after the one that was open."""
    cdef uint64_t end = slot.offset + sizeof(header[0]) + header.stored_bytes
    page.counters.blocks += 1
    count_block(page, header.record_count, header.raw_bytes, header.stored_bytes)
    jlog_rotate(page, slot.segment, end, page.next_sequence, slot.offset, jlog_block_capacity(page, end))


cdef void count_block(jlog_page *page, uint64_t records, uint64_t raw_bytes, uint64_t stored_bytes) noexcept nogil:
    page.counters.records += records
    page.counters.raw_bytes += raw_bytes
    page.counters.stored_bytes += stored_bytes


# --- Rotate, and write back afterwards ------------------------------------------------------------------------


cdef int defer_block(WritingProcess process, Operation *operation) noexcept nogil:
    """Closes the open block, and opens the next one. write_back() writes the immutable block to its place once the append lock
    is released, so that other writers can fill the next block meanwhile."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef jlog_block_content content
    cdef int status = drain(process, operation)
    if status != DONE:
        return status
    operation.closing.fd = process.descriptors.of_open(slot.segment)
    if operation.closing.fd < 0:
        return failed(operation, -operation.closing.fd, b"opening the newest segment")
    if not jlog_try_lock(&page.write_lock, process.buffer.owner):
        return NEEDS_WRITE_BACK
    describe_open_block(process, slot, &content)
    build_header(process, slot, &content, &page.immutable)
    jlog_store_release(&page.unwritten, page.generation)
    JLOG_FAILPOINT(b"close.deferred")
    operation.closing.writes_back = True
    rotate(page, slot, &page.immutable)
    operation.rotated = True
    return DONE


cdef int drain(WritingProcess process, Operation *operation) noexcept nogil:
    """Makes sure that there is no immutable block. If this operation has closed it, it writes it now. If another one has, it
    waits a moment, since most of that write has passed already. Then it returns NEEDS_WRITE_BACK, to wait without the append
    lock."""
    cdef jlog_page *page = process.buffer.page
    cdef int error, _turn
    if operation.closing.writes_back:
        error = write_back(process, operation)
        return DONE if error == 0 else failed(operation, error, b"writing a block")
    for _turn in range(DRAIN_TURNS):
        if not jlog_has_immutable(page):
            return DONE
        if jlog_load32_acquire(&page.write_lock) == 0:  # no process is writing it
            break
        jlog_pause()
    return NEEDS_WRITE_BACK


cdef int write_back(WritingProcess process, Operation *operation) noexcept nogil:
    """Writes the immutable block to its place, and releases the write lock, which the caller has. Returns 0 or errno. After an
    error the block is still the immutable block, and the next operation that needs it written tries again."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = &page.slots[page.unwritten & 1]
    cdef const uint8_t *body = jlog_body(&process.buffer, page.unwritten)
    cdef int error
    operation.closing.writes_back = False
    JLOG_FAILPOINT(b"close.before_write")
    error = jlog_write_two_at(operation.closing.fd, &page.immutable, sizeof(page.immutable), body + JLOG_BASE_BYTES,
                              page.immutable.stored_bytes, slot.offset)
    JLOG_FAILPOINT(b"close.written")
    if error == 0:
        jlog_store_release(&page.unwritten, 0)
    jlog_unlock(&page.write_lock)
    return error


cdef int write_back_for(WritingProcess process, Operation *operation) noexcept nogil:
    """Writes the immutable block in place of a writer that has failed or died. Releases the write lock that the caller has."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot
    cdef char name[JLOG_NAME_BYTES]
    cdef int error
    if not jlog_has_immutable(page):
        jlog_unlock(&page.write_lock)
        return DONE
    slot = &page.slots[page.unwritten & 1]
    if not jlog_block_header_valid(&page.immutable, page.uuid, slot.segment, slot.offset) \
            or page.immutable.stored_bytes != jlog_word_raw(slot.publish_word):
        jlog_unlock(&page.write_lock)
        operation.what = (b"the immutable block does not match its header; close all writers, and the next process to open the "
                          b"journal recovers it")
        return DAMAGED
    jlog_segment_name(name, slot.segment)
    error = process.descriptors.in_place()
    operation.closing.fd = -error if error != 0 else open_at(process.descriptors.directory, name, O_RDWR, 0)
    if operation.closing.fd < 0:
        jlog_unlock(&page.write_lock)
        return failed(operation, -operation.closing.fd, b"opening the newest segment")
    error = write_back(process, operation)
    close_descriptor(operation.closing.fd)
    return DONE if error == 0 else failed(operation, error, b"writing a block")

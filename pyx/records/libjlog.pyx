"""Creates records from the messages in libjlog's segments, without a Python object for each message that is not compressed."""

import sys
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jlog._core.records.encode cimport EncodedRecords
from jlog._core.format.format cimport JLOG_TAG_EXPLICIT, JLOG_VALUE_BYTES_MAX, jlog_encode_long, jlog_long_bytes

from jlog._core.format.lz4 import decompress

cdef extern from "records/libjlog.h" nogil:
    enum:
        JLOG_LIBJLOG_EMPTY_BYTES
        JLOG_LIBJLOG_RATIO

    struct jlog_layout:
        uint32_t magic
        uint32_t header_bytes
        int swapped

    struct jlog_message:
        uint32_t microseconds
        uint32_t bytes
        uint32_t stored_bytes

    struct jlog_chain:
        uint64_t end
        uint64_t count
        int64_t first_us
        int64_t last_us
        int ordered

    void jlog_load_message(const jlog_layout *layout, const uint8_t *at, jlog_message *message)
    bint jlog_is_message(const jlog_layout *layout, const uint8_t *at)
    int64_t jlog_message_time_us(const jlog_message *message)
    void jlog_follow_chain(const jlog_layout *layout, const uint8_t *data, uint64_t size, uint64_t at, uint64_t most,
                           jlog_chain *chain)

# How add() has ended.
MORE = 0  # the bytes that follow decide about the next message
FULL = 1  # the body has as many bytes as it may have
SUSPECT = 2  # no message begins here, or the next one does not begin where this one ends
SPOILED = 3  # this message cannot be decompressed
TOO_LARGE = 4  # this message has more bytes than a record may have

Added = namedtuple("Added", "end status messages last_us", module=__name__)
Header = namedtuple("Header", "is_message time_us microseconds message_bytes stored_bytes", module=__name__)
Chain = namedtuple("Chain", "end messages first_us last_us ordered", module=__name__)


cdef class Messages:
    """The messages of one journal of libjlog.

    magic: the number that each header begins with. big_endian: the byte order of its numbers. lz4: None: messages have headers
    of 16 bytes and are stored as they are; else they have headers of 20 bytes, and are compressed with LZ4 (True) or not
    (False).
    """

    cdef jlog_layout layout
    cdef bint lz4

    def __init__(self, uint32_t magic, bint big_endian, lz4):
        self.layout.magic = magic
        self.layout.header_bytes = 16 if lz4 is None else 20
        self.layout.swapped = big_endian != (sys.byteorder == "big")
        self.lz4 = bool(lz4)

    @property
    def header_bytes(self):
        return self.layout.header_bytes

    def header(self, bytes data not None, uint64_t at=0):
        """Returns the header in the data at this offset; None if the data ends before the header does."""
        cdef const uint8_t *bytes_of = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef uint64_t size = PyBytes_GET_SIZE(data)
        cdef jlog_message message
        if at > size or size - at < self.layout.header_bytes:
            return None
        jlog_load_message(&self.layout, bytes_of + at, &message)
        return Header(bool(jlog_is_message(&self.layout, bytes_of + at)), jlog_message_time_us(&message), message.microseconds,
                      message.bytes, message.stored_bytes)

    def chain(self, bytes data not None, uint64_t at, uint64_t most):
        """Follows at most so many messages by their lengths, as far as the data has whole ones."""
        cdef const uint8_t *bytes_of = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef uint64_t size = PyBytes_GET_SIZE(data)
        cdef jlog_chain chain
        if at >= size:
            return Chain(at, 0, 0, 0, True)
        with nogil:
            jlog_follow_chain(&self.layout, bytes_of, size, at, most, &chain)
        return Chain(chain.end, chain.count, chain.first_us, chain.last_us, bool(chain.ordered))

    def add(self, EncodedRecords body not None, bytes data not None, uint64_t at, uint64_t limit, *, bint is_end=False,
            uint64_t trusted=0) -> Added:
        """Adds the messages from this offset of the data to a body, until that has `limit` bytes.

        A message is added only if the next one begins where it ends, or if the data ends there and `is_end` says that the file
        does so too. Messages that begin before the offset `trusted` are added without that.
        """
        cdef const uint8_t *bytes_of = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef uint64_t size = PyBytes_GET_SIZE(data), next_at
        cdef uint64_t messages = 0
        cdef int64_t last_us = 0
        cdef jlog_message message
        cdef int status = 0
        body.take()
        try:
            while True:
                if at > size or size - at < self.layout.header_bytes:
                    status = 2 if is_end and at < size else 0
                    break
                if body.size >= limit:
                    status = 1
                    break
                if not jlog_is_message(&self.layout, bytes_of + at):
                    status = 2
                    break
                jlog_load_message(&self.layout, bytes_of + at, &message)
                next_at = at + self.layout.header_bytes + <uint64_t> message.stored_bytes
                if next_at > size:
                    status = 2 if is_end else 0
                    break
                if at >= trusted and not (is_end and next_at == size):
                    if size - next_at < self.layout.header_bytes:
                        status = 2 if is_end else 0
                        break
                    if not jlog_is_message(&self.layout, bytes_of + next_at):
                        status = 2
                        break
                if message.bytes > JLOG_VALUE_BYTES_MAX:
                    status = 4
                    break
                if not self.put(body, bytes_of + at + self.layout.header_bytes, &message):
                    status = 3
                    break
                last_us = jlog_message_time_us(&message)
                messages += 1
                at = next_at
        finally:
            body.taken = False
        return Added(at, status, messages, last_us)

    cdef bint put(self, EncodedRecords body, const uint8_t *stored, const jlog_message *message) except -1:
        """Adds one message. Returns False, and adds nothing, if it cannot be decompressed."""
        cdef size_t head = jlog_long_bytes(JLOG_TAG_EXPLICIT)
        cdef int64_t time_us = jlog_message_time_us(message)
        cdef uint8_t *to
        cdef bytes raw = None
        if self.layout.header_bytes != 16:
            if not self.lz4:
                # The null compressor stores 16 KiB of zeros for an empty message.
                if message.bytes != message.stored_bytes and not (
                        message.bytes == 0 and is_empty_message(stored, message.stored_bytes)):
                    return False
            else:
                # LZ4 cannot make more of these bytes: the memory that this takes is bounded by the size of the file.
                if <uint64_t> message.bytes > <uint64_t> message.stored_bytes * JLOG_LIBJLOG_RATIO:
                    return False
                try:
                    raw = decompress(stored[:message.stored_bytes], message.bytes)
                except ValueError:
                    return False
                stored = <const uint8_t *> PyBytes_AS_STRING(raw)
        to = body.extend(head + message.bytes)
        jlog_encode_long(to, JLOG_TAG_EXPLICIT, time_us, message.bytes, 0, 0)
        memcpy(to + head, stored, message.bytes)
        body.count += 1
        body.explicit_count += 1
        body.explicit_max_us = max(body.explicit_max_us, time_us)
        return True


cdef bint is_empty_message(const uint8_t *stored, uint32_t stored_bytes) noexcept nogil:
    cdef uint32_t i
    if stored_bytes != JLOG_LIBJLOG_EMPTY_BYTES:
        return False
    for i in range(stored_bytes):
        if stored[i] != 0:
            return False
    return True

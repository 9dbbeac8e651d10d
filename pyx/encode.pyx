"""Records encoded before the lock is taken: what does not go straight into the buffer. Records with the clock's time have
it at 0 microseconds from the base; under the lock that is set, or the base moved."""

from operator import index

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from jlog._core.format cimport (
    JLOG_CODEC_LZ4,
    JLOG_CODEC_NONE,
    JLOG_HEADERS_MAX,
    JLOG_LONG_BYTES,
    JLOG_NULL_BYTES,
    JLOG_PACKED_BYTES_MIN,
    JLOG_RAW_BYTES_MAX,
    JLOG_SHORT_BYTES,
    JLOG_SHORT_VALUE_MAX,
    JLOG_TAG_ABSOLUTE,
    JLOG_TAG_EXPLICIT,
    JLOG_TAG_KEY,
    JLOG_TAG_LONG,
    JLOG_TAG_NULL,
    JLOG_TAG_STATE,
    JLOG_VALUE_BYTES_MAX,
    jlog_crc32c,
    jlog_encode_short,
    jlog_short_head,
    jlog_store32,
    jlog_store64,
)
from jlog._core.member cimport Call

from jlog.errors import RecordTooLarge


_compress = None  # of the package lz4, which a journal without compression does not import


cdef bytes as_bytes(value):
    """The bytes of any contiguous bytes-like object, copied unless it is bytes already."""
    cdef Py_buffer view
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError("a value, key or header value is bytes, not str; encode it, for example with .encode()")
    if not PyObject_GetBuffer(value, &view, PyBUF_SIMPLE):
        try:
            if view.len > JLOG_VALUE_BYTES_MAX:
                raise RecordTooLarge(f"a value, a key or a header value has at most {JLOG_VALUE_BYTES_MAX} bytes (1 GiB), "
                                     f"not {view.len}")
            return PyBytes_FromStringAndSize(<char *> view.buf, view.len)
        finally:
            PyBuffer_Release(&view)


cdef class Body:
    """The body of a block, growing. Raises RecordTooLarge at 1.5 GiB."""

    def __cinit__(self):
        self.explicit_max_us = INT64_MIN

    def __dealloc__(self):
        free(self.data)

    @staticmethod
    def of_values(tuple values not None) -> Body:
        cdef Body body = Body()
        cdef size_t total = 0
        for value in values:
            total += JLOG_SHORT_BYTES + PyBytes_GET_SIZE(value)
        body.extend(total)
        body.size = 0
        for value in values:
            body.add_value(value)
        return body

    cdef uint8_t *extend(self, size_t more) except NULL:
        """Where `more` bytes can be written."""
        cdef size_t needed = self.size + more, room
        cdef void *larger
        cdef uint8_t *at
        if needed > JLOG_RAW_BYTES_MAX:
            raise RecordTooLarge(f"the records of one call take more than {JLOG_RAW_BYTES_MAX} bytes; write them in several")
        if needed > self.room or self.data == NULL:
            room = max(needed, min(self.room * 2, JLOG_RAW_BYTES_MAX)) + 64
            larger = realloc(self.data, room)
            if larger == NULL:
                raise MemoryError
            self.data = <uint8_t *> larger
            self.room = room
        at = self.data + self.size
        self.size = needed
        return at

    cdef int add_value(self, bytes value) except -1:
        cdef size_t size = PyBytes_GET_SIZE(value)
        cdef uint8_t *at
        if size > JLOG_SHORT_VALUE_MAX:
            self.add(value, None, None, None)
            return 0
        at = self.extend(JLOG_SHORT_BYTES + size)
        jlog_encode_short(at, jlog_short_head(0, size), <const uint8_t *> PyBytes_AS_STRING(value), size)
        self.count += 1
        return 0

    def add(self, value, key, headers, timestamp_us):
        """A record in the long form. `value` and `key` may be None, `headers` pairs of str and bytes or None."""
        cdef bytes value_bytes = None if value is None else as_bytes(value)
        cdef bytes key_bytes = None if key is None else as_bytes(key)
        cdef bytes headers_bytes = b"" if not headers else encode_headers(headers)
        cdef size_t value_size = 0 if value is None else len(value_bytes)
        cdef size_t key_size = 0 if key is None else len(key_bytes)
        cdef uint32_t tag = JLOG_TAG_LONG
        cdef int64_t time_us = 0
        if value_size > JLOG_VALUE_BYTES_MAX or key_size > JLOG_VALUE_BYTES_MAX or len(headers_bytes) > JLOG_VALUE_BYTES_MAX:
            raise RecordTooLarge(f"a value, a key and the headers of a record have at most {JLOG_VALUE_BYTES_MAX} bytes (1 GiB)"
                                 f", not {max(value_size, key_size, <size_t> len(headers_bytes))}")
        if value is None:
            tag |= JLOG_TAG_NULL
        if key is not None:
            tag |= JLOG_TAG_KEY
        if timestamp_us is not None:
            timestamp_us = index(timestamp_us)
            if not -1 << 63 <= timestamp_us < 1 << 63:
                raise ValueError(f"timestamp_us is microseconds since 1970 in 64 bits, not {timestamp_us}")
            time_us = timestamp_us
            tag |= JLOG_TAG_EXPLICIT | JLOG_TAG_ABSOLUTE
            self.explicit_count += 1
            self.explicit_max_us = max(self.explicit_max_us, time_us)
        self.put_long(tag, time_us, value_bytes, key_bytes, headers_bytes)
        self.count += 1

    cdef int put_long(self, uint32_t tag, int64_t time_us, bytes value, bytes key, bytes headers) except -1:
        cdef size_t value_size = 0 if value is None else len(value), key_size = 0 if key is None else len(key)
        cdef size_t absolute = 8 if tag & JLOG_TAG_ABSOLUTE else 0
        cdef uint8_t *at = self.extend(JLOG_LONG_BYTES + absolute + value_size + key_size + len(headers))
        jlog_store32(at, tag)
        jlog_store32(at + 4, 0)
        jlog_store32(at + 8, <uint32_t> value_size)
        jlog_store32(at + 12, <uint32_t> key_size)
        jlog_store32(at + 16, <uint32_t> len(headers))
        at += JLOG_LONG_BYTES
        if absolute:
            jlog_store64(at, time_us)
            at += 8
        if key_size:
            memcpy(at, PyBytes_AS_STRING(key), key_size)
        memcpy(at + key_size, PyBytes_AS_STRING(headers), len(headers))
        if value_size:
            memcpy(at + key_size + len(headers), PyBytes_AS_STRING(value), value_size)
        return 0

    def add_state(self, bytes key not None, value) -> None:
        """A state record: it has no sequence. A value of None deletes the key."""
        tag = JLOG_TAG_LONG | JLOG_TAG_STATE | JLOG_TAG_KEY | (JLOG_TAG_NULL if value is None else 0)
        self.put_long(tag, 0, value, key, b"")
        self.has_state = True

    cdef int describe(self, Call *call) except -1:
        """Makes it the call's records. It must outlive the call."""
        call.records = self.data
        call.record_bytes = self.size
        call.count = self.count
        call.explicit_count = self.explicit_count
        call.explicit_max_us = self.explicit_max_us
        call.has_state = self.has_state
        call.body = <void *> self
        return 0

    cdef int describe_direct(self, Call *call, int codec) except -1:
        """Makes it the block of its own that the call writes: compressed, where that makes it smaller."""
        self.describe(call)
        call.direct = True
        call.items = NULL
        with nogil:
            call.records_crc = jlog_crc32c(0, self.data, self.size)
        self.packed = None
        if codec == JLOG_CODEC_LZ4 and self.size >= JLOG_PACKED_BYTES_MIN:
            self.packed = pack(<const uint8_t[:self.size]> self.data)
        if self.packed is None:
            call.codec, call.stored, call.stored_bytes, call.stored_crc = (
                JLOG_CODEC_NONE, self.data, self.size, call.records_crc)
            return 0
        call.codec, call.stored, call.stored_bytes = (
            JLOG_CODEC_LZ4, <const uint8_t *> PyBytes_AS_STRING(self.packed), PyBytes_GET_SIZE(self.packed))
        with nogil:
            call.stored_crc = jlog_crc32c(0, call.stored, call.stored_bytes)
        return 0


cdef bytes pack(raw):
    """Compressed for a block; None where that is not smaller. The GIL is released meanwhile."""
    global _compress
    if _compress is None:
        from lz4.block import compress
        _compress = compress
    cdef bytes packed = _compress(raw, store_size=False)
    return packed if PyBytes_GET_SIZE(packed) < len(raw) else None


cdef bytes encode_headers(headers):
    parts = []
    count = 0
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, not {type(name).__name__}")
        name = name.encode()
        size = JLOG_NULL_BYTES
        if value is not None:
            value = as_bytes(value)
            size = len(value)
        parts += [len(name).to_bytes(4, "little"), int(size).to_bytes(4, "little"), name, value or b""]
        count += 1
    if count > JLOG_HEADERS_MAX:
        raise ValueError(f"a record has at most {JLOG_HEADERS_MAX} headers, not {count}")
    return b"".join(parts)

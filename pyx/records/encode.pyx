"""Encodes records before the lock is taken, unless they go straight into the buffer. A record with the clock's time is encoded
with 0 microseconds from the base time. Under the lock either this number or the base time is set."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from jlog._core.format.format cimport (
    JLOG_CODEC_LZ4, JLOG_CODEC_NONE, JLOG_HEADERS_MAX, JLOG_NULL_BYTES, JLOG_COMPRESS_BYTES_MIN, JLOG_RAW_BYTES_MAX,
    JLOG_SHORT_BYTES, JLOG_SHORT_VALUE_MAX, JLOG_TAG_EXPLICIT, JLOG_TAG_KEY, JLOG_TAG_NULL, JLOG_TAG_STATE,
    JLOG_VALUE_BYTES_MAX, jlog_crc32c, jlog_earliest_absolute_us, jlog_encode_long, jlog_encode_short, jlog_long_bytes,
    jlog_short_head, jlog_store32)
from jlog._core.format.lz4 cimport compressed_or_none
from jlog.errors import RecordTooLarge
from jlog.system.arguments import check_count

HEADERS = "pairs of str and bytes, or a dict of them"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


cdef bytes as_bytes(value, str what):
    """Returns the bytes of any contiguous bytes-like object of at most 1 GiB. Copies them unless they are bytes already. `what`
    is the argument's name, for errors."""
    cdef Py_buffer view
    if type(value) is bytes:
        if PyBytes_GET_SIZE(value) > JLOG_VALUE_BYTES_MAX:
            raise too_large(PyBytes_GET_SIZE(value))
        return value
    if isinstance(value, str):
        raise TypeError(f"{what} must be bytes, not str; encode it with .encode()")
    if not PyObject_CheckBuffer(value):
        raise TypeError(f"{what} must be bytes or another bytes-like object, not {type(value).__name__}")
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        if view.len > JLOG_VALUE_BYTES_MAX:
            raise too_large(view.len)
        return PyBytes_FromStringAndSize(<char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef iterator_of(str name, value, str what):
    """Iterates over an argument. `what`: what it must be, for errors."""
    if not isinstance(value, (str, bytes)):
        try:
            return iter(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be {what}, not {value!r:.100}")


cdef column_of(str name, column, str what):
    """Returns a list or tuple as it is, and any other iterable as a list."""
    return column if type(column) is list or type(column) is tuple else list(iterator_of(name, column, what))


cdef check_column(str name, column, Py_ssize_t count):
    """Returns a column that may be None, as column_of() does. Raises ValueError unless it has as many entries as values has."""
    if column is None:
        return None
    column = column_of(name, column, "None, or one entry for each value")
    if len(column) != count:
        raise ValueError(f"{name} has {len(column)} entries and values has {count}; give one for each value")
    return column


cdef tuple pair_of(value):
    try:
        first, second = value
        return first, second
    except (TypeError, ValueError):
        raise TypeError(f"headers must be {HEADERS}, not contain {value!r:.100}") from None


cdef too_large(size):
    return RecordTooLarge(
        f"a record's value, key and headers have at most {JLOG_VALUE_BYTES_MAX} bytes (1 GiB) each, not {size}")


cdef int64_t as_time_us(timestamp_us) except? -1:
    cdef int overflow = 0
    cdef int64_t time_us
    if type(timestamp_us) is not int:
        timestamp_us = check_count("timestamp_us", timestamp_us, INT64_MIN, INT64_MAX, what="microseconds since 1970")
    time_us = PyLong_AsLongLongAndOverflow(timestamp_us, &overflow)
    if overflow:
        raise ValueError(f"timestamp_us must be microseconds since 1970 that fit into 64 bits, not {timestamp_us}")
    return time_us


cdef object time_us_of(timestamp, timestamp_us):
    """Returns the microseconds since 1970 of an aware datetime. `timestamp_us` is what the caller gave beside it."""
    if timestamp_us is not None:
        raise TypeError("timestamp and timestamp_us both say when the record is from; give one of them")
    if not isinstance(timestamp, datetime):
        raise TypeError(f"timestamp must be an aware datetime, not {timestamp!r}; timestamp_us takes microseconds since 1970")
    if timestamp.utcoffset() is None:
        raise ValueError(f"the timestamp {timestamp!r} has no time zone; use an aware datetime, for example "
                         "datetime.now(timezone.utc)")
    return (timestamp - EPOCH) // timedelta(microseconds=1)


cdef class EncodedRecords:
    """A body, to gather a batch bit by bit. Records are encoded at once, so it takes only the memory of their bytes. Raises
    RecordTooLarge if it would have more than 1.5 GiB."""

    def __cinit__(self):
        self.explicit_max_us = INT64_MIN

    def __dealloc__(self):
        free(self.data)

    @staticmethod
    def of_values(tuple values not None) -> EncodedRecords:
        cdef EncodedRecords body = EncodedRecords()
        cdef size_t total = 0
        for value in values:
            total += JLOG_SHORT_BYTES + PyBytes_GET_SIZE(value)
        body.reserve(total)
        for value in values:
            body.add(value, None, None, None)
        return body

    cdef int take(self) except -1:
        """Claims the body for one call that adds to it or appends it. Raises ValueError if it is claimed already: adding runs
        the caller's code, and appending releases the GIL, so another thread could use the same body meanwhile."""
        if self.taken:
            raise ValueError("this body was already appended, or another call uses it; create another EncodedRecords")
        self.taken = True
        return 0

    cdef int reserve(self, size_t more) except -1:
        """Makes room for `more` bytes."""
        cdef size_t needed = self.size + more, room
        cdef void *larger
        if needed > JLOG_RAW_BYTES_MAX:
            raise RecordTooLarge(f"the records of one call take more than {JLOG_RAW_BYTES_MAX} bytes; write them in several")
        if needed > self.room or self.data == NULL:
            room = max(needed, min(self.room * 2, JLOG_RAW_BYTES_MAX)) + 64
            larger = realloc(self.data, room)
            if larger == NULL:
                raise MemoryError
            self.data = <uint8_t *> larger
            self.room = room
        return 0

    cdef int lend(self, jlog_encoded *to) except -1:
        """Lends the memory of the body to an encoder in C. take_back() follows, and nothing comes in between."""
        to.data, to.size, to.room = self.data, self.size, min(self.room, JLOG_RAW_BYTES_MAX)
        to.explicit_count, to.explicit_max_us = self.explicit_count, self.explicit_max_us
        return 0

    cdef int take_back(self, const jlog_encoded *to, uint64_t count) except -1:
        """Takes what the encoder has written: `count` records."""
        self.size, self.explicit_count, self.explicit_max_us = to.size, to.explicit_count, to.explicit_max_us
        self.count += count
        return 0

    cdef uint8_t *extend(self, size_t more) except NULL:
        """Returns the address where `more` bytes can be written. They belong to the body from now on."""
        self.reserve(more)
        self.size += more
        return self.data + self.size - more

    cdef uint32_t append(self, bytes piece) except? 0xFFFFFFFF:
        cdef size_t size = PyBytes_GET_SIZE(piece)
        memcpy(self.extend(size), PyBytes_AS_STRING(piece), size)
        return <uint32_t> size

    cdef int add(self, value, key, headers, timestamp_us) except -1:
        """Adds a record. value: bytes-like or None. key: bytes-like or None. headers: pairs of str and bytes-like or
        None, or a mapping of them."""
        cdef int64_t time_us = 0
        cdef uint32_t tag = 0
        cdef size_t size
        if value is not None:
            value = as_bytes(value, "value")
        if timestamp_us is not None:
            time_us = as_time_us(timestamp_us)
            tag = JLOG_TAG_EXPLICIT
            self.explicit_count += 1
            self.explicit_max_us = max(self.explicit_max_us, time_us)
        elif key is None and not headers and value is not None and PyBytes_GET_SIZE(value) <= JLOG_SHORT_VALUE_MAX:
            size = PyBytes_GET_SIZE(value)
            jlog_encode_short(self.extend(JLOG_SHORT_BYTES + size), jlog_short_head(0, size),
                              <const uint8_t *> PyBytes_AS_STRING(value), size)
            self.count += 1
            return 0
        self.put_long(tag, time_us, value, None if key is None else as_bytes(key, "key"), headers)
        self.count += 1
        return 0

    def add_columns(self, values not None, keys, headers, timestamps_us) -> None:
        """Adds a record for each value. All columns but the values may be None. If one record is refused, none is added. Raises
        ValueError for columns of unequal length."""
        self.take()
        size, count, explicit_count = self.size, self.count, self.explicit_count
        cdef int64_t explicit_max_us = self.explicit_max_us
        cdef Py_ssize_t i = 0
        try:
            values = column_of("values", values, "an iterable of values")
            keys, headers, timestamps_us = [check_column(name, column, len(values)) for name, column in
                                            (("keys", keys), ("headers", headers), ("timestamps_us", timestamps_us))]
            for value in values:
                self.add(value, None if keys is None else keys[i], None if headers is None else headers[i],
                         None if timestamps_us is None else timestamps_us[i])
                i += 1
        except BaseException:
            self.size, self.count = size, count
            self.explicit_count, self.explicit_max_us = explicit_count, explicit_max_us
            raise
        finally:
            self.taken = False

    cdef int put_long(self, uint32_t tag, int64_t time_us, bytes value, bytes key, headers) except -1:
        cdef size_t start = self.size
        cdef uint32_t value_bytes = 0, key_bytes = 0, headers_bytes = 0
        self.extend(jlog_long_bytes(tag))
        if key is not None:
            tag |= JLOG_TAG_KEY
            key_bytes = self.append(key)
        if headers:
            headers_bytes = self.append_headers(headers)
        if value is None:
            tag |= JLOG_TAG_NULL
        else:
            value_bytes = self.append(value)
        jlog_encode_long(self.data + start, tag, time_us, value_bytes, key_bytes, headers_bytes)
        return 0

    cdef uint32_t append_headers(self, headers) except? 0xFFFFFFFF:
        cdef size_t start = self.size
        cdef Py_ssize_t name_bytes
        cdef const char *text
        cdef uint8_t *at
        cdef int count = 0
        for pair in headers.items() if isinstance(headers, Mapping) else iterator_of("headers", headers, HEADERS):
            name, value = <tuple> pair if type(pair) is tuple and len(<tuple> pair) == 2 else pair_of(pair)
            if not isinstance(name, str):
                raise TypeError(f"headers: a header's name must be str, not {type(name).__name__}")
            if count == JLOG_HEADERS_MAX:
                raise ValueError(f"a record has at most {JLOG_HEADERS_MAX} headers")
            count += 1
            if value is not None:
                value = as_bytes(value, "the value of a header")
            text = PyUnicode_AsUTF8AndSize(name, &name_bytes)
            at = self.extend(8 + name_bytes)
            jlog_store32(at, <uint32_t> name_bytes)
            jlog_store32(at + 4, JLOG_NULL_BYTES if value is None else <uint32_t> PyBytes_GET_SIZE(value))
            memcpy(at + 8, text, name_bytes)
            if value is not None:
                self.append(value)
        if self.size - start > JLOG_VALUE_BYTES_MAX:
            raise too_large(self.size - start)
        return <uint32_t> (self.size - start)

    cdef int add_state(self, bytes key, bytes value) except -1:
        """Adds a state record, which has no sequence. A value of None deletes the key."""
        self.put_long(JLOG_TAG_STATE, 0, value, key, None)
        self.has_state = True
        return 0

    cdef int describe(self, Records *records) except -1:
        """Fills in `records`, which then points into the body. The body must live longer than `records`."""
        records.data = self.data
        records.bytes = self.size
        records.count = self.count
        records.explicit_count = self.explicit_count
        records.explicit_max_us = self.explicit_max_us
        records.has_state = self.has_state
        return 0

    cdef int store(self, int codec, Records *records, StoredBody *stored) except -1:
        """Fills in `stored`, the body as a block of its own holds it: compressed, if that makes it smaller."""
        self.describe(records)
        with nogil:
            records.crc = jlog_crc32c(0, self.data, self.size)
            records.earliest_absolute_us = INT64_MAX
            if self.explicit_count != 0:
                records.earliest_absolute_us = jlog_earliest_absolute_us(self.data, self.size)
        self.compressed = None
        if codec == JLOG_CODEC_LZ4 and self.size >= JLOG_COMPRESS_BYTES_MIN:
            self.compressed = compressed_or_none(PyMemoryView_FromMemory(<char *> self.data, self.size, PyBUF_READ))
        if self.compressed is None:
            stored.codec, stored.data, stored.bytes, stored.crc = JLOG_CODEC_NONE, self.data, self.size, records.crc
            return 0
        stored.codec, stored.data, stored.bytes = (
            JLOG_CODEC_LZ4, <const uint8_t *> PyBytes_AS_STRING(self.compressed), PyBytes_GET_SIZE(self.compressed))
        with nogil:
            stored.crc = jlog_crc32c(0, stored.data, stored.bytes)
        return 0

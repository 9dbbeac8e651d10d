from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "records/encoded.h" nogil:
    enum:
        JLOG_ENCODE_DONE
        JLOG_ENCODE_NO_ROOM
        JLOG_ENCODE_OUTSIDE
        JLOG_ENCODE_TOO_LARGE
        JLOG_ENCODE_NULL_HEADER
        JLOG_ENCODE_NOT_UTF8
        JLOG_ENCODE_TOO_MANY_HEADERS
        JLOG_ENCODE_TIME_OUT_OF_RANGE

    struct jlog_encoded:
        uint8_t *data
        size_t size
        size_t room
        uint64_t explicit_count
        int64_t explicit_max_us


# Records, encoded as in a body. A record with the clock's time has 0 microseconds from the base time.
cdef struct Records:
    const uint8_t *data
    uint64_t bytes
    uint64_t count
    uint64_t explicit_count  # records whose caller gave the time
    int64_t explicit_max_us  # the latest of the times that callers gave
    uint32_t crc  # set by store(), for a block of their own
    int64_t earliest_absolute_us  # likewise
    bint has_state

# A block's body as it goes into the file.
cdef struct StoredBody:
    const uint8_t *data  # NULL until the records are known to become a block of their own
    uint64_t bytes
    uint32_t crc
    uint8_t codec

cdef bytes as_bytes(value, str what)
cdef too_large(size)
cdef object time_us_of(timestamp, timestamp_us)
cdef column_of(str name, column, str what)
cdef iterator_of(str name, value, str what)

cdef class EncodedRecords:
    cdef uint8_t *data
    cdef size_t size
    cdef size_t room
    cdef uint64_t count
    cdef uint64_t explicit_count
    cdef int64_t explicit_max_us
    cdef bint has_state
    cdef bint taken
    cdef bytes compressed

    cdef int take(self) except -1
    cdef int lend(self, jlog_encoded *to) except -1
    cdef int take_back(self, const jlog_encoded *to, uint64_t count) except -1
    cdef int add_state(self, bytes key, bytes value) except -1
    cdef int reserve(self, size_t more) except -1
    cdef uint8_t *extend(self, size_t more) except NULL
    cdef uint32_t append(self, bytes piece) except? 0xFFFFFFFF
    cdef int add(self, value, key, headers, timestamp_us) except -1
    cdef int put_long(self, uint32_t tag, int64_t time_us, bytes value, bytes key, headers) except -1
    cdef uint32_t append_headers(self, headers) except? 0xFFFFFFFF
    cdef int describe(self, Records *records) except -1
    cdef int store(self, int codec, Records *records, StoredBody *stored) except -1

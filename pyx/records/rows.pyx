"""Encodes Arrow arrays as records in C, without a Python object for each record.

The buffers of pyarrow are read by their addresses. This module trusts the sizes of the buffers, and the length and the offset
that each array states. It does not trust the contents of the buffers.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from jlog._core.records.encode cimport (
    JLOG_ENCODE_DONE,
    JLOG_ENCODE_NO_ROOM,
    JLOG_ENCODE_NOT_UTF8,
    JLOG_ENCODE_NULL_HEADER,
    JLOG_ENCODE_OUTSIDE,
    JLOG_ENCODE_TIME_OUT_OF_RANGE,
    JLOG_ENCODE_TOO_LARGE,
    JLOG_ENCODE_TOO_MANY_HEADERS,
    EncodedRecords,
    jlog_encoded,
)
from jlog._core.format.format cimport JLOG_HEADERS_MAX, JLOG_RAW_BYTES_MAX, JLOG_SHORT_BYTES, JLOG_VALUE_BYTES_MAX

from jlog._core.records.columns import import_pyarrow, schema
from jlog.errors import RecordTooLarge

cdef enum:
    HOLD_GIL_BYTES = 256 << 10  # a smaller copy is over before another thread could take the GIL

cdef dict UNITS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}  # to microseconds: factor, divisor


cdef EncodedRecords body_of_arrow(data):
    """Returns a body with the records of a pyarrow array, record batch or table."""
    cdef EncodedRecords body = EncodedRecords()
    for columns, count in pieces(data):
        if count:
            add_rows(body, columns, count)
    return body


def pieces(data):
    """Yields ({name of a column: array}, number of rows) for each contiguous part of the data."""
    pyarrow = import_pyarrow()
    if isinstance(data, pyarrow.ChunkedArray):
        for chunk in data.chunks:
            yield {"value": chunk}, len(chunk)
    elif isinstance(data, pyarrow.Array):
        yield {"value": data}, len(data)
    elif isinstance(data, (pyarrow.RecordBatch, pyarrow.Table)):
        check_names(data.schema.names)
        for batch in [data] if isinstance(data, pyarrow.RecordBatch) else data.to_batches():
            yield dict(zip(batch.schema.names, batch.columns)), batch.num_rows
    else:
        raise TypeError("extend_arrow takes a pyarrow Array, ChunkedArray, RecordBatch or Table, "
                        f"not {type(data).__module__}.{type(data).__qualname__}; pyarrow.table(...) converts most things")


def check_names(names):
    known = schema().names
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValueError(f"a record does not have the column {', '.join(unknown)}; leave it out: the columns are "
                         f"{', '.join(known)}")
    if "value" not in names:
        raise ValueError("there is no column value; only key, headers and timestamp may be left out")
    if len(set(names)) != len(names):
        raise ValueError(f"a column occurs twice: {', '.join(names)}")


cdef int add_rows(EncodedRecords body, dict columns, int64_t count) except -1:
    cdef jlog_rows rows
    cdef jlog_encoded to
    cdef int64_t row = 0, done, span
    cdef int status = JLOG_ENCODE_NO_ROOM
    memset(&rows, 0, sizeof(rows))
    look_at(&rows, columns, count)
    span = jlog_arrow_span(&rows.value, count) + count * JLOG_SHORT_BYTES
    body.reserve(span if rows.value.validity == NULL else min(span, JLOG_RAW_BYTES_MAX - body.size))
    while status == JLOG_ENCODE_NO_ROOM:
        body.lend(&to)
        done = row
        if to.room < HOLD_GIL_BYTES:
            status = jlog_put_rows(&to, &rows, &row, count)
        else:
            with nogil:
                status = jlog_put_rows(&to, &rows, &row, count)
        body.take_back(&to, row - done)
        if status == JLOG_ENCODE_NO_ROOM:
            body.reserve(body.room - body.size + 1)
    if status != JLOG_ENCODE_DONE:
        raise_refusal(status, body.count)
    return 0


cdef int raise_refusal(int status, row) except -1:
    if status == JLOG_ENCODE_TOO_LARGE:
        raise RecordTooLarge(f"row {row}: a value, a key, and the headers of a record together, have at most "
                             f"{JLOG_VALUE_BYTES_MAX} bytes (1 GiB)")
    raise ValueError(f"row {row}: " + {
        JLOG_ENCODE_OUTSIDE: "an offset points outside its buffer; validate(full=True) lists what else is wrong",
        JLOG_ENCODE_NULL_HEADER: "a header, or its key, is null",
        JLOG_ENCODE_NOT_UTF8: "a header's key is not UTF-8",
        JLOG_ENCODE_TOO_MANY_HEADERS: f"a record has at most {JLOG_HEADERS_MAX} headers",
        JLOG_ENCODE_TIME_OUT_OF_RANGE: "the timestamp in microseconds does not fit into 64 bits",
    }[status])


# --- Checking the arrays ----------------------------------------------------------------------------------------


cdef int look_at(jlog_rows *rows, dict columns, count) except -1:
    for name, array in columns.items():
        array.validate()
        if len(array) != count:
            raise ValueError(f"{name} has {len(array)} rows and the batch has {count}")
    look_at_bytes(&rows.value, "value", columns["value"])
    if "key" in columns:
        look_at_bytes(&rows.key, "key", columns["key"])
    if "headers" in columns:
        look_at_headers(rows, columns["headers"])
    if "timestamp" in columns:
        look_at_times(&rows.timestamp, columns["timestamp"])
    return 0


cdef int look_at_bytes(jlog_arrow *to, name, array) except -1:
    types = import_pyarrow().types
    if not (types.is_binary(array.type) or types.is_string(array.type) or types.is_large_binary(array.type)
            or types.is_large_string(array.type)):
        raise TypeError(f"{name} must be binary, large_binary, string or large_string, not {array.type}; cast it")
    data = array.buffers()[2]
    to.wide = types.is_large_binary(array.type) or types.is_large_string(array.type)
    to.size = 0 if data is None else data.size
    to.data = address(name, data, to.size)
    return look_at_offsets(to, name, array)


cdef int look_at_headers(jlog_rows *rows, array) except -1:
    types = import_pyarrow().types
    wide = types.is_large_list(array.type)
    header = array.type.value_type if wide or types.is_list(array.type) else None
    if header is None or not types.is_struct(header) or sorted(field.name for field in header) != ["key", "value"] or not (
            types.is_string(header.field("key").type) or types.is_large_string(header.field("key").type)):
        raise TypeError(f"headers must be list<struct<key: string, value: binary>>, not {array.type}; cast them")
    entries = array.values
    rows.headers.wide = wide
    rows.headers.size = len(entries)
    look_at_offsets(&rows.headers, "headers", array)
    rows.header_validity = look_at_validity("headers", entries)
    rows.header_start = entries.offset
    for to_name in ("key", "value"):
        field = entries.field(to_name)
        if len(field) < len(entries):
            raise ValueError(f"the headers' {to_name} has {len(field)} entries, not {len(entries)}")
        look_at_bytes(&rows.name if to_name == "key" else &rows.header_value, f"the headers' {to_name}", field)
    return 0


cdef int look_at_times(jlog_arrow_times *to, array) except -1:
    if not import_pyarrow().types.is_timestamp(array.type):
        raise TypeError(f"timestamp must be a timestamp with a time zone, not {array.type}; cast it")
    if array.type.tz is None:
        raise ValueError(f"{array.type} has no time zone; if it is UTC, cast it to pyarrow.timestamp({array.type.unit!r}, "
                         "'UTC')")
    to.multiply, to.divide = UNITS[array.type.unit]
    to.validity = look_at_validity("timestamp", array)
    to.start = array.offset
    to.data = address("timestamp", array.buffers()[1], 8 * (array.offset + len(array)))
    return 0


cdef int look_at_offsets(jlog_arrow *to, name, array) except -1:
    to.validity = look_at_validity(name, array)
    to.start = array.offset
    if len(array):
        to.offsets = address(name, array.buffers()[1], (8 if to.wide else 4) * (array.offset + len(array) + 1))
    return 0


cdef const uint8_t *look_at_validity(name, array) except? NULL:
    if array.offset < 0 or len(array) < 0:
        raise ValueError(f"{name} begins at {array.offset} and has {len(array)} rows")
    validity = array.buffers()[0]
    return NULL if validity is None else address(name, validity, (array.offset + len(array) + 7) // 8)


cdef const uint8_t *address(name, buffer, needed) except? NULL:
    """Returns the address of a buffer, which must have at least `needed` bytes."""
    if needed == 0:
        return b""
    if buffer is None or buffer.size < needed or not buffer.is_cpu:
        raise ValueError(f"{name}: its array needs a buffer of {needed} bytes in memory, but has "
                         f"{'none' if buffer is None else buffer.size if buffer.is_cpu else 'one on a device'}")
    return <const uint8_t *> <size_t> buffer.address

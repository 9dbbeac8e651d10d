"""Encodes Arrow arrays as records in C, without a Python object for each record.

The arrays come through the Arrow C data interface, whose producer answers for what an array states: its length, and that each
buffer has what this length needs. This module does not trust the contents of the buffers. Arrays of pyarrow, which can be built
of any buffers, are checked by pyarrow before.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from jlog._core.records.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from jlog._core.records.encode cimport (
    JLOG_ENCODE_DONE, JLOG_ENCODE_NO_ROOM, JLOG_ENCODE_NOT_UTF8, JLOG_ENCODE_NULL_HEADER, JLOG_ENCODE_OUTSIDE,
    JLOG_ENCODE_TIME_OUT_OF_RANGE, JLOG_ENCODE_TOO_LARGE, JLOG_ENCODE_TOO_MANY_HEADERS, EncodedRecords, jlog_encoded)
from jlog._core.format.format cimport (
    JLOG_HEADERS_MAX, JLOG_RAW_BYTES_MAX, JLOG_SHORT_BYTES, JLOG_VALUE_BYTES_MAX, jlog_load32, jlog_load64)

from jlog._core.records.arrow import BYTES, FIELDS, LISTS, TEXTS
from jlog.errors import RecordTooLarge

cdef enum:
    HOLD_GIL_BYTES = 256 << 10  # a smaller copy is over before another thread could take the GIL

cdef dict UNITS = {"s": (1_000_000, 1), "m": (1_000, 1), "u": (1, 1), "n": (1, 1_000)}  # to microseconds: factor, divisor
cdef dict UNIT_NAMES = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
cdef dict INDEX_BYTES = {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "l": 8, "L": 8}
cdef dict TYPE_NAMES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32", "l": "int64",
    "L": "uint64", "f": "float", "g": "double", "z": "binary", "Z": "large_binary", "vz": "binary_view", "u": "string",
    "U": "large_string", "vu": "string_view", "+s": "struct", "+l": "list", "+L": "large_list", "+m": "map"}


cdef EncodedRecords body_of_arrow(data):
    """Returns a body with the records of an object that has __arrow_c_stream__ or __arrow_c_array__."""
    cdef EncodedRecords body = EncodedRecords()
    if type(data).__module__.startswith("pyarrow.") and hasattr(data, "validate"):
        data.validate()
    if hasattr(data, "__arrow_c_stream__"):
        add_stream(body, data.__arrow_c_stream__())
    elif hasattr(data, "__arrow_c_array__"):
        schema, array = data.__arrow_c_array__()
        add_rows(body, <ArrowSchema *> PyCapsule_GetPointer(schema, "arrow_schema"),
                 <ArrowArray *> PyCapsule_GetPointer(array, "arrow_array"))
    else:
        raise TypeError("extend_arrow takes Arrow data, an object with __arrow_c_stream__ or __arrow_c_array__, not "
                        f"{type(data).__module__}.{type(data).__qualname__}; pyarrow.table(...) and polars.DataFrame(...) "
                        "convert most things")
    return body


cdef int add_stream(EncodedRecords body, capsule) except -1:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef int code
    memset(&schema, 0, sizeof(schema))
    memset(&array, 0, sizeof(array))
    with nogil:
        code = stream.get_schema(stream, &schema)
    check_code(stream, code)
    try:
        check_columns(&schema)
        while True:
            with nogil:  # its producer may need the GIL in another thread
                code = stream.get_next(stream, &array)
            check_code(stream, code)
            if array.release == NULL:
                return 0
            try:
                add_rows(body, &schema, &array)
            finally:
                array.release(&array)
    finally:
        schema.release(&schema)


cdef int check_code(ArrowArrayStream *stream, int code) except -1:
    cdef const char *text
    if code == 0:
        return 0
    text = stream.get_last_error(stream)
    said = "it gives no reason" if text == NULL else text.decode("utf-8", "replace")
    raise OSError(code, f"the Arrow stream failed: {said}")


cdef int add_rows(EncodedRecords body, const ArrowSchema *schema, const ArrowArray *array) except -1:
    cdef jlog_rows rows
    cdef jlog_encoded to
    cdef int64_t row = 0, done, span, count = array.length
    cdef int status = JLOG_ENCODE_NO_ROOM
    cdef list flat = []
    if count == 0:
        return 0
    memset(&rows, 0, sizeof(rows))
    look_at(&rows, schema, array, body.count, flat)
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
        raise RecordTooLarge(
            f"row {row}: a record's value, key and headers have at most {JLOG_VALUE_BYTES_MAX} bytes (1 GiB) each")
    raise ValueError(f"row {row}: " + {
        JLOG_ENCODE_OUTSIDE: "an offset points outside its buffer; validate(full=True) lists what else is wrong",
        JLOG_ENCODE_NULL_HEADER: "a header, or its key, is null",
        JLOG_ENCODE_NOT_UTF8: "a header's key is not UTF-8",
        JLOG_ENCODE_TOO_MANY_HEADERS: f"a record has at most {JLOG_HEADERS_MAX} headers",
        JLOG_ENCODE_TIME_OUT_OF_RANGE: "the timestamp in microseconds does not fit into 64 bits",
    }[status])


# --- Checking the arrays ----------------------------------------------------------------------------------------


cdef str format_of(const ArrowSchema *schema):
    return schema.format.decode()


cdef str type_name(const ArrowSchema *schema):
    format = format_of(schema)
    if schema.dictionary != NULL:
        return f"dictionary of {type_name(schema.dictionary)}"
    if format in LISTS and schema.n_children == 1:
        return f"{TYPE_NAMES[format]}<{type_name(schema.children[0])}>"
    if format == "+s":
        return "struct<%s>" % ", ".join([f"{schema.children[at].name.decode()}: {type_name(schema.children[at])}"
                                         for at in range(schema.n_children)])
    if format.startswith("ts"):
        return f"timestamp[{UNIT_NAMES.get(format[2], '?')}]"
    return TYPE_NAMES.get(format, f"{format!r} of the Arrow C data interface")


cdef int check_columns(const ArrowSchema *schema) except -1:
    if format_of(schema) != "+s" or schema.dictionary != NULL:
        return 0  # an array of values
    names = [schema.children[at].name.decode("utf-8", "replace") for at in range(schema.n_children)]
    unknown = sorted(set(names) - set(FIELDS))
    if unknown:
        raise ValueError(f"a record does not have the column {', '.join(unknown)}; leave it out: the columns are "
                         f"{', '.join(FIELDS)}")
    if "value" not in names:
        raise ValueError("there is no column value; only key, headers and timestamp may be left out")
    if len(set(names)) != len(names):
        raise ValueError(f"a column occurs twice: {', '.join(names)}")
    return 0


cdef int look_at(jlog_rows *rows, const ArrowSchema *schema, const ArrowArray *array, first_row, list flat) except -1:
    cdef const ArrowArray *column
    cdef int64_t at
    if format_of(schema) != "+s" or schema.dictionary != NULL:
        return look_at_bytes(&rows.value, "value", schema, array, array.offset, array.length, first_row, flat)
    check_columns(schema)
    if array.null_count != 0 and array.n_buffers and array.buffers[0] != NULL:
        raise ValueError("a whole row is null; leave it out")
    for at in range(schema.n_children):
        name, column = schema.children[at].name.decode(), array.children[at]
        if column.length < array.offset + array.length:
            raise ValueError(f"{name} has {column.length} rows and the batch has {array.offset + array.length}")
        look_at_column(rows, name, schema.children[at], column, array.offset + column.offset, array.length, first_row, flat)
    return 0


cdef int look_at_column(jlog_rows *rows, str name, const ArrowSchema *schema, const ArrowArray *array, int64_t start,
                        int64_t count, first_row, list flat) except -1:
    if name == "value":
        look_at_bytes(&rows.value, name, schema, array, start, count, first_row, flat)
    elif format_of(schema) == "n":
        pass  # a column of nulls that was given no other type
    elif name == "key":
        look_at_bytes(&rows.key, name, schema, array, start, count, first_row, flat)
    elif name == "headers":
        look_at_headers(rows, schema, array, start, count, first_row, flat)
    elif name == "timestamp":
        look_at_times(&rows.timestamp, schema, array, start)
    return 0


cdef int look_at_bytes(jlog_arrow *to, str name, const ArrowSchema *schema, const ArrowArray *array, int64_t start,
                       int64_t count, first_row, list flat) except -1:
    cdef const ArrowSchema *values = schema if schema.dictionary == NULL else schema.dictionary
    format = format_of(values)
    if format not in BYTES and format not in TEXTS:
        raise TypeError(f"{name} must be binary or string, each also as large or view, not {type_name(schema)}; cast it")
    if schema.dictionary != NULL or format[0] == "v":
        return flatten(to, name, schema, array, start, count, first_row, flat)
    return look_at_plain(to, name, format, array, start, count)


cdef int look_at_plain(jlog_arrow *to, str name, str format, const ArrowArray *array, int64_t start, int64_t count) except -1:
    to.validity = look_at_validity(array)
    to.start = start
    to.wide = format in ("Z", "U", "+L")
    to.offsets = <const uint8_t *> buffer(name, array, 1, count)
    if count:
        if to.wide:
            to.size = jlog_load64(to.offsets + 8 * (start + count))
        else:
            to.size = <int32_t> jlog_load32(to.offsets + 4 * (start + count))
        if format[0] != "+":
            to.data = <const uint8_t *> buffer(name, array, 2, to.size)
    return 0


cdef int flatten(jlog_arrow *to, str name, const ArrowSchema *schema, const ArrowArray *array, int64_t start, int64_t count,
                 first_row, list flat) except -1:
    """Copies the entries of views or of a dictionary to a plain array, whose memory `flat` holds."""
    cdef jlog_indirect found
    cdef const ArrowArray *values = array
    cdef int64_t row = 0, size = 0
    cdef int status
    cdef bytearray validity, offsets, data
    memset(&found, 0, sizeof(found))
    values_format = format_of(schema)
    if schema.dictionary != NULL:
        found.index_bytes, found.is_signed = INDEX_BYTES[values_format], values_format.islower()
        found.indices = <const uint8_t *> buffer(name, array, 1, count)
        found.validity, found.start = look_at_validity(array), start
        values, values_format = array.dictionary, format_of(schema.dictionary)
        found.count, start = values.length, values.offset
    if values_format[0] == "v":
        found.views = <const uint8_t *> buffer(name, values, 1, values.length)
        found.buffer_count = values.n_buffers - 3
        found.buffers = values.buffers + 2
        found.buffer_sizes = <const int64_t *> values.buffers[values.n_buffers - 1]
        found.plain.validity, found.plain.start = look_at_validity(values), start
    else:
        look_at_plain(&found.plain, name, values_format, values, start, values.length)
    with nogil:
        status = jlog_flatten(&found, &row, count, &size, NULL, NULL, NULL)
    if status == JLOG_ENCODE_DONE:
        validity, offsets, data = bytearray(count // 8 + 1), bytearray(8 * (count + 1)), bytearray(size + 1)
        flat.append((validity, offsets, data))
        to.validity, to.offsets, to.data = <uint8_t *> validity, <uint8_t *> offsets, <uint8_t *> data
        to.size, to.start, to.wide = size, 0, True
        with nogil:
            status = jlog_flatten(&found, &row, count, &size, <uint8_t *> to.validity, <uint8_t *> to.offsets,
                                  <uint8_t *> to.data)
    if status != JLOG_ENCODE_DONE:
        raise_refusal(status, first_row + row)
    return 0


cdef int look_at_headers(jlog_rows *rows, const ArrowSchema *schema, const ArrowArray *array, int64_t start, int64_t count,
                         first_row, list flat) except -1:
    cdef const ArrowSchema *header = NULL
    cdef const ArrowArray *entries
    cdef const ArrowArray *part
    cdef int64_t at
    if schema.dictionary == NULL and format_of(schema) in LISTS and schema.n_children == 1:
        header = schema.children[0]
    names = [] if header == NULL else [header.children[at].name.decode() for at in range(header.n_children)]
    if (header == NULL or format_of(header) != "+s" or sorted(names) != ["key", "value"]
            or not is_text(header.children[names.index("key")])):
        raise TypeError("headers must be list<struct<key: string, value: binary>> or a map, not "
                        f"{type_name(schema)}; cast them")
    entries = array.children[0]
    look_at_plain(&rows.headers, "headers", format_of(schema), array, start, count)
    rows.headers.size = entries.length
    rows.header_validity, rows.header_start = look_at_validity(entries), entries.offset
    for at in range(2):
        part = entries.children[at]
        if part.length < entries.offset + entries.length:
            raise ValueError(f"the headers' {names[at]} has {part.length} entries, not {entries.length}")
        look_at_bytes(&rows.name if names[at] == "key" else &rows.header_value, f"the headers' {names[at]}",
                      header.children[at], part, entries.offset + part.offset, entries.length, first_row, flat)
    return 0


cdef bint is_text(const ArrowSchema *schema) except -1:
    return format_of(schema if schema.dictionary == NULL else schema.dictionary) in TEXTS


cdef int look_at_times(jlog_arrow_times *to, const ArrowSchema *schema, const ArrowArray *array, int64_t start) except -1:
    format = format_of(schema)
    if schema.dictionary != NULL or not format.startswith("ts"):
        raise TypeError(f"timestamp must be a timestamp with a time zone, not {type_name(schema)}; cast it")
    if format.endswith(":"):
        raise ValueError(f"{type_name(schema)} has no time zone; if it is UTC, cast it to "
                         f"pyarrow.timestamp({UNIT_NAMES[format[2]]!r}, 'UTC')")
    to.multiply, to.divide = UNITS[format[2]]
    to.validity = look_at_validity(array)
    to.start = start
    to.data = <const uint8_t *> buffer("timestamp", array, 1, array.length)
    return 0


cdef const uint8_t *look_at_validity(const ArrowArray *array) noexcept:
    return NULL if array.null_count == 0 else <const uint8_t *> array.buffers[0]


cdef const void *buffer(str name, const ArrowArray *array, int at, int64_t needed) except? NULL:
    """Returns the address of a buffer, which may be missing only if nothing of it is needed."""
    if array.buffers[at] == NULL:
        if needed > 0:
            raise ValueError(f"{name}: its array lacks a buffer of data")
        return b""
    return array.buffers[at]

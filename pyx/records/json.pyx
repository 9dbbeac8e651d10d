"""Turns members of JSON objects into Arrow columns, without a Python object per value."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memset

cdef extern from "<locale.h>" nogil:
    ctypedef void *locale_t
    locale_t newlocale(int mask, const char *name, locale_t base)
    enum:
        LC_ALL_MASK

cdef extern from "records/json.h" nogil:
    enum jlog_json_type:
        JLOG_JSON_BOOL
        JLOG_JSON_INT64
        JLOG_JSON_DOUBLE
        JLOG_JSON_STRING

    struct jlog_json_field:
        const uint8_t *name
        size_t name_bytes
        jlog_json_type type
        uint8_t *validity
        uint8_t *data
        int32_t *offsets

    void jlog_json_columns(jlog_json_field *fields, size_t field_count, const uint8_t *data, const int32_t *offsets,
                           size_t count, uint8_t *scratch, locale_t c_locale)

TYPES = {"bool": JLOG_JSON_BOOL, "int64": JLOG_JSON_INT64, "double": JLOG_JSON_DOUBLE, "string": JLOG_JSON_STRING}
cdef locale_t _c_locale = newlocale(LC_ALL_MASK, b"C", NULL)  # numbers have a point in it, whatever the program has set


cdef uint8_t *address(bytearray memory) noexcept:
    return <uint8_t *> PyByteArray_AS_STRING(memory)


def json_columns(offsets not None, data not None, Py_ssize_t first, Py_ssize_t count, fields not None):
    """Returns (validity, offsets or None, data) of the Arrow column of each field: bytearrays, offsets for "string" alone. A
    row is null where the value is not a JSON object in UTF-8, lacks the member, or has one of another type.

    offsets, data: buffers of an Arrow array of type binary without nulls. Of its values, `count` from `first` on are read.
    fields: names and types, as TYPES has them; at least one.
    """
    cdef jlog_json_field *wanted
    cdef Py_buffer offsets_view, data_view
    cdef Py_ssize_t i, bytes_of_text, width = len(fields)
    cdef const int32_t *places
    cdef jlog_json_type kind
    cdef bytes name
    names = [name_of.encode() for name_of, _ in fields]
    scratch = bytearray(6 * max(map(len, names)) + 1)  # for names with escapes
    cdef uint8_t *name_room = address(scratch)
    memset(&offsets_view, 0, sizeof(Py_buffer))  # so that there is nothing to release
    memset(&data_view, 0, sizeof(Py_buffer))
    wanted = <jlog_json_field *> PyMem_Calloc(width, sizeof(jlog_json_field))
    try:
        if wanted == NULL:
            raise MemoryError
        PyObject_GetBuffer(offsets, &offsets_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(data, &data_view, PyBUF_SIMPLE)
        places = <const int32_t *> offsets_view.buf + first
        if first < 0 or count < 0 or offsets_view.len < <Py_ssize_t> ((first + count + 1) * sizeof(int32_t)) or not (
                0 <= places[0] <= places[count] <= data_view.len):
            raise ValueError(f"the buffers are too short for {count} values from {first} on")
        bytes_of_text = places[count] - places[0]
        found = []
        for i in range(width):
            kind, name = TYPES[fields[i][1]], names[i]
            validity, starts = bytearray((count + 7) // 8), None
            if kind == JLOG_JSON_STRING:
                starts = bytearray((count + 1) * sizeof(int32_t))
                column = PyByteArray_FromStringAndSize(NULL, bytes_of_text)
                wanted[i].offsets = <int32_t *> address(starts)
            else:
                column = bytearray(len(validity) if kind == JLOG_JSON_BOOL else 8 * count)
            wanted[i].name, wanted[i].name_bytes, wanted[i].type = name, len(name), kind
            wanted[i].validity, wanted[i].data = address(validity), address(column)
            found.append((validity, starts, column))
        with nogil:
            jlog_json_columns(wanted, width, <const uint8_t *> data_view.buf, places, count, name_room, _c_locale)
        for i in range(width):
            if wanted[i].offsets != NULL:
                PyByteArray_Resize(found[i][2], wanted[i].offsets[count])
        return found
    finally:
        PyMem_Free(wanted)
        PyBuffer_Release(&data_view)
        PyBuffer_Release(&offsets_view)

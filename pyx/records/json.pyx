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
    enum jlog_json_kind:
        JLOG_TOKEN_ESCAPED

    enum jlog_json_type:
        JLOG_JSON_BOOL
        JLOG_JSON_INT64
        JLOG_JSON_UINT64
        JLOG_JSON_DOUBLE
        JLOG_JSON_STRING
        JLOG_JSON_NUMBER
        JLOG_JSON_OBJECT
        JLOG_JSON_ARRAY

    struct jlog_json_token:
        jlog_json_kind kind
        const uint8_t *at
        size_t bytes

    struct jlog_json_field:
        const uint8_t *name
        size_t name_bytes
        jlog_json_type type
        uint8_t *validity
        uint8_t *data
        int32_t *offsets
        size_t room

    const uint8_t *jlog_json_space(const uint8_t *at, const uint8_t *end)
    const uint8_t *jlog_json_key(const uint8_t *at, const uint8_t *end, jlog_json_token *key)
    const uint8_t *jlog_json_value(const uint8_t *at, const uint8_t *end, jlog_json_token *token)
    size_t jlog_json_unescape(uint8_t *to, const jlog_json_token *token)
    bint jlog_utf8_valid(const uint8_t *text, size_t bytes)
    bint jlog_json_object(jlog_json_field *fields, size_t count, const uint8_t *at, const uint8_t *end, uint8_t *scratch)
    size_t jlog_json_need(const jlog_json_field *field, size_t row)
    size_t jlog_json_columns(jlog_json_field *fields, size_t field_count, const uint8_t *data, const int32_t *offsets,
                             size_t row, size_t count, bint is_text, uint8_t *scratch, locale_t c_locale)
    void jlog_json_items(jlog_json_field *field, const uint8_t *data, const int32_t *offsets, size_t count, int32_t *starts,
                         locale_t c_locale)

# "number", "object" and "array" are columns of their texts.
TYPES = {"bool": JLOG_JSON_BOOL, "int64": JLOG_JSON_INT64, "uint64": JLOG_JSON_UINT64, "double": JLOG_JSON_DOUBLE,
         "string": JLOG_JSON_STRING, "number": JLOG_JSON_NUMBER, "object": JLOG_JSON_OBJECT, "array": JLOG_JSON_ARRAY}
cdef locale_t _c_locale = newlocale(LC_ALL_MASK, b"C", NULL)  # numbers have a point in it, whatever the program has set


cdef uint8_t *address(bytearray memory) noexcept:
    return <uint8_t *> PyByteArray_AS_STRING(memory)


cdef class Texts:
    """The values of an Arrow array of type binary.

    offsets, data: its buffers. Of its values, `count` from `first` on are read; a null among them has no bytes.
    """

    cdef Py_buffer _offsets, _data
    cdef const int32_t *places
    cdef const uint8_t *data
    cdef Py_ssize_t count

    def __cinit__(self, offsets not None, data not None, Py_ssize_t first, Py_ssize_t count):
        PyObject_GetBuffer(offsets, &self._offsets, PyBUF_SIMPLE)
        PyObject_GetBuffer(data, &self._data, PyBUF_SIMPLE)
        self.places, self.data = <const int32_t *> self._offsets.buf + first, <const uint8_t *> self._data.buf
        self.count = count
        if first < 0 or count < 0 or self._offsets.len < <Py_ssize_t> ((first + count + 1) * sizeof(int32_t)) or not (
                0 <= self.places[0] <= self.places[count] <= self._data.len):
            raise ValueError(f"the buffers are too short for {count} values from {first} on")

    def __dealloc__(self):
        PyBuffer_Release(&self._data)
        PyBuffer_Release(&self._offsets)

    cdef Py_ssize_t bytes_of_text(self) noexcept nogil:
        return self.places[self.count] - self.places[0]


cdef tuple allocated(jlog_json_field *field, kind, Py_ssize_t rows, Py_ssize_t room):
    """Returns (validity, offsets or None, data) of an empty column, and has the field point to it.

    room: for texts, in bytes."""
    validity, offsets = bytearray((rows + 7) // 8), None
    field.type = TYPES[kind]
    if field.type >= JLOG_JSON_STRING:
        offsets, data = bytearray((rows + 1) * sizeof(int32_t)), PyByteArray_FromStringAndSize(NULL, room)
        field.offsets, field.room = <int32_t *> address(offsets), room
    else:
        data = bytearray(len(validity) if field.type == JLOG_JSON_BOOL else 8 * rows)
    field.validity, field.data = address(validity), address(data)
    return validity, offsets, data


cdef int grow(jlog_json_field *field, tuple column, Py_ssize_t row) except -1:
    """Gives a column of texts room for this row too, which has been found, and more for the next ones."""
    cdef size_t need = jlog_json_need(field, row)
    if need > field.room:
        field.room = need + need // 2
        PyByteArray_Resize(column[2], field.room)
        field.data = address(column[2])
    return 0


cdef int shorten(jlog_json_field *field, tuple column, Py_ssize_t rows) except -1:
    if field.offsets != NULL:
        PyByteArray_Resize(column[2], field.offsets[rows])
    return 0


def json_columns(Texts texts not None, fields not None):
    """Returns (validity, offsets or None, data) of the Arrow column of each field: bytearrays, offsets for texts alone. A row
    is null where the value is not a JSON object in UTF-8, lacks the member, or has one of another type.

    fields: names and types, as TYPES has them.
    """
    cdef Py_ssize_t i, row = 0, width = len(fields)
    cdef bytes name
    cdef bint is_text
    names = [name_of.encode() for name_of, _ in fields]
    scratch = bytearray(6 * max(map(len, names), default=0) + 1)  # for names with escapes
    cdef uint8_t *name_room = address(scratch)
    cdef jlog_json_field *wanted = <jlog_json_field *> PyMem_Calloc(width, sizeof(jlog_json_field))
    if wanted == NULL:
        raise MemoryError
    try:
        found = []
        # The texts of all columns together are no longer than the values.
        room = texts.bytes_of_text() // max(sum([TYPES[kind] >= JLOG_JSON_STRING for _, kind in fields]), 1)
        for i in range(width):
            name = names[i]
            wanted[i].name, wanted[i].name_bytes = name, len(name)
            found.append(allocated(&wanted[i], fields[i][1], texts.count, room))
        with nogil:
            is_text = jlog_utf8_valid(texts.data + texts.places[0], texts.bytes_of_text())
        while row < texts.count:
            with nogil:
                row = jlog_json_columns(wanted, width, texts.data, texts.places, row, texts.count, is_text, name_room,
                                        _c_locale)
            if row < texts.count:
                for i in range(width):
                    grow(&wanted[i], found[i], row)
        for i in range(width):
            shorten(&wanted[i], found[i], texts.count)
        return found
    finally:
        PyMem_Free(wanted)


def json_items(Texts texts not None, kind not None):
    """Returns the offsets of the lists, and the column of all their items: a bytearray, and what json_columns() has for one.

    texts: a column of the type "array". kind: the type of the items.
    """
    cdef jlog_json_field field
    memset(&field, 0, sizeof(field))
    starts = bytearray((texts.count + 1) * sizeof(int32_t))
    cdef int32_t *places = <int32_t *> address(starts)
    with nogil:
        jlog_json_items(NULL, texts.data, texts.places, texts.count, places, _c_locale)
    column = allocated(&field, kind, places[texts.count], texts.bytes_of_text())
    with nogil:
        jlog_json_items(&field, texts.data, texts.places, texts.count, places, _c_locale)
    shorten(&field, column, places[texts.count])
    return starts, column


def json_members(Texts texts not None, names not None):
    """Returns for each value a dict of its other members than `names`, with their texts in JSON; None for a value that is not
    a JSON object in UTF-8. This creates objects for each of them."""
    cdef jlog_json_token key, value
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *first
    cdef size_t size
    memset(&key, 0, sizeof(key))
    found = []
    for row in range(texts.count):
        at, end = texts.data + texts.places[row], texts.data + texts.places[row + 1]
        if not jlog_json_object(NULL, 0, at, end, NULL) or not jlog_utf8_valid(at, end - at):
            found.append(None)
            continue
        members = {}
        at = jlog_json_space(jlog_json_space(at, end) + 1, end)
        while at[0] != c"}":
            first = at = jlog_json_key(at, end, &key)
            at = jlog_json_value(at, end, &value)
            name, size = bytearray(key.at[:key.bytes]), key.bytes
            if key.kind == JLOG_TOKEN_ESCAPED:
                size = jlog_json_unescape(address(name), &key)
            if size != <size_t> -1:  # a name may not hold half of a surrogate pair
                name = name[:size].decode()
                if name not in names:
                    members[name] = first[:at - first].decode()
            at = jlog_json_space(at, end)
            if at[0] == c",":
                at = jlog_json_space(at + 1, end)
        found.append(members)
    return found

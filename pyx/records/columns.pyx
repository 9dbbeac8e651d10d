"""Records as Arrow columns: filled in C, handed to pyarrow as buffers, without a Python object for a record."""

from functools import cache

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset


def import_pyarrow():
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Arrow needs pyarrow, which is not installed: pip install 'pyjlog[arrow]'") from error
    return pyarrow


@cache
def schema():
    """The columns that records have in Arrow, as a pyarrow.Schema."""
    pyarrow = import_pyarrow()
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return pyarrow.schema([
        ("sequence", pyarrow.int64()), ("timestamp", pyarrow.timestamp("us", "UTC")), ("key", pyarrow.binary()),
        ("value", pyarrow.binary()), ("headers", pyarrow.list_(header))])


def check_columns(columns):
    """The names of columns, or of all with None, as a tuple; ValueError where one is not there."""
    if columns is None:
        return tuple(schema().names)
    columns = tuple(columns)
    unknown = sorted(set(columns) - set(schema().names))
    if unknown or not columns:
        raise ValueError(f"columns are at least one of {', '.join(schema().names)}, not {', '.join(unknown) or 'none'}")
    return columns


cdef class Batch:
    """What a cursor reads into."""

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1:
        """So many records, which have been looked at. All of them or, with an error, none."""
        raise NotImplementedError


cdef class Memory:
    """Growing memory of pyarrow's pool."""

    cdef uint8_t *reserve(self, uint64_t size) except NULL:
        """Room for so many bytes in all; those that are there stay."""
        cdef uint64_t room = max(size, self.room * 2, 64)
        if size <= self.room and self.buffer is not None:
            return self.data
        if self.buffer is None:
            self.buffer = import_pyarrow().allocate_buffer(room, resizable=True)
        else:
            self.buffer.resize(room)
        self.data = <uint8_t *> <size_t> self.buffer.address
        self.room = room
        return self.data

    cdef object cut(self, uint64_t size):
        """The first so many bytes as a pyarrow.Buffer. The memory is the buffer's then."""
        self.buffer.resize(size)
        return self.buffer


cdef class Strings:
    """Memory of an array of variable length. `preset`: what the validity of a row is until somebody changes it."""

    def __cinit__(self, int preset):
        self.preset = preset
        self.validity, self.offsets, self.data = Memory(), Memory(), Memory()

    cdef int reserve(self, jlog_array *array, uint64_t count, uint64_t size) except -1:
        """For so many rows, and so many bytes of theirs, in all."""
        cdef uint64_t before = self.validity.room
        cdef bint begins = self.offsets.room == 0
        if size > INT32_MAX or count >= INT32_MAX:
            raise ValueError("a column of an Arrow batch takes less than 2 GiB; read fewer records at once")
        array.data = self.data.reserve(size)
        array.validity = self.validity.reserve(count // 8 + 1)
        memset(array.validity + before, self.preset, self.validity.room - before)
        array.offsets = <int32_t *> self.offsets.reserve(4 * (count + 1))
        if begins:
            array.offsets[0] = 0
        return 0

    cdef list row_buffers(self, const jlog_array *array, bint nullable):
        return [self.validity.cut((array.count + 7) // 8) if nullable else None, self.offsets.cut(4 * (array.count + 1))]

    cdef list buffers(self, const jlog_array *array, bint nullable):
        return [*self.row_buffers(array, nullable), self.data.cut(array.used)]


cdef class Columns(Batch):
    """Takes records, and is a pyarrow.RecordBatch in the end. `names` are the columns that are wanted; `rows` and
    `value_bytes`, what is expected."""

    def __init__(self, tuple names not None, uint64_t rows=0, uint64_t value_bytes=0):
        self.names = names
        self.sequence, self.timestamp = Memory(), Memory()
        self.value, self.key, self.headers = Strings(0xFF), Strings(0), Strings(0)
        self.name, self.header_value = Strings(0xFF), Strings(0xFF)
        self.reserve(rows, min(value_bytes, INT32_MAX))

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1:
        cdef const uint8_t *end = data + size
        cdef const uint8_t *at
        cdef uint64_t rows = self.to.rows
        cdef uint32_t used = self.to.value.used
        cdef jlog_sizes more
        self.reserve(rows + count, used + size)
        if self.names == ("sequence",):  # how many there are is known
            self.to.rows = self.count = rows + count
            jlog_fill_sequence(&self.to, rows, first_sequence)
            return 0
        at = jlog_fill_short(&self.to, data, end, base_time_us)
        if at != end:
            jlog_measure(at, end, &more)
            try:
                self.reserve_rest(rows + count, &more)
            except BaseException:
                self.to.rows, self.to.value.count, self.to.value.used = rows, rows, used
                raise
            jlog_fill(&self.to, at, end, base_time_us)
        jlog_fill_sequence(&self.to, rows, first_sequence)
        self.count = self.to.rows
        return 0

    cdef int reserve(self, uint64_t rows, uint64_t value_bytes) except -1:
        """For so many rows in all. What no record has had yet takes no room."""
        if "sequence" in self.names:
            self.to.sequence = <int64_t *> self.sequence.reserve(8 * rows)
        if "timestamp" in self.names:
            self.to.timestamp_us = <int64_t *> self.timestamp.reserve(8 * rows)
        if "value" in self.names:
            self.value.reserve(&self.to.value, rows, value_bytes)
        if self.to.key.offsets != NULL:
            self.key.reserve(&self.to.key, rows, 0)
        if self.to.headers.offsets != NULL:
            self.headers.reserve(&self.to.headers, rows, 0)
        return 0

    cdef int reserve_rest(self, uint64_t rows, const jlog_sizes *more) except -1:
        """For what they have beside values."""
        cdef jlog_columns *to = &self.to
        if more.keys and "key" in self.names:
            self.key.reserve(&to.key, rows, to.key.used + more.key_bytes)
        if more.headers and "headers" in self.names:
            self.name.reserve(&to.name, to.name.count + more.headers, to.name.used + more.name_bytes)
            self.header_value.reserve(&to.header_value, to.header_value.count + more.headers,
                                      to.header_value.used + more.header_value_bytes)
            self.headers.reserve(&to.headers, rows, 0)
        return 0

    def to_arrow(self):
        """What it has taken, as a pyarrow.RecordBatch. It takes no more after that."""
        pyarrow = import_pyarrow()
        fields = [schema().field(name) for name in self.names]
        return pyarrow.RecordBatch.from_arrays([self.array(field.name, field.type) for field in fields],
                                               schema=pyarrow.schema(fields))

    cdef object array(self, str name, type_):
        cdef jlog_columns *to = &self.to
        if name == "sequence":
            buffers = [None, self.sequence.cut(8 * to.rows)]
        elif name == "timestamp":
            buffers = [None, self.timestamp.cut(8 * to.rows)]
        elif name == "value":
            buffers = self.value.buffers(&to.value, to.null_values != 0)
        elif name == "key" and to.key.offsets != NULL:
            jlog_catch_up(&to.key, to.rows)
            buffers = self.key.buffers(&to.key, True)
        elif name == "headers" and to.headers.offsets != NULL:
            return self.headers_array(type_)
        else:
            return import_pyarrow().nulls(to.rows, type_)
        return import_pyarrow().Array.from_buffers(type_, to.rows, buffers)

    cdef object headers_array(self, type_):
        cdef jlog_columns *to = &self.to
        from_buffers = import_pyarrow().Array.from_buffers
        header = type_.value_type
        names = from_buffers(header[0].type, to.name.count, self.name.buffers(&to.name, False))
        values = from_buffers(header[1].type, to.header_value.count,
                              self.header_value.buffers(&to.header_value, to.null_header_values != 0))
        headers = from_buffers(header, to.name.count, [None], children=[names, values])
        jlog_catch_up(&to.headers, to.rows)
        return from_buffers(type_, to.rows, self.headers.row_buffers(&to.headers, True), children=[headers])

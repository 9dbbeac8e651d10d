"""Turns records into Arrow columns: C fills them, and pyarrow gets them as buffers, without a Python object per record."""

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
    """Returns the columns that records have in Arrow, as a pyarrow.Schema."""
    pyarrow = import_pyarrow()
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return pyarrow.schema([
        ("sequence", pyarrow.int64()), ("timestamp", pyarrow.timestamp("us", "UTC")), ("key", pyarrow.binary()),
        ("value", pyarrow.binary()), ("headers", pyarrow.list_(header))])


def check_columns(columns):
    """Returns the names as a tuple; for None, the names of all columns. Raises ValueError for an unknown name."""
    if columns is None:
        return tuple(schema().names)
    columns = tuple(columns)
    unknown = sorted(set(columns) - set(schema().names))
    if unknown or not columns:
        raise ValueError(f"columns must be at least one of {', '.join(schema().names)}, not {', '.join(unknown) or 'none'}")
    return columns


cdef class Batch:
    """A target that a cursor reads records into."""

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1:
        """Adds `count` records, which the cursor has checked. With an error, adds none of them."""
        raise NotImplementedError


cdef class Memory:
    """Memory of pyarrow's pool that grows as needed."""

    cdef uint8_t *reserve(self, uint64_t size) except NULL:
        """Makes room for `size` bytes in all, and returns their address. The bytes that are there stay."""
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
        """Returns the first `size` bytes as a pyarrow.Buffer, which owns the memory from then on."""
        self.buffer.resize(size)
        return self.buffer


cdef class Strings:
    """Memory of a column of values of variable length. `preset` is the byte that new validity bits are made of."""

    def __cinit__(self, int preset):
        self.preset = preset
        self.validity, self.offsets, self.data = Memory(), Memory(), Memory()

    cdef int reserve(self, jlog_array *array, uint64_t count, uint64_t size) except -1:
        """Makes room for `count` rows and `size` bytes of data in all."""
        cdef uint64_t before = self.validity.room
        cdef bint begins = self.offsets.room == 0
        if size > INT32_MAX or count >= INT32_MAX:
            raise ValueError("a column of an Arrow batch must be below 2 GiB; read fewer records at once")
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
    """Collects records, and makes a pyarrow.RecordBatch of them. `names` are the wanted columns, `rows` and `value_bytes` the
    expected size."""

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
        if self.names == ("sequence",):  # the number of records is all that is needed
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
        """Makes room for `rows` rows in all. A column that no record has used yet takes no room."""
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
        """Makes room for everything besides the values."""
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
        """Returns the collected records as a pyarrow.RecordBatch. No record may be added after that."""
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

"""Turns records into Arrow columns: C fills them, and their memory goes to the consumer, without a Python object per record."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from jlog._core.records.arrow cimport (
    ArrowArray, ArrowBatch, jlog_begin_array, jlog_count_zeros, jlog_new_memory, jlog_release_memory, jlog_view, jlog_widen)

from jlog._core.format.format cimport JLOG_SHORT_BYTES
from jlog._core.records.arrow import TEXTS


def import_pyarrow():
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("this needs pyarrow, which is not installed: pip install 'pyjlog[arrow]'; without it, every library "
                          "that knows the Arrow C data interface takes a Reader, a RecordBatch or jlog.scan itself") from error
    return pyarrow


cdef class Batch:
    """A target that a cursor reads records into. `needle`: bytes that each wanted record has in its value; others may be left
    out."""

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1:
        """Adds `count` records, which the cursor has checked. With an error, adds none of them."""
        raise NotImplementedError

    cdef const uint8_t *add_ready(self, const uint8_t *at, const uint8_t *end, int64_t base_time_us, uint64_t first_sequence,
                                  uint64_t most) except NULL:
        """Checks and adds records in one pass: at most `most`, and none that reaches beyond `end`. Returns the address after
        them. It may leave any of them to add(), as this one leaves all. With an error, adds none of them."""
        return at

    cdef int add_by_header(self, uint64_t first_sequence, uint64_t count) except -1:
        """Adds the records of a block by their sequences alone."""
        raise NotImplementedError


cdef class Memory:
    """Memory that grows as needed."""

    def __dealloc__(self):
        jlog_release_memory(self.data)

    cdef uint8_t *reserve(self, uint64_t size) except NULL:
        """Makes room for `size` bytes in all, and returns their address. The bytes that are there stay."""
        cdef uint64_t room = max(size, self.room * 2, 64)
        cdef void *larger
        if size <= self.room and self.data != NULL:
            return self.data
        larger = jlog_new_memory(&room) if self.data == NULL else realloc(self.data, room)
        if larger == NULL:
            raise MemoryError
        self.data, self.room = <uint8_t *> larger, room
        return self.data

    cdef uint8_t *hand_over(self, uint64_t size) except NULL:
        """Returns the memory with its first `size` bytes. It belongs to the caller from then on."""
        cdef uint8_t *data = self.reserve(size)
        cdef void *smaller = NULL
        if self.room - size > self.room // 4:
            smaller = realloc(data, max(size, 64))
        self.data, self.room = NULL, 0
        return data if smaller == NULL else <uint8_t *> smaller


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
        array.data = self.data.reserve(size + JLOG_PIECE_OF_VALUE)
        array.room = min(self.data.room - JLOG_PIECE_OF_VALUE, INT32_MAX)
        array.validity = self.validity.reserve(count // 8 + 1)
        memset(array.validity + before, self.preset, self.validity.room - before)
        array.offsets = <int32_t *> self.offsets.reserve(4 * (count + 1))
        if begins:
            array.offsets[0] = 0
        return 0

    cdef int hand_rows_over(self, ArrowArray *to, const jlog_array *array, bint nullable) except -1:
        """Hands validity over."""
        if nullable:
            to.null_count = jlog_count_zeros(array.validity, array.count)
            if to.null_count:
                to.buffers[0] = self.validity.hand_over((array.count + 7) // 8)
        return 0

    cdef int hand_over(self, ArrowArray *to, const jlog_array *array, bint nullable, str format) except -1:
        """Hands the column over in this format."""
        cdef uint64_t count = array.count
        cdef bint is_view = format in ("vz", "vu")
        if not jlog_begin_array(to, count, 4 if is_view else 3, 0):
            raise MemoryError
        self.hand_rows_over(to, array, nullable)
        if is_view:
            to.buffers[1] = allocate(16 * count)
            jlog_view(<uint8_t *> to.buffers[1], array.offsets, array.data, count)
            to.buffers[3] = allocate(8)
            (<int64_t *> to.buffers[3])[0] = array.used
        elif format in ("Z", "U"):
            to.buffers[1] = allocate(8 * (count + 1))
            jlog_widen(<int64_t *> to.buffers[1], array.offsets, count)
        else:
            to.buffers[1] = self.offsets.hand_over(4 * (count + 1))
        to.buffers[2] = self.data.hand_over(array.used)
        return 0


cdef uint8_t *allocate(size_t size) except NULL:
    cdef uint64_t room = size + 1
    cdef void *memory = jlog_new_memory(&room)
    if memory == NULL:
        raise MemoryError
    return <uint8_t *> memory


cdef class Columns(Batch):
    """Collects records, and creates an ArrowBatch of them. `fields` are the wanted columns, `rows`, `value_bytes` and
    `key_bytes` the expected size. `path` names the journal in errors."""

    def __init__(self, tuple fields not None, path=None, uint64_t rows=0, uint64_t value_bytes=0, uint64_t key_bytes=0):
        self.fields, self.path = fields, path
        self.names = tuple([field.name for field in fields])
        self.only_sequence = self.names == ("sequence",)  # the number of records is all that is needed
        self.with_key = "key" in self.names
        self.sequence, self.timestamp = Memory(), Memory()
        self.value, self.key, self.headers = Strings(0xFF), Strings(0), Strings(0)
        self.name, self.header_value = Strings(0xFF), Strings(0xFF)
        self.runs = []
        self.reserve(rows, min(value_bytes, INT32_MAX))
        if key_bytes:
            self.key.reserve(&self.to.key, rows, min(key_bytes, INT32_MAX))

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1:
        cdef const uint8_t *end = data + size
        cdef const uint8_t *at
        cdef uint64_t rows = self.to.rows
        cdef uint32_t used = self.to.value.used
        cdef jlog_sizes more
        self.reserve(rows + count, used + size)
        self.begin_run(first_sequence)
        if self.only_sequence:
            self.to.rows = rows + count
        else:
            at = jlog_fill_plain(&self.to, data, end, base_time_us, count)
            if at != end:
                jlog_measure(at, end, &more)
                try:
                    self.reserve_rest(rows + count, &more)
                except BaseException:
                    self.to.rows, self.to.value.count, self.to.value.used = rows, rows, used
                    raise
                jlog_fill(&self.to, at, end, base_time_us)
        jlog_fill_sequence(&self.to, rows, first_sequence)
        self.expected = first_sequence + count
        self.count = self.to.rows
        return 0

    cdef const uint8_t *add_ready(self, const uint8_t *at, const uint8_t *end, int64_t base_time_us, uint64_t first_sequence,
                                  uint64_t most) except NULL:
        cdef uint64_t rows = self.to.rows
        most = min(most, <uint64_t> (end - at) // JLOG_SHORT_BYTES)
        self.reserve(rows + most, 0)  # there is room for the values of a batch like the one before: add() makes more
        self.begin_run(first_sequence)
        at = jlog_fill_ready(&self.to, at, end, base_time_us, most, self.with_key)
        jlog_fill_sequence(&self.to, rows, first_sequence)
        self.expected = first_sequence + (self.to.rows - rows)
        self.count = self.to.rows
        return at

    cdef int add_by_header(self, uint64_t first_sequence, uint64_t count) except -1:
        cdef uint64_t rows = self.to.rows, row
        self.reserve(rows + count, 0)
        self.begin_run(first_sequence)
        self.to.rows = rows + count
        jlog_fill_sequence(&self.to, rows, first_sequence)
        if self.to.timestamp_us != NULL:
            for row in range(rows, self.to.rows):
                self.to.timestamp_us[row] = self.stand_in_us
        self.expected = first_sequence + count
        self.count = self.to.rows
        return 0

    cdef int begin_run(self, uint64_t first_sequence) except -1:
        """Notes that the next rows begin with this sequence."""
        if self.to.rows == 0 or first_sequence != self.expected:
            self.runs.append((self.to.rows, first_sequence))
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
        if more.keys and self.with_key:
            self.key.reserve(&to.key, rows, to.key.used + more.key_bytes)
        if more.headers and "headers" in self.names:
            self.name.reserve(&to.name, to.name.count + more.headers, to.name.used + more.name_bytes)
            self.header_value.reserve(&to.header_value, to.header_value.count + more.headers,
                                      to.header_value.used + more.header_value_bytes)
            self.headers.reserve(&to.headers, rows, 0)
        return 0

    cdef int set_sequences(self, list sequences) except -1:
        """Gives the rows these sequences, one each."""
        self.runs = list(enumerate(sequences))
        if self.to.sequence != NULL:
            for row, sequence in self.runs:
                self.to.sequence[<uint64_t> row] = sequence
        return 0

    # --- Handing over ---------------------------------------------------------------------------------------------

    cdef ArrowBatch hand_over(self):
        """Returns the collected records. No record may be added after that, nor after an error."""
        cdef ArrowBatch batch = ArrowBatch()
        cdef int64_t at
        batch.begin(self.fields, self.to.rows)
        for at in range(len(self.fields)):
            self.hand_column_over(batch.array.children[at], self.fields[at])
        return batch

    cdef int hand_column_over(self, ArrowArray *to, field) except -1:
        cdef Memory numbers
        if field.name in ("sequence", "timestamp"):
            if not jlog_begin_array(to, self.to.rows, 2, 0):
                raise MemoryError
            numbers = self.sequence if field.name == "sequence" else self.timestamp
            to.buffers[1] = numbers.hand_over(8 * self.to.rows)
            return 0
        if field.name == "headers":
            return self.hand_headers_over(to, field)
        if field.name == "value":
            self.check_text("value", field.format, &self.to.value)
            return self.value.hand_over(to, &self.to.value, self.to.null_values != 0, field.format)
        self.complete(self.key, &self.to.key)
        self.check_text("key", field.format, &self.to.key)
        return self.key.hand_over(to, &self.to.key, True, field.format)

    cdef int complete(self, Strings strings, jlog_array *array) except -1:
        """Gives the last rows their entry, in a column that only some of the records have used, or none."""
        strings.reserve(array, self.to.rows, 0)
        jlog_catch_up(array, self.to.rows)
        return 0

    cdef int hand_headers_over(self, ArrowArray *to, field) except -1:
        cdef jlog_columns *columns = &self.to
        cdef ArrowArray *entries
        cdef uint8_t *repeated
        header = field.children[0]
        self.complete(self.headers, &columns.headers)
        self.name.reserve(&columns.name, columns.name.count, 0)
        self.header_value.reserve(&columns.header_value, columns.name.count, 0)
        if field.format == "+m" and columns.name.count:
            repeated = <uint8_t *> calloc(columns.name.count, 1)
            if repeated == NULL:
                raise MemoryError
            if not jlog_drop_repeated(columns, repeated):
                free(repeated)
                raise MemoryError
            free(repeated)
        self.check_text("headers", header.children[1].format, &columns.header_value)
        if not jlog_begin_array(to, columns.rows, 2, 1):
            raise MemoryError
        self.headers.hand_rows_over(to, &columns.headers, True)
        if field.format == "+L":
            to.buffers[1] = allocate(8 * (columns.rows + 1))
            jlog_widen(<int64_t *> to.buffers[1], columns.headers.offsets, columns.rows)
        else:
            to.buffers[1] = self.headers.offsets.hand_over(4 * (columns.rows + 1))
        entries = to.children[0]
        if not jlog_begin_array(entries, columns.name.count, 1, 2):
            raise MemoryError
        self.name.hand_over(entries.children[0], &columns.name, False, header.children[0].format)
        return self.header_value.hand_over(entries.children[1], &columns.header_value, columns.null_header_values != 0,
                                           header.children[1].format)

    cdef int check_text(self, str name, str format, const jlog_array *array) except -1:
        """Raises ValueError if the column is requested as text, and an entry is not UTF-8."""
        cdef int64_t entry = -1 if format not in TEXTS else jlog_first_not_utf8(array)
        if entry < 0:
            return 0
        if name == "headers":
            name = "header"
            entry = jlog_row_of(&self.to.headers, entry)
        row, first = [run for run in self.runs if run[0] <= entry][-1]
        place = "" if self.path is None else f"{self.path}: "
        raise ValueError(f"{place}the {name} of record {first + entry - row} is not UTF-8, so it cannot be a string; read the "
                         "column as binary")

"""Records in the Arrow C data interface: their schema, a batch, and a stream of batches, in the capsules that every library
for Arrow takes. Neither pyarrow nor any other library is needed for that."""

import errno
from collections import namedtuple

from cpython.exc cimport PyErr_SetInterrupt
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from jlog._core.records.encode cimport iterator_of

cdef extern from "Python.h":
    bint Py_IsInitialized() nogil

Field = namedtuple("Field", ("name", "format", "nullable", "children"), defaults=(True, ()))
Field.__doc__ = """A column, or a part of one: its name, and its type as the C data interface spells it."""

BYTES = ("z", "Z", "vz")
TEXTS = ("u", "U", "vu")
LISTS = ("+l", "+L", "+m")
_HEADER = Field("item", "+s", True, (Field("key", "u"), Field("value", "z")))
FIELDS = {
    field.name: field
    for field in (Field("sequence", "l"), Field("timestamp", "tsu:UTC"), Field("key", "z"), Field("value", "z"),
                  Field("headers", "+l", True, (_HEADER,)))
}
_MAP_ENTRIES = Field("entries", "+s", False, (Field("key", "u", False), Field("value", "z")))
HEADERS_MAP = Field("headers", "+m", True, (_MAP_ENTRIES,))
HEADERS_TEXT_MAP = Field("headers", "+m", True, (_MAP_ENTRIES._replace(
    children=(Field("key", "u", False), Field("value", "u"))),))


def fields_of(columns=None):
    """Returns the fields of these columns, by default of all. Raises ValueError for an unknown name."""
    if columns is None:
        return tuple(FIELDS.values())
    columns = tuple(iterator_of("columns", columns, f"names of {', '.join(FIELDS)}"))
    unknown = sorted(map(str, set(columns) - set(FIELDS)))
    if unknown or not columns:
        raise ValueError(f"columns must be at least one of {', '.join(FIELDS)}, not {', '.join(unknown) or 'none'}")
    return tuple(FIELDS[name] for name in columns)


# --- Schemas ----------------------------------------------------------------------------------------------------


cdef int fill_schema(ArrowSchema *to, field) except -1:
    cdef int64_t at
    if not jlog_begin_schema(to, field.format.encode(), field.name.encode(),
                             ARROW_FLAG_NULLABLE if field.nullable else 0, len(field.children)):
        raise MemoryError
    try:
        for at in range(len(field.children)):
            fill_schema(to.children[at], field.children[at])
    except BaseException:
        to.release(to)
        raise
    return 0


cdef void drop_schema(capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


def schema_of(fields):
    """Returns the schema of a batch with these columns, in a capsule."""
    cdef ArrowSchema *schema = <ArrowSchema *> calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    try:
        fill_schema(schema, Field("", "+s", False, tuple(fields)))
        return PyCapsule_New(schema, "arrow_schema", drop_schema)
    except BaseException:
        if schema.release != NULL:
            schema.release(schema)
        free(schema)
        raise


cdef object read_schema(const ArrowSchema *schema):
    format = schema.format.decode()
    if schema.dictionary != NULL:
        format = "dictionary"
    return Field("" if schema.name == NULL else schema.name.decode("utf-8", "replace"), format,
                 bool(schema.flags & ARROW_FLAG_NULLABLE),
                 tuple([read_schema(schema.children[at]) for at in range(schema.n_children)]))


def fields_in(capsule):
    """Returns the fields of a schema in a capsule. The capsule stays as it is. Raises ValueError unless it is a schema with
    columns."""
    cdef const ArrowSchema *schema = <const ArrowSchema *> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release == NULL:
        raise ValueError("the schema has been released already")
    found = read_schema(schema)
    if found.format != "+s":
        raise ValueError(f"a schema of columns is needed, not one of the type {found.format!r}")
    return found.children


def requested_fields(capsule, fields):
    """Returns the fields that a consumer requests: some or all of `fields`, in other types where that loses nothing. None
    requests `fields` as they are. Raises ValueError for what records cannot be."""
    if capsule is None:
        return tuple(fields)
    known = {field.name: field for field in fields}
    found = fields_in(capsule)
    for field in found:
        if field.name not in known:
            raise ValueError(f"the requested schema has the column {field.name!r}; there are {', '.join(known)}")
        check_cast(field, known[field.name])
    if not found or len({field.name for field in found}) != len(found):
        raise ValueError("the requested schema must have at least one column, and none twice")
    return tuple(map(with_nulls, found))


def with_nulls(field):
    """Returns a requested field that says what its column may hold, whatever was requested: nulls."""
    if field.name in ("sequence", "timestamp"):
        return field
    if field.name == "headers":
        header = field.children[0]
        name, value = header.children
        field = field._replace(children=(header._replace(children=(name, value._replace(nullable=True))),))
    return field._replace(nullable=True)


def check_cast(wanted, field):
    """Raises ValueError if a column cannot be had in the wanted type, whatever its records are."""
    if field.name == "headers":
        if is_headers(wanted):
            return
        allowed = "list<struct<key: string, value: binary>>, or a map or a large_list with these"
    elif field.name == "timestamp":
        if wanted.format.startswith("tsu:") and wanted.format != "tsu:":
            return
        allowed = "timestamp[us] with a time zone"
    elif field.name == "sequence":
        if wanted.format in ("l", "L"):
            return
        allowed = "int64 or uint64"
    elif wanted.format in BYTES or wanted.format in TEXTS:
        return
    else:
        allowed = "binary or string, each also as large or view"
    raise ValueError(f"the column {field.name} cannot be had as {wanted.format!r} of the Arrow C data interface without a "
                     f"loss; request {allowed}")


def is_headers(wanted):
    if wanted.format not in LISTS or len(wanted.children) != 1:
        return False
    entries = wanted.children[0]
    return (entries.format == "+s" and [part.name for part in entries.children] == ["key", "value"]
            and entries.children[0].format in TEXTS and entries.children[1].format in BYTES + TEXTS)


# --- Batches ----------------------------------------------------------------------------------------------------


cdef void drop_array(capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef class ArrowBatch:
    """Records in columns. It can be handed over once, because its consumer owns the memory from then on."""

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    cdef int begin(self, tuple fields, int64_t length) except -1:
        """Begins a batch whose columns are still to be filled."""
        self.fields = fields
        if not jlog_begin_array(&self.array, length, 1, len(fields)):
            raise MemoryError
        return 0

    cdef int move_to(self, ArrowArray *to) except -1:
        if self.array.release == NULL:
            raise ValueError("this batch has been handed over already")
        to[0] = self.array
        memset(&self.array, 0, sizeof(ArrowArray))
        return 0

    def __len__(self):
        return self.array.length

    def __arrow_c_schema__(self):
        return schema_of(self.fields)

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray *array
        schema = schema_of(self.fields)
        array = <ArrowArray *> calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError
        try:
            capsule = PyCapsule_New(array, "arrow_array", drop_array)
        except BaseException:
            free(array)
            raise
        self.move_to(array)
        return schema, capsule


# --- Streams ----------------------------------------------------------------------------------------------------


cdef class StreamSource:
    """What a stream hands out, as its consumer takes it: the batches of an iterator."""

    cdef tuple fields
    cdef object batches
    cdef object owner  # lives as long as the stream
    cdef bytes error
    cdef int code  # of the error; 0: none so far

    cdef int failed(self, error) noexcept:
        """Notes the error for the consumer, and returns its code. Every later step fails in the same way: where the iterator
        ends after an error, the consumer would take that for the end of the records. The error's text stays empty if
        there is no memory for it, or if the error cannot give it."""
        self.code = errno.EINVAL if isinstance(error, ValueError) else errno.EIO
        if isinstance(error, MemoryError):
            self.code = errno.ENOMEM
        if isinstance(error, KeyboardInterrupt):
            self.code = errno.EINTR
            PyErr_SetInterrupt()  # raised again by the first Python code that runs in the main thread
        try:
            self.error = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        except Exception:
            self.error = None
        return self.code


cdef int stream_get_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    cdef StreamSource source = <StreamSource> stream.private_data
    try:
        fill_schema(out, Field("", "+s", False, source.fields))
        return 0
    except BaseException as error:
        return source.failed(error)


cdef int stream_get_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef StreamSource source = <StreamSource> stream.private_data
    cdef ArrowBatch batch
    out.release = NULL  # the end of the stream, unless a batch follows
    if source.code:
        return source.code
    try:
        batch = next(source.batches, None)
        if batch is not None:
            batch.move_to(out)
        return 0
    except BaseException as error:
        return source.failed(error)


cdef const char *stream_get_last_error(ArrowArrayStream *stream) noexcept with gil:
    cdef StreamSource source = <StreamSource> stream.private_data
    return NULL if source.error is None else <const char *> source.error


cdef void stream_release(ArrowArrayStream *stream) noexcept nogil:
    stream.release = NULL
    if Py_IsInitialized():  # else the source went with the interpreter
        forget_source(stream)


cdef void forget_source(ArrowArrayStream *stream) noexcept with gil:
    Py_DECREF(<object> stream.private_data)
    stream.private_data = NULL


cdef void drop_stream(capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


def stream_of(fields, batches, owner=None):
    """Returns a stream of ArrowBatches with these columns, in a capsule. `batches` is an iterator, whose next step is taken
    when the consumer asks for the next batch, in whatever thread. An error of a step reaches the consumer with its text."""
    cdef StreamSource source = StreamSource()
    cdef ArrowArrayStream *stream = <ArrowArrayStream *> calloc(1, sizeof(ArrowArrayStream))
    if stream == NULL:
        raise MemoryError
    try:
        capsule = PyCapsule_New(stream, "arrow_array_stream", drop_stream)
    except BaseException:
        free(stream)
        raise
    source.fields, source.batches, source.owner = tuple(fields), iter(batches), owner
    stream.get_schema, stream.get_next = stream_get_schema, stream_get_next
    stream.get_last_error, stream.release = stream_get_last_error, stream_release
    stream.private_data = <void *> source
    Py_INCREF(source)
    return capsule

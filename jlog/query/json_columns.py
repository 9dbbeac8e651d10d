"""Values in JSON as columns of Arrow. The core judges each value once, before any column, and parses for every type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, timedelta, timezone

import pyarrow
import pyarrow.compute as compute

from jlog._core.records.json import Texts, json_columns, json_items, json_members
from jlog.system.clock import EPOCH

PREFIX = "json_"  # before a field's name that is empty, or that another column has
KEY = b"jlog.key"  # in a field's metadata: its name in the values, where its column has another one
ANY_FIELDS = pyarrow.map_(pyarrow.string(), pyarrow.string())  # of names and values in JSON
# Type, nullability and metadata of a column whose texts are those of numbers.
DIGITS = pyarrow.string(), True, {b"jlog.digits": b""}

DIGITS_OF = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # of a second, in each unit of a timestamp
# Python drops digits after the sixth, and its version 3.10 takes three or six alone.
_FRACTION = re.compile(r"(\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d)[.,]([0-9]+)", re.ASCII)
_UTC = re.compile(r"[Zz]\Z")

Column = tuple[bytearray, "bytearray | None", bytearray]


def key_of(field: pyarrow.Field) -> str:
    """Returns the field's name in the values."""
    return str(field.metadata[KEY].decode()) if field.metadata and KEY in field.metadata else str(field.name)


def named(fields: Iterable[pyarrow.Field], taken: Collection[str]) -> list[pyarrow.Field]:
    """Returns the fields with names of columns: none is empty, taken, or has a NUL, at which other libraries end a name."""
    fields = list(fields)
    reserved = {*taken, *(field.name for field in fields)}
    found = []
    for field in fields:
        name = field.name.replace("\0", r"\u0000")
        while not name or name in taken or (name != field.name and name in reserved):
            name = PREFIX + name
        reserved.add(name)
        metadata = {**(field.metadata or {}), KEY: field.name.encode()}
        found.append(field if name == field.name else field.with_name(name).with_metadata(metadata))
    return found


def check_type(given: pyarrow.DataType) -> None:
    """Raises ValueError for a type that JSON does not give."""
    types = pyarrow.types
    if types.is_list(given) or types.is_large_list(given):
        check_type(given.value_type)
    elif types.is_struct(given):
        names = Counter(field.name for field in given)
        wrong = [name for name, count in names.items() if count > 1 or "\0" in name]
        if wrong:
            raise ValueError(f"the field {wrong[0]!r} of {given} comes twice, or has a NUL in its name; leave it out")
        for field in given:
            check_type(field.type)
    elif not (given == ANY_FIELDS or _is_plain(given)):
        raise ValueError(
            f"a field of JSON cannot be {given}; it can be bool, a number, string, a timestamp, a date, a list, a struct or "
            f"{ANY_FIELDS}"
        )


def columns_of(values: pyarrow.Array, fields: Sequence[pyarrow.Field]) -> list[pyarrow.Array]:
    """Returns the columns of the fields, whose rows are null where the value is not a JSON object in UTF-8, lacks the field, or
    has one of another type."""
    found = json_columns(_texts(values), [(key_of(field), _kind(field)) for field in fields])
    return [_array(len(values), column, field) for column, field in zip(found, fields, strict=True)]


def others_of(values: pyarrow.Array, names: Collection[str]) -> pyarrow.Array:
    """Returns a column of maps: the members of objects that do not have these names, as texts in JSON."""
    members = json_members(_texts(values), names)
    return pyarrow.array([None if found is None else list(found.items()) for found in members], ANY_FIELDS)


def _texts(values: pyarrow.Array) -> Texts:
    values = values.fill_null(b"")
    _, offsets, data = values.buffers()
    return Texts(offsets, b"" if data is None else data, values.offset, len(values))


def _array(rows: int, column: Column, field: pyarrow.Field) -> pyarrow.Array:
    kind, given, types = _kind(field), field.type, pyarrow.types
    validity, *parts = (None if part is None else pyarrow.py_buffer(part) for part in column)
    parts = [part for part in parts if part is not None]
    if kind == "array":
        starts, items = json_items(Texts(parts[0], parts[1], 0, rows), _kind(given.value_field))
        offsets = pyarrow.Array.from_buffers(pyarrow.int32(), rows + 1, [None, pyarrow.py_buffer(starts)])
        child = _array(offsets[-1].as_py(), items, given.value_field)
        if types.is_large_list(given):
            offsets = offsets.cast(pyarrow.int64())
        return pyarrow.Array.from_buffers(given, rows, [validity, offsets.buffers()[1]], children=[child])
    if kind == "object":
        texts = pyarrow.Array.from_buffers(pyarrow.binary(), rows, [validity, *parts])
        if given == ANY_FIELDS:
            return others_of(texts, ())
        return pyarrow.Array.from_buffers(given, rows, [validity], children=columns_of(texts, list(given)))
    core = pyarrow.type_for_alias("string" if kind == "number" else kind)
    return _fitted(pyarrow.Array.from_buffers(core, rows, [validity, *parts]), given)


def _is_plain(given: pyarrow.DataType) -> bool:
    types = pyarrow.types
    tests = types.is_boolean, types.is_integer, types.is_floating, _is_text, types.is_timestamp, types.is_date
    return any(test(given) for test in tests)


def _is_text(given: pyarrow.DataType) -> bool:
    return pyarrow.types.is_string(given) or pyarrow.types.is_large_string(given) or str(given) == "string_view"


def _kind(field: pyarrow.Field) -> str:
    """Returns the core's name of the type from which a column of the field is made."""
    given, types = field.type, pyarrow.types
    if types.is_list(given) or types.is_large_list(given):
        return "array"
    if types.is_struct(given) or types.is_map(given):
        return "object"
    if types.is_boolean(given):
        return "bool"
    if types.is_integer(given):
        return "uint64" if types.is_uint64(given) else "int64"
    if types.is_floating(given):
        return "double"
    return "number" if field.metadata and next(iter(DIGITS[2])) in field.metadata else "string"


def _fitted(array: pyarrow.Array, given: pyarrow.DataType) -> pyarrow.Array:
    """Returns the core's column in another type, and null where that does not hold the value."""
    types = pyarrow.types
    if array.type == given:
        return array
    if types.is_integer(given):
        low, high = (
            (-(1 << given.bit_width - 1), 1 << given.bit_width - 1)
            if types.is_signed_integer(given)
            else (0, 1 << given.bit_width)
        )
        fits = compute.and_(compute.greater_equal(array, low), compute.less(array, high))
        return compute.if_else(fits, array, pyarrow.scalar(None, array.type)).cast(given)
    if types.is_floating(given):
        narrow = array.cast(given, safe=False)
        fits = compute.or_(compute.is_finite(narrow.cast(array.type)), compute.invert(compute.is_finite(array)))
        return compute.if_else(fits, narrow, pyarrow.scalar(None, given))
    if types.is_timestamp(given):
        return pyarrow.array([_as_time(text, given) for text in array.to_pylist()], pyarrow.int64()).cast(given)
    if types.is_date(given):
        return pyarrow.array([_as_date(text) for text in array.to_pylist()], given)
    return pyarrow.array(array.to_pylist(), given)


def _as_time(text: str | None, given: pyarrow.TimestampType) -> int | None:
    """Returns the time in the type's unit, without the digits that are finer."""
    if text is None:
        return None
    fraction = _FRACTION.match(text)
    try:
        found = datetime.fromisoformat(_UTC.sub("+00:00", text if fraction is None else fraction[1] + text[fraction.end() :]))
    except ValueError:
        return None
    if (found.tzinfo is None) != (given.tz is None):
        return None
    digits = DIGITS_OF[given.unit]
    since = found.replace(tzinfo=timezone.utc) - EPOCH - (found.utcoffset() or timedelta())
    fine = (fraction[2] if fraction else f"{since.microseconds:06}").ljust(digits, "0")[:digits]
    ticks = (since.days * 86_400 + since.seconds) * 10**digits + int(fine or 0)
    return ticks if -(1 << 63) <= ticks < 1 << 63 else None


def _as_date(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        return None

"""`parse="json"`: the fields of JSON objects as columns. `scan` is a jlog.query.scan.Scan everywhere here."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.json

from jlog._core.records.json import TYPES, json_columns
from jlog.record import FIELDS

SAMPLE_PLACES, SAMPLE_RECORDS = 10, 100  # spread over the range, and at each place
DEPTH_MAX = 32  # of objects and arrays that become structs and lists; deeper ones are null
AT_ONCE = 2  # batches that are parsed, each by a thread, or wait to be taken
PREFIX = "json_"  # before the name of a field that is empty, or also that of a record's own column
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns), *([^\]]+)\]\Z")
# Types for which pyarrow's own parser does what _fitted() does.
_FAST = (pyarrow.types.is_boolean, pyarrow.types.is_int64, pyarrow.types.is_float64, pyarrow.types.is_string)

Fit = Callable[[Any], Any]


class JsonFields:
    """The fields, given as a schema or inferred from a sample at the first use, and the same ones from then on."""

    def __init__(self, schema: Any = None) -> None:
        self._lock = threading.Lock()
        self._fields = None if schema is None else _given(schema)

    def fields(self, scan: Any) -> list[pyarrow.Field]:
        """Returns the fields with the names that they have in the values."""
        with self._lock:
            if self._fields is None:
                self._fields = _inferred(_sample(scan))
            return self._fields

    def columns(self, scan: Any) -> list[pyarrow.Field]:
        """Returns the fields as columns of the scan, those that it wants."""
        fields = self.fields(scan)
        found = [field.with_name(name) for field, name in zip(fields, _column_names(fields).values(), strict=True)]
        return [field for field in found if scan.columns is None or field.name in scan.columns]

    def parsed(self, scan: Any, limit: int | None) -> Iterator[pyarrow.RecordBatch]:
        """Iterates over the records with the columns of the fields."""
        schema = scan.pyarrow_schema
        fields = self.fields(scan)
        names = _column_names(fields)
        wanted = [field for field in fields if schema.get_field_index(names[field.name]) >= 0]
        # The values are read as bytes here, also where the scan wants them as text, or does not want them.
        own = [field for field in scan.fields if field.name != "value"]
        if wanted or len(own) < len(scan.fields):
            own.append(FIELDS["value"])

        def columns_of(batch: Any) -> pyarrow.RecordBatch:
            records = pyarrow.record_batch(batch)
            columns = {name: records.column(name) for name in records.schema.names}
            if wanted:
                columns |= {names[name]: column for name, column in _parsed(records.column("value"), wanted).items()}
            arrays = [columns[field.name] for field in schema]
            return pyarrow.RecordBatch.from_arrays(
                [_cast(array, field, records) for array, field in zip(arrays, schema, strict=True)], schema=schema
            )

        return side_by_side(columns_of, scan.batches(own or [FIELDS["sequence"]], limit))


def side_by_side(function: Callable[[Any], Any], given: Iterator[Any]) -> Iterator[Any]:
    """Yields function(item) of each item, in order, and works on the next ones meanwhile. An error comes at its place."""
    waiting: deque[Future[Any]] = deque()
    failed: Exception | None = None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while failed is None or waiting:
            try:
                while failed is None and len(waiting) < AT_ONCE:
                    waiting.append(pool.submit(function, next(given)))
            except Exception as error:  # noqa: BLE001 - raised in its place; also StopIteration, the end
                failed = error
            if waiting:
                yield waiting.popleft().result()
    if not isinstance(failed, StopIteration):
        raise failed


def _cast(array: pyarrow.Array, field: pyarrow.Field, records: pyarrow.RecordBatch) -> pyarrow.Array:
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)  # the bytes of a value to text
    except pyarrow.ArrowInvalid:
        place = f" of the records from {records.column('sequence')[0]} on" if "sequence" in records.schema.names else ""
        raise ValueError(f"a {field.name}{place} is not UTF-8, so it cannot be a string; leave text=True out") from None


def _column_names(fields: Sequence[pyarrow.Field]) -> dict[str, str]:
    """Returns the name of each field's column, which no other column has."""
    taken = {*FIELDS, *(field.name for field in fields)}
    found: dict[str, str] = {}
    for field in fields:
        name = field.name
        while not name or name in FIELDS or (name != field.name and name in taken):
            name = PREFIX + name
        taken.add(name)
        found[field.name] = name
    return found


def _given(schema: Any) -> list[pyarrow.Field]:
    """Returns the fields of schema=. Raises ValueError for a type that JSON does not give."""
    if hasattr(schema, "__arrow_c_schema__"):
        fields = list(pyarrow.schema(schema))
    elif isinstance(schema, Mapping):
        fields = [pyarrow.field(name, _type_of(name, given)) for name, given in schema.items()]
    else:
        raise TypeError(f"schema must be a dict of names and types, or have __arrow_c_schema__, not {schema!r}")
    for field in fields:
        _fit_of(field.type)
    several = [name for name, count in Counter(field.name for field in fields).items() if count > 1]
    if several:
        raise ValueError(f"schema has the field {several[0]!r} more than once; name each field once")
    return fields


def _type_of(name: str, given: Any) -> pyarrow.DataType:
    if isinstance(given, pyarrow.DataType):
        return given
    try:
        found = _TIMESTAMP.match(given)
        return pyarrow.timestamp(found[1], found[2]) if found else pyarrow.type_for_alias(given)
    except (TypeError, ValueError):
        raise ValueError(
            f"schema has {given!r} for the field {name!r}: write the name of an Arrow type, such as 'int64' or 'string'"
        ) from None


# --- Inference ---------------------------------------------------------------------------------------------------


def _sample(scan: Any) -> list[Any]:
    """Returns the values of records that are spread over the range of the scan."""
    whole = replace(scan, parser=None, columns=("sequence", "value"), text=False, on_batch=None)
    first, end = whole.range()
    places, count = SAMPLE_PLACES, SAMPLE_RECORDS
    step = max((end - first) // places, count)
    found: list[Any] = []
    for at in range(first, end, step):
        part = replace(whole, start=at, end=min(at + count, end))
        for batch in part.pyarrow_batches(count):
            found += [_decoded(value) for value in batch.column("value").to_pylist()]
    return [value for value in found if isinstance(value, dict)]


def _inferred(objects: Sequence[dict[str, Any]], depth: int = 0) -> list[pyarrow.Field]:
    names = dict.fromkeys(name for found in objects for name in found if _is_text(name))
    return [pyarrow.field(name, _inferred_type([found.get(name) for found in objects], depth)) for name in names]


def _inferred_type(values: Sequence[Any], depth: int) -> pyarrow.DataType:
    """Returns the type that most values have. Whole numbers count as floats where there are floats too."""
    kinds = Counter(_kind(value) for value in values if value is not None)
    if kinds["float"] or any(_kind(value) == "int" and not -(1 << 63) <= value < 1 << 63 for value in values):
        kinds["float"] += kinds.pop("int", 0)
    kind = kinds.most_common(1)[0][0] if kinds else "str"
    if kind == "list" and depth < DEPTH_MAX:
        items = [item for value in values if isinstance(value, list) for item in value]
        return pyarrow.list_(_inferred_type(items, depth + 1))
    if kind == "dict" and depth < DEPTH_MAX:
        fields = _inferred([value for value in values if isinstance(value, dict)], depth + 1)
        if fields:
            return pyarrow.struct(fields)
    return {"bool": pyarrow.bool_(), "int": pyarrow.int64(), "float": pyarrow.float64()}.get(kind, pyarrow.string())


def _kind(value: Any) -> str:
    return type(value).__name__


def _is_text(text: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in text)


# --- Parsing -----------------------------------------------------------------------------------------------------


def _parsed(values: pyarrow.Array, fields: Sequence[pyarrow.Field]) -> dict[str, pyarrow.Array]:
    """Returns the columns of the fields. The core parses for the simplest types. For lists and structs of them pyarrow does,
    which refuses a whole batch for one value that does not fit. Then, and for other types, Python's parser takes the values one
    by one."""
    values = values.fill_null(b"{}")
    plain = [field for field in fields if str(field.type) in TYPES]
    others = [field for field in fields if field not in plain]
    found = _by_the_core(values, plain) if plain else {}
    if others:
        found |= _by_pyarrow(values, others) or _by_python(values, others)
    return found


def _by_the_core(values: pyarrow.Array, fields: Sequence[pyarrow.Field]) -> dict[str, pyarrow.Array]:
    _, offsets, data = values.buffers()
    columns = json_columns(offsets, data, values.offset, len(values), [(field.name, str(field.type)) for field in fields])
    return {
        field.name: pyarrow.Array.from_buffers(
            field.type, len(values), [pyarrow.py_buffer(part) for part in column if part is not None]
        )
        for field, column in zip(fields, columns, strict=True)
    }


def _by_pyarrow(values: pyarrow.Array, fields: Sequence[pyarrow.Field]) -> dict[str, pyarrow.Array] | None:
    """Returns None for what it may not see as Python's parser does."""
    objects = compute.and_(compute.starts_with(values, "{"), compute.ends_with(values, "}"))
    if not len(values) or not all(_is_fast(field.type) for field in fields) or not compute.all(objects).as_py():
        return None
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, len(values)], pyarrow.int32()), values)
    joined = compute.binary_join(lists, b"\n")[0].as_buffer()
    try:
        table = pyarrow.json.read_json(
            pyarrow.BufferReader(joined),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pyarrow.schema(fields), newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()
        table.validate(full=True)  # pyarrow's parser does not look whether text is UTF-8
    except pyarrow.ArrowException:
        return None
    # Each value begins and ends with a brace, so that none reaches into the next one. Where there are more rows than values,
    # one value has several objects.
    if table.num_rows != len(values):
        return None
    return {field.name: table.column(field.name).combine_chunks() for field in fields}


def _by_python(values: pyarrow.Array, fields: Sequence[pyarrow.Field]) -> dict[str, pyarrow.Array]:
    objects = [_decoded(value) for value in values.to_pylist()]
    objects = [found if isinstance(found, dict) else {} for found in objects]
    fits = [_fit_of(field.type) for field in fields]
    return {
        field.name: pyarrow.array([fit(found.get(field.name)) for found in objects], field.type)
        for field, fit in zip(fields, fits, strict=True)
    }


def _decoded(value: bytes | None) -> Any:
    """Returns what the value says in JSON; None where it is not JSON."""
    try:
        return None if value is None else json.loads(value.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _is_fast(given: pyarrow.DataType) -> bool:
    if pyarrow.types.is_list(given):
        return _is_fast(given.value_type)
    if pyarrow.types.is_struct(given):
        return all(_is_fast(field.type) for field in given)
    return any(is_one(given) for is_one in _FAST)


def _fit_of(given: pyarrow.DataType) -> Fit:
    """Returns the function that returns a value that fits the type, and None for any other."""
    types = pyarrow.types
    if types.is_list(given) or types.is_large_list(given):
        fit_item = _fit_of(given.value_type)
        return lambda value: [fit_item(item) for item in value] if isinstance(value, list) else None
    if types.is_struct(given):
        fits = {field.name: _fit_of(field.type) for field in given}
        return lambda value: {name: fit(value.get(name)) for name, fit in fits.items()} if isinstance(value, dict) else None
    if types.is_boolean(given):
        return lambda value: value if isinstance(value, bool) else None
    if types.is_integer(given):
        bits = given.bit_width
        low, high = (-(1 << bits - 1), 1 << bits - 1) if types.is_signed_integer(given) else (0, 1 << bits)
        return lambda value: value if _kind(value) == "int" and low <= value < high else None
    if types.is_floating(given):
        return _as_float
    if types.is_string(given) or types.is_large_string(given) or str(given) == "string_view":
        return lambda value: value if isinstance(value, str) and _is_text(value) else None
    if types.is_timestamp(given):
        return lambda value: _as_time(value, given.tz is not None)
    if types.is_date(given):
        return _as_date
    raise ValueError(
        f"a field of JSON cannot be {given}; it can be bool, a number, string, a timestamp, a date, a list or a struct"
    )


def _as_float(value: Any) -> float | None:
    try:
        return float(value) if _kind(value) in ("int", "float") else None
    except OverflowError:
        return None


def _as_time(value: Any, with_zone: bool) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", value))
    except ValueError:
        return None
    return found if (found.tzinfo is not None) == with_zone else None


def _as_date(value: Any) -> date | None:
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None

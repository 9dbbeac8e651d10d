"""`parse="json"`: the fields of JSON objects as columns. `scan` is a jlog.query.scan.Scan everywhere here."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow

from jlog.query.json_columns import ANY_FIELDS, check_type, columns_of, key_of, named, others_of
from jlog.query.json_inference import Inference, decoded
from jlog.record import FIELDS

SAMPLE_PLACES, SAMPLE_RECORDS = 10, 100  # spread over the range, and at each place
AT_ONCE = 2  # batches that are parsed, each by a thread, or wait to be taken
REST = "json_rest"  # the column of the fields that have none of their own
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns), *([^\]]+)\]\Z")


class JsonFields:
    """The fields, given as a schema or inferred from a sample at the first use, and the same ones from then on."""

    def __init__(self, schema: Any, max_columns: int) -> None:
        self._lock = threading.Lock()
        self._max_columns = max_columns
        self._fields = None if schema is None else named(_given(schema), FIELDS)
        self._rest: pyarrow.Field | None = None

    def fields(self, scan: Any) -> list[pyarrow.Field]:
        """Returns the fields with the names of their columns."""
        with self._lock:
            if self._fields is None:
                inference = Inference(self._max_columns)
                found = named(inference.fields(_sample(scan)), FIELDS)
                if inference.is_over:
                    taken = {*FIELDS, *(field.name for field in found)}
                    (self._rest,) = named([pyarrow.field(REST, ANY_FIELDS)], taken)
                    warnings.warn(
                        f"{scan.path}: the values have more than {self._max_columns:,} fields; others are in maps, such as "
                        f"{self._rest.name!r}, as texts in JSON. Name the fields that you need in a schema, or raise the limit",
                        stacklevel=2,
                    )
                self._fields = found
            return self._fields

    def columns(self, scan: Any) -> list[pyarrow.Field]:
        """Returns the fields as columns of the scan, those that it wants."""
        found = [*self.fields(scan), *([] if self._rest is None else [self._rest])]
        return [field for field in found if scan.columns is None or field.name in scan.columns]

    def parsed(self, scan: Any, limit: int | None) -> Iterator[pyarrow.RecordBatch]:
        """Iterates over the records with the columns of the fields."""
        schema = scan.pyarrow_schema
        fields, rest = self.fields(scan), self._rest
        wanted = [field for field in fields if schema.get_field_index(field.name) >= 0]
        wants_rest = rest is not None and schema.get_field_index(rest.name) >= 0
        keys = frozenset(map(key_of, fields))
        # The values are read as bytes here, also where the scan wants them as text, or does not want them.
        own = [field for field in scan.fields if field.name != "value"]
        if wanted or wants_rest or len(own) < len(scan.fields):
            own.append(FIELDS["value"])

        def parsed_batch(batch: Any) -> pyarrow.RecordBatch:
            records = pyarrow.record_batch(batch)
            columns = {name: records.column(name) for name in records.schema.names}
            if wanted:
                found = columns_of(records.column("value"), wanted)
                columns |= {field.name: column for field, column in zip(wanted, found, strict=True)}
            if rest is not None and wants_rest:
                columns[rest.name] = others_of(records.column("value"), keys)
            arrays = [columns[field.name] for field in schema]
            return pyarrow.RecordBatch.from_arrays(
                [_cast(array, field, records) for array, field in zip(arrays, schema, strict=True)], schema=schema
            )

        return side_by_side(parsed_batch, scan.batches(own or [FIELDS["sequence"]], limit))


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


def _given(schema: Any) -> list[pyarrow.Field]:
    """Returns the fields of schema=. Raises ValueError for a type that JSON does not give."""
    if hasattr(schema, "__arrow_c_schema__"):
        fields = list(pyarrow.schema(schema))
    elif isinstance(schema, Mapping):
        fields = [pyarrow.field(name, _type_of(name, given)) for name, given in schema.items()]
    else:
        raise TypeError(f"schema must be a dict of names and types, or have __arrow_c_schema__, not {schema!r}")
    for field in fields:
        check_type(field.type)
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


def _sample(scan: Any) -> Sequence[dict[str, Any]]:
    """Returns the objects of records that are spread over the range of the scan."""
    whole = replace(scan, parser=None, columns=("sequence", "value"), text=False, on_batch=None)
    first, end = whole.range()
    places, count = SAMPLE_PLACES, SAMPLE_RECORDS
    step = max((end - first) // places, count)
    found: list[Any] = []
    for begin in range(first, end, step):
        part = replace(whole, start=begin, end=min(begin + count, end))
        for batch in part.pyarrow_batches(count):
            found += [decoded(value) for value in batch.column("value").to_pylist()]
    return [value for value in found if isinstance(value, dict)]

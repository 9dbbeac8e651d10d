"""Infers the fields of JSON objects, and their types, from sampled values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

FIELDS_MAX = 1_000  # columns; a reader plans a query in a time that grows with their number
STRUCT_FIELDS_MAX = 100  # an object with more keys is mostly a map, whose keys are data
DEPTH_MAX = 16  # objects and arrays in each other; Spark and Python work through types recursively
DECIMAL_DIGITS = 38  # the most that Spark has
NUMBERS = (LongType(), DecimalType(DECIMAL_DIGITS, 0), DoubleType())  # each one holds those before it


def infer_fields(values: Iterable[str | bytes]) -> StructType:
    """Returns the fields of these objects in the order of their names. Where there are more than FIELDS_MAX, the most frequent
    ones count. Values that are not JSON objects do not count."""
    seen = Seen()
    for value in values:
        found = _parsed(value)
        if found is not None:
            seen.add(found)
    fields = seen.struct(FIELDS_MAX)
    return fields if _columns(fields) <= FIELDS_MAX else seen.struct(FIELDS_MAX, flat=True)


def folded(name: str) -> str:
    """Returns the name in a form that is equal for names which Spark does not tell apart. Java compares characters in upper and
    in lower case."""
    return name.upper().lower().replace("i\u0307", "i")


class Seen:
    """The values of one field."""

    def __init__(self) -> None:
        self._records = 0
        self._kinds: set[DataType] = set()
        self._fields: dict[str, Seen] = {}
        self._elements: Seen | None = None

    def add(self, value: object, depth: int = 0) -> None:
        """Adds a value. depth: the number of objects and arrays around it."""
        self._records += 1
        if isinstance(value, dict | list) and depth > DEPTH_MAX:
            self._kinds.add(StringType())
        elif isinstance(value, dict):
            self._kinds.add(StructType())
            for name, inner in value.items():
                self._fields.setdefault(name, Seen()).add(inner, depth + 1)
        elif isinstance(value, list):
            self._kinds.add(ArrayType(StringType()))
            self._elements = self._elements or Seen()
            for inner in value:
                self._elements.add(inner, depth + 1)
        elif value is not None:
            self._kinds.add(_kind_of(value))

    def type(self, *, flat: bool = False) -> DataType:
        """Returns the narrowest type that holds all values; text where they differ in kind. flat: objects and arrays are text
        too."""
        kinds = self._kinds
        if kinds and kinds.issubset(NUMBERS):
            return max(kinds, key=NUMBERS.index)
        if len(kinds) != 1:
            return StringType()
        (kind,) = kinds
        if isinstance(kind, ArrayType | StructType) and flat:
            return StringType()
        if isinstance(kind, ArrayType):
            assert self._elements is not None
            return ArrayType(self._elements.type())
        if isinstance(kind, StructType):
            found = self.struct(STRUCT_FIELDS_MAX)
            # Parquet has no struct without fields.
            return found if found.fields and len(self._fields) <= STRUCT_FIELDS_MAX else StringType()
        return kind

    def struct(self, most: int, *, flat: bool = False) -> StructType:
        """Leaves out fields without a name, and those that differ from a more frequent one only in case."""
        names: dict[str, str] = {}
        for name in sorted(self._fields, key=lambda name: (-self._fields[name]._records, name)):
            if _is_name(name) and len(names) < most:
                names.setdefault(folded(name), name)
        return StructType([StructField(name, self._fields[name].type(flat=flat)) for name in sorted(names.values())])


def _parsed(value: str | bytes) -> dict[str, object] | None:
    try:
        found = json.loads(value, parse_constant=lambda _: math.nan)
    except (ValueError, RecursionError):  # no JSON, or none that Python takes: too deep, too many digits
        return None
    return found if isinstance(found, dict) else None


def _kind_of(value: object) -> DataType:
    """Returns the type of a value that is not a container. A number that fits into no type stays text."""
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            return LongType()
        return DecimalType(DECIMAL_DIGITS, 0) if abs(value) < 10**DECIMAL_DIGITS else StringType()
    if isinstance(value, float) and not math.isinf(value):
        return DoubleType()
    return StringType()


def _is_name(name: str) -> bool:
    """Says whether a column can have this name. No text in UTF-8 has half a surrogate pair."""
    return name != "" and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _columns(kind: DataType) -> int:
    """Returns the number of columns that Parquet has for the type."""
    if isinstance(kind, StructType):
        return sum(_columns(field.dataType) for field in kind.fields)
    return _columns(kind.elementType) if isinstance(kind, ArrayType) else 1

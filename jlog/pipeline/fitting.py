"""Compares a value with its text, since Spark rounds, cuts off and wraps around what a type cannot hold."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

CHANGED = (ByteType, DateType, DecimalType, DoubleType, FloatType, TimestampNTZType, TimestampType)
DIGITS = 38  # the most that a decimal can have
# Of a double only the range counts: that it holds about 16 digits is its nature. Only so long a text can be out of the range.
OUT_OF_RANGE = r"\d[eE][-+]?\d\d|[\d.]{300}"
WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
WHOLE_DIGITS = (3, 5, 10, 19)  # the most that each of them can have
INFINITE = r"^\s*[-+]?[Ii][Nn][Ff]"
DATE = r"^\s*[-+]?\d{4,}-\d\d?-\d\d?"
TIME = r"[ T]\d\d?(:\d\d?(:\d\d?(\.\d{0,6}0*)?)?)?"
ZONE = r"(\s*[A-Za-z+-].*)?"


def holds_all(column: DataType, kind: DataType) -> bool:
    """Says whether a column of this type holds every value of the other one as it is. Spark also writes values into columns of
    types for which it rounds or cuts them off."""
    if isinstance(column, StructType) and isinstance(kind, StructType):
        there = {one.name.lower(): one.dataType for one in column}
        return all(holds_all(there.get(one.name.lower(), one.dataType), one.dataType) for one in kind)
    if isinstance(column, ArrayType) and isinstance(kind, ArrayType):
        return holds_all(column.elementType, kind.elementType)
    if isinstance(column, MapType) and isinstance(kind, MapType):
        return holds_all(column.keyType, kind.keyType) and holds_all(column.valueType, kind.valueType)
    if type(column) in WHOLE and type(kind) in WHOLE:  # Iceberg has no type below int
        return WHOLE.index(type(column)) >= WHOLE.index(type(kind))
    if isinstance(column, DecimalType) and isinstance(kind, DecimalType):
        return column.scale >= kind.scale and column.precision - column.scale >= kind.precision - kind.scale
    if isinstance(column, DecimalType) and type(kind) in WHOLE:
        return column.precision - column.scale >= WHOLE_DIGITS[WHOLE.index(type(kind))]
    return column == kind or (isinstance(column, DoubleType) and isinstance(kind, FloatType))


def may_change(kind: DataType) -> bool:
    """Says whether the type, or one inside it, is among those that Spark changes values for."""
    return isinstance(kind, CHANGED) or any(may_change(inner) for inner in _inside(kind))


def has_only_doubles(kind: DataType) -> bool:
    """Says whether a double is the only one of them in the type."""
    inner = _inside(kind)
    return all(map(has_only_doubles, inner)) if inner else isinstance(kind, DoubleType) or not may_change(kind)


def with_texts(kind: DataType) -> DataType:
    """Returns the type with text in place of each of them, or with as many more digits as a decimal can have."""
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, with_texts(one.dataType)) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(with_texts(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, with_texts(kind.valueType))
    if isinstance(kind, DecimalType) and kind.precision < DIGITS:  # Spark's texts of numbers in JSON are those of doubles
        return DecimalType(DIGITS, DIGITS - kind.precision + kind.scale)
    return StringType() if isinstance(kind, CHANGED) else kind


def is_changed(value: Column, text: Column, kind: DataType) -> Column:
    """Says whether a value is another one than its text, which has the type with_texts(kind). Nulls are never changed."""
    if isinstance(kind, StructType):
        fields = [one for one in kind.fields if may_change(one.dataType)]
        changed = (is_changed(value.getField(one.name), text.getField(one.name), one.dataType) for one in fields)
        return reduce(or_, changed, f.lit(False))
    if isinstance(kind, MapType):
        return is_changed(f.map_values(value), f.map_values(text), ArrayType(kind.valueType))
    if isinstance(kind, ArrayType):
        pairs = f.zip_with(value, text, lambda one, other: is_changed(one, other, kind.elementType))
        return f.coalesce(f.exists(pairs, lambda changed: changed), f.lit(False))
    if not isinstance(kind, CHANGED):
        return f.lit(False)
    return text.isNotNull() & ~f.coalesce(value.isNotNull() & _is_same(value, text, kind), f.lit(False))


def _is_same(value: Column, text: Column, kind: DataType) -> Column:
    if isinstance(kind, DateType):
        return text.rlike(rf"{DATE}\s*$")
    if isinstance(kind, TimestampNTZType):
        return text.rlike(rf"{DATE}({TIME})?\s*$")
    if isinstance(kind, TimestampType):
        return text.rlike(rf"{DATE}({TIME}{ZONE})?\s*$") | text.rlike(r"^-?\d+$")  # a number is of seconds
    if isinstance(kind, DecimalType):
        return (
            value == text if kind.precision < DIGITS else text.rlike(rf"^\s*[-+]?\d*(\.\d{{0,{kind.scale}}}0*)?([eE].*)?\s*$")
        )
    if isinstance(kind, ByteType):
        return text.try_cast("tinyint").isNotNull()
    in_range = (f.abs(value) == f.lit(float("inf"))) == text.rlike(INFINITE)
    if isinstance(kind, DoubleType):
        return in_range
    return in_range & ((value.cast("double") == _double(text)) | (_double(value.cast("string")) == _double(text)))


def _double(text: Column) -> Column:
    return text.try_cast("double")


def _inside(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [one.dataType for one in kind.fields]
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    return [kind.valueType] if isinstance(kind, MapType) else []

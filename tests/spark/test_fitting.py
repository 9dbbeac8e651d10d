"""Which columns of a table hold every value of a type as it is."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from jlog.pipeline.fitting import holds_all

HELD = [
    ("bigint", "tinyint"),
    ("int", "int"),
    ("double", "float"),
    ("decimal(12,2)", "decimal(10,1)"),
    ("decimal(21,2)", "bigint"),
    ("decimal(12,2)", "int"),
    ("array<bigint>", "array<int>"),
    ("map<string,int>", "map<string,smallint>"),
    ("struct<A: bigint, b: string>", "struct<a: int>"),
    ("string", "string"),
]
CHANGED = [
    ("int", "bigint"),
    ("bigint", "double"),
    ("double", "bigint"),
    ("float", "double"),
    ("float", "int"),
    ("decimal(10,1)", "decimal(10,2)"),
    ("decimal(10,2)", "decimal(10,1)"),
    ("decimal(20,2)", "bigint"),
    ("string", "bigint"),
    ("string", "binary"),
    ("date", "timestamp"),
    ("timestamp", "timestamp_ntz"),
    ("boolean", "int"),
    ("array<int>", "array<bigint>"),
    ("map<int,int>", "map<bigint,int>"),
    ("struct<a: struct<b: int>>", "struct<a: struct<b: bigint>>"),
    ("bigint", "struct<a: bigint>"),
]


def is_held(column: str, kind: str) -> bool:
    types = StructType.fromDDL(f"a {column}, b {kind}")
    assert isinstance(types, StructType)
    return holds_all(types["a"].dataType, types["b"].dataType)


@pytest.mark.usefixtures("spark")  # Java reads the types
@pytest.mark.parametrize(("column", "kind"), HELD)
def test_a_column_that_is_as_wide_holds_all(column: str, kind: str) -> None:
    assert is_held(column, kind)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("column", "kind"), CHANGED)
def test_a_column_that_would_round_cut_off_or_reinterpret_does_not(column: str, kind: str) -> None:
    assert not is_held(column, kind)

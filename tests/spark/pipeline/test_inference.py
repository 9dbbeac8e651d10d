"""The fields of JSON objects and their types."""

from __future__ import annotations

import json

import pytest

from jlog.pipeline.inference import DEPTH_MAX, FIELDS_MAX, STRUCT_FIELDS_MAX, infer_fields


def ddl(*values: str) -> str:
    return infer_fields(values).simpleString().removeprefix("struct<").removesuffix(">")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2"], "bigint"),
        (["1", "0.5"], "double"),
        (["1", "null"], "bigint"),
        (["null"], "string"),
        (["18446744073709551615", "1"], "decimal(38,0)"),
        (["18446744073709551615", "0.5"], "double"),
        (["1" * 39], "string"),
        (["1" * 5000, "true"], "boolean"),  # Python takes no number of so many digits
        (["1e400"], "string"),
        (["NaN", "1"], "double"),
        (["true", "1"], "string"),
        (["1", '"x"'], "string"),
        (["[]", "[1]", "[0.5]"], "array<double>"),
        (["[1]", "1"], "string"),
        (["{}"], "string"),
        (['{"x": 1}', '{"y": [{"z": true}]}'], "struct<x:bigint,y:array<struct<z:boolean>>>"),
        (['{"x": 1}', "1"], "string"),
    ],
)
def test_a_type_holds_all_values_of_a_field(values: list[str], expected: str) -> None:
    assert ddl(*(f'{{"n": {value}}}' for value in values)) == f"n:{expected}"


def test_values_that_are_not_objects_do_not_count() -> None:
    assert ddl("1", "[1]", "text", '{"a": 1', "[" * 100_000, '{"a": true}') == "a:boolean"


def test_fields_that_no_column_can_hold_are_left_out() -> None:
    assert (
        ddl('{"": 1, "\\ud800": 1, "level": 1, "LEVEL": 1, "\u0131d": 1, "ID": 1}', '{"LEVEL": 1}') == "ID:bigint,LEVEL:bigint"
    )


def test_of_many_fields_the_most_frequent_are_columns() -> None:
    names = [f"k{number}" for number in range(10 * FIELDS_MAX)]
    found = infer_fields([json.dumps(dict.fromkeys(names, 1)), '{"often": 1}', '{"often": 1}'])
    assert (len(found.fields), "often" in found.names) == (FIELDS_MAX, True)


def test_an_object_with_very_many_keys_is_text() -> None:
    inner = dict.fromkeys(map(str, range(STRUCT_FIELDS_MAX + 1)), 1)
    assert ddl(json.dumps({"by_user": inner})) == "by_user:string"


def test_many_large_objects_are_text() -> None:
    inner = dict.fromkeys(map(str, range(STRUCT_FIELDS_MAX)), 1)
    found = infer_fields([json.dumps({f"k{number}": inner for number in range(FIELDS_MAX)})])
    assert {field.dataType.simpleString() for field in found.fields} == {"string"}


def test_very_deep_objects_are_text_below_a_depth() -> None:
    depth = 900
    found = ddl('{"a":' * depth + "1" + "}" * depth)
    assert found.count("struct") == DEPTH_MAX
    assert found.endswith("a:string" + ">" * DEPTH_MAX)

"""Values that are hard to parse: each one is a row with all its fields, or goes to the quarantine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import exhaustive
from jlog.pipeline.checkpoint import Checkpoint
from jlog.pipeline.inference import FIELDS_MAX
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import PipelinePlan

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]
NO_OBJECT, WRONG_TYPE, HALF_PAIR = (
    "the value is not a JSON object",
    "a field does not fit into its column",
    "the value has half a surrogate pair",
)
DEEP = '{"a":' * 900 + "1" + "}" * 900
LONG = "x" * (10 << 20)
FLAT = "n bigint, x double, s string"
SCHEMA = "n bigint, x double, s string, at struct<x bigint, l array<struct<y bigint>>>"


@pytest.mark.parametrize(
    ("schema", "is_given"),
    [exhaustive.only(FLAT, True), (FLAT, False), (SCHEMA, True)],
    ids=["given", "as seen", "nested"],
)
def test_each_value_is_a_row_or_in_the_quarantine(
    spark: SparkSession, run: Run, plan: PipelinePlan, rows: Rows, schema: str, is_given: bool
) -> None:
    good: list[tuple[str, dict[str, Any]]] = [
        ('\n\t {"n": 1} \n', {"n": 1}),
        ("{}", {}),
        ('{"n": 1, "n": 2}', {"n": 2}),
        ('{"N": 1}', {"other": [("N", "1")]}),
        ('{"n": null, "new": null}', {"other": [("new", None)]}),
        ('{"a.b": 1, "`": 2, "": 3, "\u00e4 \U0001f600": "\\ud83d\\ude00 \\\\ud83d"}',
         {"other": [("a.b", "1"), ("`", "2"), ("", "3"), ("\u00e4 \U0001f600", "\U0001f600 \\ud83d")]}),
        ('{"x": 18446744073709551616, "s": 18446744073709551616}', {"x": 2.0**64, "s": "18446744073709551616"}),
        ('{"s": {"a": [1, "]}"]}}', {"s": '{"a":[1,"]}"]}'}),
        (f'{{"s": "{LONG}"}}', {"s": LONG}),
        (f'{{"s": {DEEP}}}', {"s": DEEP}),
        ('{"x": NaN, "new": 1}', {"other": [("new", "1")]}),
    ]  # fmt: skip
    bad = [
        ('{"n": 1}{"n": 2}', NO_OBJECT),
        ('{"n": 1} x', NO_OBJECT),
        ('{"n": 1},{"n": 2}', NO_OBJECT),
        ('{"n": 1}],[{"n": 2}', NO_OBJECT),
        ('{"n": 1},"_":{"n": 2}', NO_OBJECT),
        ('{"n": 1', NO_OBJECT),
        ('[{"n": 1}]', NO_OBJECT),
        ("null", NO_OBJECT),
        ("\ufeff{}", NO_OBJECT),
        ('{"new": ' + '{"a":' * 2000 + "1" + "}" * 2001, NO_OBJECT),
        ('{"n": 9223372036854775808}', WRONG_TYPE),
        ('{"n": 0.5}', WRONG_TYPE),
        ('{"n": "1"}', WRONG_TYPE),
        ('{"s": "\\ud83d"}', HALF_PAIR),
        ('{"\\\\\\uDE00": 1}', HALF_PAIR),
    ]
    values = [text.encode() for text, _ in [*good, *bad]]
    if is_given:
        plan = replace(plan, schema=schema)
    else:
        fields = StructType.fromDDL(schema)
        assert isinstance(fields, StructType)
        Checkpoint(spark, plan.checkpoint).keep_fields(fields)
    found = run(plan, values)
    assert (found.records_out, found.records_bad) == (len(good), len(bad))
    for (text, expected), row in zip(good, rows(), strict=True):
        known = {name: row[name] for name in ("n", "s", "other") if row[name] is not None}
        if row["x"] is not None and row["x"] == row["x"]:
            known["x"] = row["x"]
        assert known == expected, text[:100]
    refused = rows(plan.quarantine)
    assert [(row["value"].decode(), row["error"]) for row in refused] == bad


def test_unknown_keys_in_known_objects_are_kept(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    values = [
        b'{"at": {"x": 1, "l": [{"y": 1}, {"y": 2}]}}',
        b'{"at": {"x": 1, "z": 2}}',
        b'{"at": {"l": [{"y": 1}, {"y": 2, "z": [3]}]}, "n": 1}',
        b'{"at": null}',
    ]
    run(replace(plan, schema=SCHEMA), values)
    assert [row["other"] for row in rows()] == [
        None,
        [("at", '{"x":1,"z":2}')],
        [("at", '{"l":[{"y":1},{"y":2,"z":[3]}]}')],
        None,
    ]
    assert rows()[1]["at"]["x"] == 1


@pytest.mark.parametrize("parse", ["json", "logfmt"])
def test_fields_without_a_schema_lose_nothing(run: Run, plan: PipelinePlan, rows: Rows, parse: str) -> None:
    """Records with more fields than columns, and fields of any name, lose nothing either."""
    names = [f"k{number}" for number in range(10 * FIELDS_MAX)]
    odd = ["a.b", "`", "\u00e4", "A", "a", "\u0130d", "id", "timestamp", "value_timestamp", "Other", "date"]
    if parse == "json":
        values = [json.dumps(dict.fromkeys(some, "1")).encode() for some in (odd, odd, names)]
        values += [DEEP.encode(), json.dumps({"a": LONG, " ,;{}()=": 1}).encode()]
    else:
        values = [" ".join(f"{name}=1" for name in some).encode() for some in (odd, odd, names)]
        values += [b"a=" + LONG.encode(), b'a="' + LONG.encode() + b'"', LONG.encode() + b" a=1"]
    found = run(replace(plan, parser=Parser(parse)), values)
    assert (found.records_out, found.records_bad) == (len(values), 0)
    for value, row in zip(values, rows(), strict=True):
        kept = {name: text for name, text in row.items() if name not in ("sequence", "journal", "key", "headers")}
        fields = {*(name for name, text in kept.items() if text is not None), *dict(row["other"] or [])}
        text = value.decode()
        wanted = json.loads(text) if parse == "json" else [word.partition("=")[0] for word in text.split() if "=" in word]
        assert {name.removeprefix("value_") for name in wanted} <= {name.removeprefix("value_") for name in fields}


def test_no_value_ends_the_pipeline(run: Run, plan: PipelinePlan) -> None:
    """Objects with bytes changed, cut out and doubled."""
    chance = random.Random(1)
    whole = json.dumps({"n": 1, "s": '\u00e4\\"', "at": {"x": [1.5, None, {"y": True}]}, "t": "\ud83d\ude00"}).encode()
    values = []
    for _ in range(2_000):
        value = bytearray(whole)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(value))
            value[at : at + chance.randrange(3)] = bytes(chance.choices(b'{}[]",:\\u0d8\x00\xff 1eN', k=chance.randrange(3)))
        values.append(bytes(value))
    found = run(plan, values)
    assert found.records_in == found.records_out + found.records_bad == len(values)
    assert found.records_out > 100
    assert found.records_bad > 100


def test_a_value_that_is_too_long_for_the_parser_is_quarantined(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    values = [b'{"n": 1}', b'{"s": "%s"}' % (b"x" * (21 << 20)), b'{"%s": 1}' % (b"k" * 60_000), b'{"n": %s}' % (b"1" * 2_000)]
    found = run(plan, values)
    assert found.records_in == found.records_out + found.records_bad == len(values)
    kept = {row["sequence"] for row in rows() if row["sequence"] == 0 or row["other"] or row.get("s")}
    assert kept | {row["sequence"] for row in rows(plan.quarantine)} == {0, 1, 2, 3}

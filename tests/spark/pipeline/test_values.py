"""Each value is in its columns exactly as it was, or whole in the quarantine: one property for each parser."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exhaustive
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import PipelinePlan

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]

FITTING = [
    ("tiny tinyint", "127", 127),
    ("tiny tinyint", "-128", -128),
    ("small smallint", "-32768", -32768),
    ("whole bigint", "9223372036854775807", 2**63 - 1),
    ("price decimal(10,2)", "19.99", Decimal("19.99")),
    ("price decimal(10,2)", "19.9900", Decimal("19.99")),
    ("price decimal(10,2)", "1999e-2", Decimal("19.99")),
    ("price decimal(10,2)", "-2e2", Decimal(-200)),
    ("ratio float", "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
    ("ratio float", "16777216", 16777216.0),
    ("ratio float", "18446744073709551616", 2.0**64),
    ("x double", "0.1", 0.1),
    ("x double", "1e300", 1e300),
    ("x double", "-0.0", -0.0),
    ("day date", '"2026-01-31"', date(2026, 1, 31)),
    ("at timestamp", '"2026-01-31T23:30:00.123456-05:00"', datetime(2026, 2, 1, 4, 30, 0, 123456, timezone.utc)),
    ("here timestamp_ntz", '"2026-01-31T23:30:00.5"', datetime.fromisoformat("2026-01-31T23:30:00.500000")),
]
CHANGED = [
    ("tiny tinyint", "200"),
    ("tiny tinyint", "-129"),
    ("small smallint", "32768"),
    ("whole bigint", "9223372036854775808"),
    ("price decimal(10,2)", "19.999"),
    ("price decimal(10,2)", "1e-3"),
    ("price decimal(10,2)", "1.00000000000000000001"),
    ("price decimal(10,2)", "100000000"),
    ("ratio float", "16777217"),
    ("ratio float", "1e39"),
    ("ratio float", "1e-60"),
    ("x double", "1e400"),
    ("x double", "-1e400"),
    ("x double", "1" * 400),
    ("day date", '"2026-01-31T23:30:00-05:00"'),
    ("day date", '"2026-01"'),
    ("at timestamp", '"2026-01-31T23:30:00.1234567Z"'),
    ("at timestamp", '"10:00:00"'),
    ("here timestamp_ntz", '"2026-01-31T23:30:00-05:00"'),
]
FIELDS = list(dict.fromkeys(field for field, *_ in FITTING))


def known(row: dict[str, Any]) -> dict[str, Any]:
    names = [field.split()[0] for field in FIELDS]
    return {name: row[name] for name in names if row[name] is not None}


@pytest.mark.parametrize("parse", ["json", *map(exhaustive.only, ["logfmt", "regex"])])
def test_a_value_that_a_type_cannot_hold_is_quarantined_and_never_changed(
    run: Run, plan: PipelinePlan, rows: Rows, parse: str
) -> None:
    def value(field: str, text: str) -> bytes:
        name = field.split(maxsplit=1)[0]
        if parse == "json":
            return f'{{"{name}": {text}}}'.encode()
        text = text.strip('"')
        return f"{name}={text}".encode()

    pattern = "^" + "".join(f"(?:{field.split()[0]}=(?<{field.split()[0]}>.*))?" for field in FIELDS) + "$"
    parser = Parser(parse, pattern if parse == "regex" else None)
    values = [*(value(field, text) for field, text, _ in FITTING), *(value(*one) for one in CHANGED)]
    run(replace(plan, parser=parser, schema=", ".join(FIELDS)), values)
    expected = [{field.split()[0]: fits} for field, _, fits in FITTING]
    assert [known(row) for row in rows()] == expected
    assert [row["value"] for row in rows(plan.quarantine)] == values[len(FITTING) :]


def test_timestamps_without_a_zone_by_default_change_no_column_but_those_of_the_schema(
    spark: SparkSession, run: Run, plan: PipelinePlan
) -> None:
    """`timestamp` in --schema then means what it means in all of Spark's SQL."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        good, bad = b'{"at": "2026-01-31T23:30:00"}', b'{"at": "2026-01-31T23:30:00-05:00"}'
        plan = replace(plan, schema="at timestamp", partition_by=("date", "hour"))
        found = run(plan, [good, bad], timestamps_us=[1_767_225_599_000_000] * 2)
        kept, quarantined = spark.read.parquet(plan.dest), spark.read.parquet(plan.quarantine)
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert (found.records_out, found.records_bad) == (1, 1)
    assert {name: dict(kept.dtypes)[name] for name in ("timestamp", "at", "date")} == {
        "timestamp": "timestamp",
        "at": "timestamp_ntz",
        "date": "date",
    }
    (row,) = kept.selectExpr("unix_micros(timestamp) AS us", "date", "hour", "at").collect()
    assert (row.us, row.date, row.hour) == (1_767_225_599_000_000, date(2025, 12, 31), 23)
    assert row.at == datetime.fromisoformat("2026-01-31T23:30:00")
    assert [bytes(one.value) for one in quarantined.collect()] == [bad]


def test_values_inside_arrays_objects_and_maps_are_held_or_quarantined(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    good = [b'{"a": [1, null, 2]}', b'{"o": {"p": 1.25}}', b'{"o": null, "m": {"x": 0.5, "y": null}}', b'{"a": null}']
    bad = [b'{"a": [1, 200]}', b'{"o": {"p": 1.255}}', b'{"m": {"x": 0.5, "y": 16777217}}']
    schema = "a array<tinyint>, o struct<p decimal(5,2)>, m map<string,float>"
    run(replace(plan, schema=schema), [*good, *bad])
    found = [(row["a"], row["o"] and row["o"]["p"], row["m"]) for row in rows()]
    assert found == [
        ([1, None, 2], None, None),
        (None, Decimal("1.25"), None),
        (None, None, [("x", 0.5), ("y", None)]),
        (None,) * 3,
    ]
    assert [row["value"] for row in rows(plan.quarantine)] == bad


def test_a_number_is_its_double_or_in_the_quarantine(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    """Numbers have any size."""
    chance = random.Random(7)
    texts = [f"{chance.uniform(-9, 9)!r}e{chance.randint(-420, 420)}" for _ in range(300)]
    texts = [re.sub(r"e-?\d+(?=e)", "", text) for text in texts] + ["0.5"] * 300
    values = [b'{"x": %s}' % text.encode() for text in texts]
    found = run(replace(plan, schema="x double"), values)
    kept = {row["sequence"]: row["x"] for row in rows()}
    for sequence, text in enumerate(texts):
        fits = float(text) not in (float("inf"), float("-inf"))
        assert kept.get(sequence) == (float(text) if fits else None), text
    assert found.records_bad > 10


def test_a_number_that_no_double_can_hold_is_quarantined_wherever_it_is(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    """A text column and `other` have Spark's text of a number, which is that of a double, but for whole numbers."""
    numbers = ["1e400", "-1e400", "12.5E+309", "1" * 310 + ".5"]
    places = ('{"s": N}', '{"t": [N]}', '{"o": {"x": N}}')
    bad = [place.replace("N", number) for number in numbers for place in places]
    good = ['{"s": N, "t": N}'.replace("N", number) for number in ("1" * 51, "1e300", '"1e400 \\"1e400"', "1" * 400)]
    run(replace(plan, schema="s string"), [text.encode() for text in [*good, *bad]])
    found = [(row["s"], dict(row["other"])["t"]) for row in rows()]
    assert found == [("1" * 51,) * 2, ("1.0E300",) * 2, ('1e400 "1e400',) * 2, ("1" * 400,) * 2]
    assert [row["value"].decode() for row in rows(plan.quarantine)] == bad


# --- logfmt -----------------------------------------------------------------------------------------------------------

ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\x1b", "\b": "\\b", "\x00": "\\u0000"}
LETTERS = 'abnrtux\\"= \n\t\r\x1b\b\x00é€\U0001f600{}:,d8'


def quoted(text: str) -> str:
    """Quotes as Go's strconv.Quote does."""
    return '"' + "".join(ESCAPES.get(letter, letter) for letter in text) + '"'


def lines(chance: random.Random, count: int) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yields lines with their pairs, and the words between them."""
    for _ in range(count):
        pairs, words, parts = {}, [], []
        for key in chance.sample(["a", "b", "path", "new"], chance.randint(1, 4)):
            pairs[key] = "".join(chance.choices(LETTERS, k=chance.randint(0, 8)))
            parts.append(f"{key}={quoted(pairs[key])}")
            if chance.random() < 0.3:
                words.append(chance.choice(["connection", "refused", "refused", "C:\\new"]))
                parts.append(words[-1])
        yield " ".join(parts), pairs, " ".join(words)


def test_a_logfmt_line_is_its_pairs_and_words(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    wanted = [*lines(random.Random(7), 500)]
    wanted += [("a=1 refused", {"a": "1"}, "refused"), (r"a=C:\new b=", {"a": r"C:\new", "b": ""}, "")]
    run(replace(plan, parser=Parser("logfmt"), schema="a string, b string"), [line.encode() for line, _, _ in wanted])
    for (line, pairs, words), row in zip(wanted, rows(), strict=True):
        found = {name: row[name] for name in ("a", "b") if row[name] is not None} | dict(row["other"] or [])
        assert found == (pairs | {"": words} if words else pairs), line


def test_a_logfmt_line_that_cannot_be_read_is_quarantined(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    bad = [b"no pairs at all", rb'a="\q"', rb'a="\xff"', rb'a="\ud83d"', b'a="open', b'a="x"b']
    run(replace(plan, parser=Parser("logfmt")), [b"a=1", *bad])
    assert [row["value"] for row in rows(plan.quarantine)] == bad


def test_words_are_not_a_field(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    """They neither become a column nor end a pipeline that takes no new fields."""
    run(replace(plan, parser=Parser("logfmt"), evolve="fail"), [b"a=1 refused"] * 3)
    assert [(row["a"], row["other"]) for row in rows()] == [("1", [("", "refused")])] * 3


# --- regex ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?<a>[^,]*)(?:,(?<b>.*))?$",
        exhaustive.only(r"(?<a>x*)(?<b>y)??z?"),
        "(?x)^ (?<a>x*) # the first\n (?:, (?<b>y*) )? # and the second",
        exhaustive.only(r"(?i)(?:(?<a>X)|(?<b>,?))\Z"),
        exhaustive.only(r"(?<b>y*),|(?<a>x*)"),
    ],
)
def test_a_group_that_matched_nothing_is_empty_and_one_that_took_no_part_is_null(
    run: Run, plan: PipelinePlan, rows: Rows, pattern: str
) -> None:
    chance = random.Random(7)
    texts = ["x,", "x", "x,y", ""] + ["".join(chance.choices("xyz,", k=chance.randint(0, 5))) for _ in range(200)]
    run(replace(plan, parser=Parser("regex", pattern)), [text.encode() for text in texts])
    compiled = re.compile(pattern.replace("(?<", "(?P<"))
    matches = {number: match for number, text in enumerate(texts) if (match := compiled.search(text))}
    assert {row["sequence"]: (row["a"], row["b"]) for row in rows()} == {
        number: (match["a"], match["b"]) for number, match in matches.items()
    }


def test_the_quarantine_names_the_column(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    run(replace(plan, parser=Parser("logfmt"), schema="n tinyint"), [b"n=200"])
    assert [row["error"] for row in rows(plan.quarantine)] == ["n does not fit into tinyint"]
    assert json.dumps(rows(plan.quarantine)[0]["value"].decode()) == '"n=200"'

"""A value of a column to partition by is given back by every reader as it was, or its record is in the quarantine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exhaustive
from jlog.pipeline.parsing import Parser
from jlog.pipeline.partitions import ANOTHER
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import PipelinePlan

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]

SAFE = [
    "7",
    "-7",
    "0",
    "12345678901",
    "9" * 38,
    "2026-01-31",
    "x",
    "true",
    "null",
    "inf",
    "10:00",
    "1_0",
    "2026-01",
    "-",
    "é\u2028",
]
SAFE += [" ", " x ", "a/b=%41", "a\nb\x01", "^[{*?}]\\", ".", "..", "x" * 249, "ü" * 124, "/" * 83, "\U0001f600", "A", "a"]
CHANGED = ["", "__HIVE_DEFAULT_PARTITION__", "a\x00b", "x" * 250, "ü" * 125, "/" * 84, "9" * 39, "2026-01-31 10:00:00"]
CHANGED += ["007", "-0", "+7", "1.5", "1.50", "1e5", "1d", "5f", ".5", "5.", " 7", "0x1p3", "NaN", "Infinity", "\u0667"]
LETTERS = "0017+-.eEdfxé \n/%=_:\x00"


def value(text: str, **more: Any) -> bytes:
    return json.dumps({"level": text, **more}).encode()


def texts_read(spark: SparkSession, directory: str) -> list[str]:
    """Returns the texts in the order of the records, as Spark reads them with the type that it finds."""
    found = spark.read.parquet(directory).selectExpr("sequence", "cast(level AS string) AS level").collect()
    return [row["level"] for row in sorted(found, key=lambda row: int(row["sequence"]))]


def test_a_text_is_given_back_or_quarantined(spark: SparkSession, run: Run, plan: PipelinePlan, rows: Rows) -> None:
    chance = random.Random(7)
    chosen = ["".join(chance.choices(LETTERS, k=chance.randint(1, 5))) for _ in range(40)]
    texts = list(dict.fromkeys([*SAFE, *CHANGED, *chosen]))
    run(replace(plan, partition_by=("level",)), [value(text) for text in texts])
    bad = rows(plan.quarantine)
    kept = [text for number, text in enumerate(texts) if number not in {row["sequence"] for row in bad}]
    assert [json.loads(row["value"])["level"] for row in bad if row["sequence"] < len(SAFE + CHANGED)] == CHANGED
    assert [row["level"] for row in rows()] == texts_read(spark, plan.dest) == kept
    assert {row["error"] for row in bad} >= {
        "level is empty, which readers of a directory take for null",
        "level is too long for the name of a directory",
        "level has the character NUL, which no name of a directory can have",
        f"level is text that readers of directories take for a number or a time; {ANOTHER}",
    }


@pytest.mark.parametrize("safe", [["7", "9" * 38], ["2026-01-31", "9999-12-31"], exhaustive.only(["7", "-7", "12345678901"])])
def test_where_all_texts_look_typed_each_is_given_back_or_quarantined(
    spark: SparkSession, run: Run, plan: PipelinePlan, rows: Rows, safe: list[str]
) -> None:
    """Readers then take the column for numbers or dates."""
    texts = [*safe, *(text for text in CHANGED if text.strip("+-. ")[:1].isdecimal() or text in ("NaN", "Infinity"))]
    run(replace(plan, partition_by=("level",)), [value(text) for text in texts])
    assert texts_read(spark, plan.dest) == [str(row["level"]) for row in rows()] == safe
    assert [json.loads(row["value"])["level"] for row in rows(plan.quarantine)] == texts[len(safe) :]


def test_nulls_and_other_types_are_given_back(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    values = [b'{"n": 7, "x": 1.5, "is": true}', b'{"n": null}', b'{"n": -7, "x": -0.25, "is": false}']
    run(replace(plan, partition_by=("n", "x", "is"), schema="n bigint, x double, is boolean"), values)
    assert [row["n"] for row in rows()] == [7, None, -7]
    assert [row["x"] and float(row["x"]) for row in rows()] == [1.5, None, -0.25]
    assert [row["is"] for row in rows()] == ["true", None, "false"]


def test_the_pipeline_goes_on_after_a_value_that_no_directory_can_be_named_by(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    plan = replace(plan, partition_by=("level",))
    found = run(plan, [value("x" * 300, n=1), value("info", n=2)])
    assert (found.records_out, found.records_bad) == (1, 1)
    run(plan, [value("info", n=3)])
    assert [row["n"] for row in rows()] == [2, 3]


def test_keys_that_name_no_directory_are_quarantined_without_parsing(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    plan = replace(plan, parser=Parser("none"), partition_by=("key",))
    found = run(plan, [b"%d" % number for number in range(5)], keys=[b"k", b"", None, b"\xff", b"\xc3\xa9"])
    assert (found.records_in, found.records_out, found.records_bad) == (5, 3, 2)
    assert [(row["key"], row["value"]) for row in rows()] == [("k", b"0"), (None, b"2"), ("é", b"4")]
    assert [(row["key"], row["value"]) for row in rows(plan.quarantine)] == [(b"", b"1"), (b"\xff", b"3")]


@pytest.mark.parametrize("name", ["_type", ".type", ""])
def test_a_name_that_readers_leave_out_is_refused_for_plain_files(plan: PipelinePlan, name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^--partition-by {name}: readers .* would not see the rows. .*or use --format delta"
    ):
        replace(plan, partition_by=("date", name))
    assert replace(plan, partition_by=(name,), format="delta")


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("at timestamp", "at is timestamp, and readers take the time in a directory's name for one of their own zone"),
        exhaustive.only("at timestamp_ntz", "at is timestamp_ntz, and readers take"),
        exhaustive.only("at decimal(16,2)", r"at is decimal\(16,2\), and readers take a directory's name for a double"),
        (f"{'x' * 229} string", f"the name of the column {'x' * 229} is too long for a directory"),
    ],
)
def test_a_column_that_no_reader_gives_back_is_refused_before_the_first_row(
    run: Run, plan: PipelinePlan, field: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        run(replace(plan, schema=field, partition_by=(field.split(maxsplit=1)[0],)), [b"{}"])


def test_a_time_that_has_no_date_of_four_digits_is_there_with_its_time(
    spark: SparkSession, run: Run, plan: PipelinePlan, rows: Rows
) -> None:
    """A directory with a date of five digits would turn the column into text, for all dates."""
    year_10000, year_0 = 253_402_300_800_000_000, -62_135_596_800_000_001
    times = [year_0, year_0 + 1, -1, year_10000 - 1, year_10000]
    run(plan, [b'{"n": 1}', b"bad"] * len(times), timestamps_us=[time for time in times for _ in "ab"])
    dates = [None, date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]
    for directory in (plan.dest, plan.quarantine):
        found = spark.read.parquet(directory).selectExpr("sequence", "unix_micros(timestamp) AS us", "date").collect()
        found.sort(key=lambda row: int(row["sequence"]))
        assert [(row["us"], row["date"]) for row in found] == list(zip(times, dates, strict=True))

"""The values of arguments and options: how text is parsed."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest

from jlog.cli.arguments.parameters import parse_size
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import to_json
from jlog.positions.times import parse_position


@pytest.mark.parametrize("text", ["begin", "end", "before-batch", "+5", "-5", "²", "2026-name", "noon", ""])
def test_text_that_is_not_a_number_and_no_time_is_a_name(text: str) -> None:
    assert parse_position(text) == text


@pytest.mark.parametrize(("text", "sequence"), [("0", 0), ("007", 7), ("18446744073709551615", (1 << 64) - 1)])
def test_digits_are_a_sequence(text: str, sequence: int) -> None:
    assert parse_position(text) == sequence


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4K", 4096),
        ("4 KiB", 4096),
        ("64mib", 64 << 20),
        ("1GB", 1 << 30),
        ("7B", 7),
    ],
)
def test_sizes_have_units_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "1.5K", "-1", "1X", "1 000", "٣"])
def test_a_bad_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB"), (5 << 50, "5120.0 TiB")],
)
def test_sizes_are_printed_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text


def test_every_value_of_a_query_has_a_form_in_json() -> None:
    row = {"date": date(2026, 11, 20), "sum": Decimal("1.5"), "value": b"text \xff", "none": None}
    assert json.loads(to_json(row)) == {"date": "2026-11-20", "sum": 1.5, "value": "text \\xff", "none": None}

"""The values of arguments and options: how text is parsed."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest

from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import to_json
from jlog.system.texts import parse_position


@pytest.mark.parametrize("text", ["begin", "end", "before-batch", "+5", "-5", "²", "2026-name", "noon", ""])
def test_text_that_is_not_a_number_and_no_time_is_a_name(text: str) -> None:
    assert parse_position(text) == text


@pytest.mark.parametrize(("text", "sequence"), [("0", 0), ("007", 7), ("18446744073709551615", (1 << 64) - 1)])
def test_digits_are_a_sequence(text: str, sequence: int) -> None:
    assert parse_position(text) == sequence


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB"), (5 << 50, "5120.0 TiB")],
)
def test_sizes_are_printed_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text


def test_every_value_of_a_query_has_a_form_in_json() -> None:
    row = {"date": date(2026, 11, 20), "sum": Decimal("1.5"), "value": b"text \xff", "none": None}
    assert json.loads(to_json(row)) == {"date": "2026-11-20", "sum": 1.5, "value": "text \\xff", "none": None}

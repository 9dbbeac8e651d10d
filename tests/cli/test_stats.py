"""`jlogtool stats`."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

import jlog
from behaviour.journals import SMALL, fill
from cli.command import HUNG_SECONDS, do, run, start
from jlog.cli.terminal import figures

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def busy(journal: Path) -> Path:
    """With something to count."""
    with jlog.Writer(journal, **SMALL) as writer:
        fill(writer, 200)
        writer.sync()
        jlog.Journal(journal).add_subscriber("billing", start=50)
    return journal


def test_json_has_everything_that_the_api_has(busy):
    found, stats = do("stats", "--json", busy).json, jlog.Journal(busy).stats()
    assert found["path"] == str(busy)
    for field in fields(jlog.Stats):
        if field.name not in ("subscribers", "counters"):
            assert found[field.name] == getattr(stats, field.name), field.name
    assert found["counters"] == dict(stats.counters)
    (billing,) = found["subscribers"]
    assert (billing["name"], billing["sequence"], billing["lag"]) == ("billing", 50, 150)
    assert (billing["busy"], billing["dead"], billing["expired"], billing["damaged"]) == (
        False,
        False,
        False,
        False,
    )
    assert billing["held_bytes"] == stats.subscribers["billing"].held_bytes > 0
    assert billing["oldest_unread_seconds"] >= billing["idle_seconds"] > 0


def test_for_people_each_figure_and_each_subscriber_has_a_line(busy):
    text = do("stats", busy).out.decode()
    stats = jlog.Journal(busy).stats()
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert lines["appends"] == lines["records"] == lines["next_sequence"] == ["200"]
    assert lines["bytes"] == ["21.1", "KiB"]
    assert lines["rolls"] == [str(stats.rolls)]
    assert set(stats.counters) - {"records", "raw_bytes"} <= lines.keys()
    assert lines["subscriber"] == ["sequence", "lag", "oldest", "idle", "held", "read", "state"]
    assert lines["billing"][:2] == ["50", "150"]
    assert lines["billing"][-1] == "no"


def test_a_journal_without_subscribers_has_no_table_of_them(numbers):
    assert b"subscriber" not in do("stats", numbers).out


def test_with_an_interval_each_line_has_the_rates_since_the_last(busy):
    with jlog.Writer(busy) as writer, start("stats", "--interval", "0.1", busy) as tool:
        header, first = (tool.stdout.readline().split() for _ in range(2))
        assert header[:3] == [b"time", b"rec/s", b"bytes/s"]
        at = dict(zip(header[:-2], first, strict=False))
        assert (at[b"rec/s"], at[b"bytes/s"], at[b"wr"]) == (b"-", b"-", b"1")
        lines = [first]
        while lines[-1][1] in (b"-", b"0"):
            fill(writer, 10)
            lines.append(tool.stdout.readline().split())
        assert re.fullmatch(rb"[0-9.]+k?", lines[-1][1])
        assert re.fullmatch(rb"[0-9.]+(B|KiB|MiB)", lines[-1][2])
        tool.send_signal(signal.SIGINT)
        assert tool.wait(HUNG_SECONDS) == 130
        assert tool.stderr.read() == b""


def test_with_an_interval_and_json_each_line_is_all_of_it(busy):
    with jlog.Writer(busy) as writer, start("stats", "--json", "-i", "0.1", busy) as tool:
        appends = [json.loads(tool.stdout.readline())["appends"]]
        while len(set(appends)) < 3:
            fill(writer, 1)
            appends.append(json.loads(tool.stdout.readline())["appends"])
        assert appends == sorted(appends)
        tool.stdout.close()  # nobody reads any more
        assert tool.wait(HUNG_SECONDS) == 0
        assert tool.stderr.read() == b""


def test_it_ends_when_the_journal_is_deleted_meanwhile(busy):
    with start("stats", "-i", "0.1", busy) as tool:
        tool.stdout.readline()
        jlog.Journal.delete(busy)
        assert tool.wait(HUNG_SECONDS) == 1
        assert tool.stderr.read().count(b"\n") == 1


def test_a_missing_journal_and_a_bad_interval_are_errors(journal):
    assert run("stats", journal).code == 1
    assert run("stats", "--interval", "0", journal).code == 2
    assert run("stats", "--interval", "often", journal).code == 2


@pytest.mark.parametrize(
    ("form", "number", "text"),
    [
        (figures.count, 1_234_567, "1234567"),
        (figures.count, 12_345_678, "12.3M"),
        (figures.count, 2**63, "9.2E"),
        (figures.count, -12_345_678, "-12.3M"),
        (figures.rate, 0, "0"),
        (figures.rate, 0.25, "0.2"),
        (figures.rate, 9_999, "9999"),
        (figures.rate, 999_960, "1.0M"),
        (figures.change, 0.01, "0"),
        (figures.change, -1.5, "-1.5"),
        (figures.change, 20_000, "+20.0k"),
        (figures.size, 1536, "1.5KiB"),
        (figures.span, 0.04, "0.0s"),
        (figures.span, 59.9, "59s"),
        (figures.span, 185, "3m05s"),
        (figures.span, 8_000, "2h13m"),
        (figures.span, 450_000, "5d05h"),
        (figures.span, 40_000_000, "462d"),
    ],
)
def test_figures_are_short(form, number, text):
    assert form(number) == text
    assert form(None) == "-"


@pytest.mark.parametrize("command", ["stats", "top"])
def test_an_interval_that_no_clock_reaches_is_refused(busy: Path, command: str) -> None:
    found = run(command, busy, "-i", "1e300")
    assert found.code == 2
    assert "is not in the range 0.1<=x<=1000000000.0" in found.err

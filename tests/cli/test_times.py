"""`--from`, `--to`, `--since` and `--until`, on every command that has them."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import HUNG_SECONDS, do, run, start

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


@pytest.fixture
def hours(journal: Path) -> Path:
    """A record at each hour from noon on, in UTC, and one of now."""
    with jlog.Writer(journal) as writer:
        for hour in range(5):
            writer.append(b"%d" % hour, timestamp=NOON + timedelta(hours=hour))
        writer.append(b"now")
    return journal


def in_zone(zone: str, *arguments: object) -> tuple[list[bytes], str]:
    tool = start(*arguments, env={**os.environ, "TZ": zone})
    out, err = tool.communicate(timeout=HUNG_SECONDS)
    assert tool.returncode == 0, err
    return out.splitlines(), err.decode()


@pytest.mark.parametrize("command", ["dump", "tail", "read", "sql"])
def test_every_command_takes_a_local_time_and_names_its_option_and_zone(hours: Path, command: str) -> None:
    given = {"read": [hours, "billing"], "sql": ["SELECT value FROM a", f"a={hours}", "--format", "csv"]}
    span = ["--since", "2026-11-20 22:00", "--until", "2026-11-21"]
    out, err = in_zone("Asia/Tokyo", command, *given.get(command, [hours]), *span)
    assert [line for line in out if line != b"value"] == [b"1", b"2"]
    assert "--since 2026-11-20 22:00: taken as 2026-11-20T22:00:00+09:00, in this machine's zone, JST" in err
    assert "--until 2026-11-21: taken as 2026-11-21T00:00:00+09:00, in this machine's zone, JST" in err


def test_a_zones_offset_is_that_of_the_day(hours: Path) -> None:
    _, err = in_zone("Europe/Berlin", "dump", "--from", "2026-07-01", "--to", "2026-11-20 14:00", hours)
    assert "2026-07-01T00:00:00+02:00, in this machine's zone, CEST" in err
    assert "2026-11-20T14:00:00+01:00, in this machine's zone, CET" in err


@pytest.mark.parametrize(
    ("zone", "text", "taken"),
    [
        ("Europe/Berlin", "2026-03-29 01:59", "2026-03-29T01:59:00+01:00"),
        ("Europe/Berlin", "2026-03-29 02:30", "2026-03-29T03:30:00+02:00"),  # the clock goes from 02:00 to 03:00
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25T02:30:00+02:00"),  # there are two: the first one
        ("America/New_York", "2026-03-08 02:00", "2026-03-08T03:00:00-04:00"),
        ("America/New_York", "2026-11-01 01:30", "2026-11-01T01:30:00-04:00"),
    ],
)
def test_times_stay_in_order_where_the_clock_changes(hours: Path, zone: str, text: str, taken: str) -> None:
    _, err = in_zone(zone, "dump", "--from", text, hours)
    assert f"taken as {taken}," in err


def test_so_long_ago_takes_no_zone(hours: Path) -> None:
    assert do("dump", "--since", "1h", hours).lines == [b"now"]
    assert do("tail", "--since", "10m", hours).lines == [b"now"]


def test_since_on_tail_prints_all_from_there_and_n_the_last_of_them(hours: Path) -> None:
    with jlog.Writer(hours) as writer:
        writer.extend([b"%d" % number for number in range(30)])
    assert len(do("tail", "--since", "1h", hours).lines) == 31
    assert do("tail", "--since", "1h", "-n", 2, hours).lines == [b"28", b"29"]
    assert do("tail", "--since", "1h", "--grep", "^n", hours).lines == [b"now"]
    assert do("tail", "--since", "1h", "--grep", "^(?:n)", hours).lines == [b"now"]
    assert do("tail", "--until", "5", "-n", 2, hours).lines == [b"3", b"4"]
    assert do("tail", "--from", 4, "-n", 3, "--grep", "^[0-4]$", hours).lines == [b"2", b"3", b"4"]


def test_until_leaves_the_rest_for_the_next_read(hours: Path) -> None:
    assert run("read", "--until", "2026-11-20T14:00:00Z", hours, "billing").lines == [b"0", b"1"]
    assert do("read", "-n", 1, hours, "billing").lines == [b"2"]
    assert do("read", "--until", 2, hours, "billing").lines == []
    assert do("read", hours, "billing").lines == [b"3", b"4", b"now"]


def test_what_has_an_end_is_not_followed(hours: Path) -> None:
    for arguments in (["tail", "-f", "--until", "1h", hours], ["read", "-f", "--until", "1h", hours, "billing"]):
        assert "--follow and --until do not go together" in run(*arguments).err


@pytest.mark.parametrize("text", ["2026-11-31", "25:00", "2026-11-20T12:00:00 UTC"])
def test_a_time_that_is_none_is_an_error_of_usage(hours: Path, text: str) -> None:
    result = run("dump", "--from", text, hours)
    assert (result.code, "is not a time" in result.err) == (2, True)


def test_python_takes_so_long_ago_and_an_iso_string(hours: Path) -> None:
    for begin in (timedelta(hours=1), "2026-11-21T00:00:00+09:00", "2026-11-20T15:00:00Z"):
        with jlog.Reader(hours, start=begin) as reader:
            assert list(reader.values())[-1] == b"now"
    for wrong in ("2026-11-20", "13:30", "10m", "yesterday"):
        with pytest.raises((ValueError, LookupError), match=r"an ISO string with a UTC offset such as .* a timedelta"):
            jlog.Reader(hours, start=wrong)


def test_a_checkpoint_whose_name_has_become_a_time_stays_usable_and_removable(hours: Path) -> None:
    do("subscriber", "add", hours, "billing", "--start", "end")
    do("checkpoint", "set", hours, "before", 1)
    for kind, name in (("checkpoints", "before"), ("subscribers", "billing")):
        (hours / kind / name).rename(hours / kind / "10m")
    assert [found["name"] for found in do("checkpoint", "ls", "--json", hours).json] == ["10m"]
    do("rewind", hours, "10m", "10m")
    assert do("read", "-n", 1, hours, "10m").lines == [b"1"]
    do("checkpoint", "set", hours, "10m", 2)
    do("checkpoint", "rm", hours, "10m")
    do("subscriber", "rm", hours, "10m")
    assert run("checkpoint", "set", hours, "10m", 2).code == 2
    assert run("subscriber", "add", hours, "10m").code == 2


def test_the_time_of_an_append_is_an_aware_datetime(journal: Path) -> None:
    tokyo = timezone(timedelta(hours=9))
    with jlog.Writer(journal) as writer:
        writer.append(b"a", timestamp=datetime(2026, 11, 20, 21, 0, 0, 1, tokyo))
        writer.append(b"b", key=b"k", timestamp=datetime(1, 1, 1, tzinfo=timezone.utc))
        with pytest.raises(ValueError, match="has no time zone"):
            writer.append(b"c", timestamp=datetime(2026, 11, 20))  # noqa: DTZ001
        with pytest.raises(TypeError, match="give one of them"):
            writer.append(b"c", timestamp=NOON, timestamp_us=1)
        with pytest.raises(TypeError, match="must be an aware datetime"):
            writer.append(b"c", timestamp=time.time())
    with jlog.Reader(journal) as reader:
        assert [record.timestamp for record in reader] == [
            NOON + timedelta(microseconds=1),
            datetime(1, 1, 1, tzinfo=timezone.utc),
        ]

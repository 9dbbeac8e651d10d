"""`jlogtool read`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import HUNG_SECONDS, do, run, start
from crash.tampering import change

if TYPE_CHECKING:
    from pathlib import Path


def new(name: str, sequence: int = 0) -> str:
    """The line on stderr when the command creates the subscriber."""
    return f"jlogtool: new subscriber {name!r}, from sequence {sequence}\n"


def read_new(journal: Path, name: str, *options: object) -> list[bytes]:
    result = run("read", *options, journal, name)
    assert (result.code, result.err.startswith(f"jlogtool: new subscriber {name!r}, ")) == (0, True), result
    return result.lines


def stands_at(journal: Path, name: str) -> int:
    return jlog.Journal(journal).subscribers()[name].sequence


def test_it_prints_what_has_not_been_committed_and_commits_it(numbers: Path) -> None:
    do("subscriber", "add", numbers, "billing", "--start", 95)
    assert do("read", numbers, "billing").lines == [b"95", b"96", b"97", b"98", b"99"]
    assert do("read", numbers, "billing").lines == []
    do("append", numbers, stdin=b"new\n")
    assert do("read", "--json", numbers, "billing").json["value"] == "new"
    assert stands_at(numbers, "billing") == 101


def test_a_new_subscriber_begins_where_start_says(numbers: Path) -> None:
    assert len(read_new(numbers, "all")) == 100
    assert read_new(numbers, "late", "--start", 98) == [b"98", b"99"]
    assert do("read", "--start", 0, numbers, "late").lines == []


def test_it_says_when_it_makes_a_subscriber(numbers: Path) -> None:
    """A name with a typing error would be a subscriber that holds records back for ever."""
    assert run("read", numbers, "biling").err == new("biling")
    assert run("read", "--start", "end", numbers, "late").err == new("late", 100)
    do("read", numbers, "biling")
    refused = run("read", "--start", 101, numbers, "later")
    assert (refused.code, "new subscriber" in refused.err) == (2, False)
    assert sorted(jlog.Journal(numbers).subscribers()) == ["biling", "late"]


def test_limit_leaves_the_rest_for_the_next_time(numbers: Path) -> None:
    assert read_new(numbers, "billing", "-n", 2) == [b"0", b"1"]
    assert do("read", "-n", 0, numbers, "billing").lines == []
    assert do("read", "-n", 1, numbers, "billing").lines == [b"2"]


def test_without_commit_it_stays_where_it_stands(numbers: Path) -> None:
    do("subscriber", "add", numbers, "billing")
    for _ in range(2):
        assert do("read", "--no-commit", "-n", 1, numbers, "billing").lines == [b"0"]


def test_it_ends_at_the_end_as_it_was_when_it_began(journal: Path) -> None:
    """Else it would never end beside a busy writer."""
    with jlog.Writer(journal) as writer:
        writer.extend([b"x" * 1000] * 20_000)
        with start("read", journal, "billing") as tool:
            read = len(tool.stdout.read(1))
            writer.extend([b"late"])
            read += len(tool.stdout.read())
            assert tool.wait(HUNG_SECONDS) == 0
    assert (read, stands_at(journal, "billing")) == (20_000 * 1001, 20_000)


def test_following_it_commits_what_it_has_printed(numbers: Path) -> None:
    with start("read", "-f", "--start", 99, numbers, "billing") as tool:
        assert tool.stdout.readline() == b"99\n"
        do("append", numbers, stdin=b"new\n")
        assert tool.stdout.readline() == b"new\n"
        tool.send_signal(signal.SIGINT)
        assert tool.wait(HUNG_SECONDS) == 130
        assert tool.stderr.read().decode() == new("billing", 99)
    assert stands_at(numbers, "billing") >= 100


def test_unread_records_are_printed_again(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"%06d" % number for number in range(50_000)])
    with start("read", journal, "billing") as tool:
        assert tool.stdout.readline() == b"000000\n"
        tool.stdout.close()
        assert (tool.wait(HUNG_SECONDS), tool.stderr.read().decode()) == (0, new("billing"))
    again = do("read", journal, "billing").lines
    assert again[0] == b"%06d" % (50_000 - len(again))
    assert len(again) > 30_000


def test_two_cannot_read_as_one_subscriber(numbers: Path) -> None:
    with jlog.Reader(numbers, "billing"):
        result = run("read", numbers, "billing")
    assert (result.code, result.out, result.err.count("\n")) == (1, b"", 1)


def test_a_loss_to_retention_is_reported_and_nothing_committed(segments: Path) -> None:
    journal = jlog.Journal(segments)
    journal.add_subscriber("billing", 15)
    journal.add_subscriber("slow")
    assert do("read", segments, "billing").lines[0] == b"15"
    assert journal.first_sequence == 0
    do("subscriber", "rm", segments, "slow")
    assert journal.first_sequence == 40
    assert run("read", "--start", 5, segments, "new").code == 1


@pytest.mark.damage
def test_it_goes_on_after_damage_and_ends_with_3(segments: Path) -> None:
    segment = jlog.Journal(segments).segments()[1]
    change(segment.path, segment.size_bytes - 1, b"\xff")
    do("subscriber", "add", segments, "billing")
    result = run("read", segments, "billing")
    assert (result.code, result.err.count("\n"), len(result.lines)) == (3, 1, 39)
    assert do("read", segments, "billing").lines == []


@pytest.mark.damage
def test_damage_after_the_last_record_is_committed_too(segments: Path) -> None:
    segment = jlog.Journal(segments).segments()[3]
    change(segment.path, segment.size_bytes - 1, b"\xff")
    assert run("read", segments, "billing").code == 3
    assert jlog.Journal(segments).subscribers()["billing"].lag == 0
    assert do("read", segments, "billing").lines == []


def test_a_name_that_is_not_allowed_is_an_error_of_usage(numbers: Path) -> None:
    assert run("read", numbers, "begin").code == 2
    assert run("read", numbers).code == 2

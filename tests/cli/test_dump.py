"""`jlogtool dump`."""

from __future__ import annotations

import base64
import struct
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import HUNG_SECONDS, do, run, run_on_terminal, start
from crash.tampering import change, invert

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def hours(journal: Path) -> Path:
    """A record at each full hour of a day: b"0" to b"23"."""
    midnight = int(datetime(2026, 11, 20, tzinfo=timezone.utc).timestamp()) * 1_000_000
    with jlog.Writer(journal) as writer:
        writer.extend(
            [b"%d" % hour for hour in range(24)],
            timestamps_us=[midnight + hour * 3_600_000_000 for hour in range(24)],
        )
    return journal


def numbers_from(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def test_raw_is_each_value_and_a_newline(journal: Path) -> None:
    do("append", journal, stdin=b"one\n\xff\n\nlast")
    assert do("dump", journal).out == b"one\n\xff\n\nlast\n"


def test_an_empty_journal_has_no_output(journal: Path) -> None:
    do("create", journal)
    assert do("dump", journal).out == b""


def test_length32_comes_back_as_it_went_in(journal: Path) -> None:
    records = [b"", b"\n", b"a\nb", bytes(range(256))]
    text = b"".join(struct.pack("<I", len(record)) + record for record in records)
    do("append", journal, "--framing", "length32", stdin=text)
    assert do("dump", journal, "--framing", "length32").out == text


def test_jsonl_has_everything_of_a_record(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append("zwölf".encode(), key=b"k", headers=[("name", b"text"), ("none", None)], timestamp_us=1_000_000)
    assert do("dump", journal, "--format", "jsonl").json_lines == [
        {
            "sequence": 0,
            "timestamp": "1970-01-01T00:00:01.000000Z",
            "key": "k",
            "value": "zwölf",
            "headers": [["name", "text"], ["none", None]],
        }
    ]


def test_jsonl_has_base64_for_what_is_not_utf8(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"\xff\x00", key=b"\xfe", headers=[("h", b"\xfd")])
    (record,) = do("dump", journal, "--format", "jsonl").json_lines
    assert base64.b64decode(record["value_base64"]) == b"\xff\x00"
    assert base64.b64decode(record["key_base64"]) == b"\xfe"
    assert record["headers"] == [["h", None, base64.b64encode(b"\xfd").decode()]]
    assert not {"value", "key"} & record.keys()


def test_jsonl_tells_null_from_empty(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(None, key=b"")
        writer.append(b"")
    first, second = do("dump", journal, "--format", "jsonl").json_lines
    assert (first["key"], first["value"]) == ("", None)
    assert (second["key"], second["value"]) == (None, "")


def test_jsonl_is_a_line_for_each_record_whatever_is_in_it(journal: Path) -> None:
    value = bytes(range(128)) + "\x85\u2028".encode()
    with jlog.Writer(journal) as writer:
        writer.append(value)
    result = do("dump", journal, "--json")
    assert result.out.count(b"\n") == 1
    assert result.json["value"].encode() == value


def test_jsonl_keeps_a_time_that_no_calendar_has(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"far", timestamp_us=1 << 62)
    record = do("dump", journal, "--json").json
    assert (record["timestamp"], record["timestamp_us"]) == (None, 1 << 62)


def test_pretty_prints_nothing_that_a_terminal_would_act_on(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"\x1b[31mred\n\xff", key=b"\x07")
    (line,) = do("dump", journal, "--format", "pretty").lines
    assert line.endswith(rb"\x07 \x1b[31mred\n\xff")


def test_colours_are_for_terminals_only(numbers: Path) -> None:
    assert b"\x1b[" not in do("dump", numbers, "--format", "pretty").out
    code, shown = run_on_terminal("dump", numbers, "--format", "pretty")
    assert (code, b"\x1b[" in shown) == (0, True)


def test_hex_shows_every_byte(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"\x00\xffhello, wide world")
    heading, first, second = do("dump", journal, "--format", "hex").out.decode().splitlines()
    assert heading.startswith("0 ")
    assert first.split("  ")[1:3] == ["00000000", "00 ff 68 65 6c 6c 6f 2c 20 77 69 64 65 20 77 6f"]
    assert second.split("  ")[1:3] == ["00000010", "72 6c 64"]


def test_from_and_to_are_the_first_and_the_one_after_the_last(numbers: Path) -> None:
    assert do("dump", numbers, "--from", 10, "--to", 13).lines == [b"10", b"11", b"12"]
    assert do("dump", numbers, "--from", 98).lines == [b"98", b"99"]
    assert do("dump", numbers, "--from", "end").lines == []
    assert do("dump", numbers, "--to", "begin").lines == []


def test_positions_may_be_checkpoints(numbers: Path) -> None:
    do("checkpoint", "set", numbers, "a", 20)
    do("checkpoint", "set", numbers, "b", 22)
    assert do("dump", numbers, "--from", "a", "--to", "b").lines == [b"20", b"21"]


def test_positions_may_be_times(hours: Path) -> None:
    result = do("dump", hours, "--from", "2026-11-20T09:30:00Z", "--to", "2026-11-20T13:00:00.5+01:00")
    assert result.lines == [b"10", b"11", b"12"]


@pytest.mark.parametrize("time", ["2026-11-20T", "2026-11-20T12:00:00 noon", "2026-13-20T12:00:00Z"])
def test_a_time_that_no_calendar_has_is_an_error_of_usage(numbers: Path, time: str) -> None:
    assert run("dump", numbers, "--from", time).code == 2


def test_limit_ends_it(numbers: Path) -> None:
    assert do("dump", numbers, "--limit", 3, "--from", 5).lines == [b"5", b"6", b"7"]
    assert do("dump", numbers, "--limit", 0).lines == []


def test_grep_finds_bytes(journal: Path) -> None:
    do("append", journal, stdin=b"one\n\xfftwo\nthree\n")
    assert do("dump", journal, "--grep", b"\xff").lines == [b"\xfftwo"]
    assert do("dump", journal, "--grep", "^t|one").lines == [b"one", b"three"]


PATTERNS = [
    b"7",
    b"^7",
    b"1.7$",
    b"number 17",
    b"\\.$",
    rb"\(x\)",
    b"x$",
    b"key",
    b"[7]",
    b"no such text",
    rb"\x37",
    b"1*7",
    b"a{0}7",
    b"17|23",
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}], ids=["plain", "lz4"])
def test_grep_passes_over_no_record_that_has_the_text(journal: Path, pattern: bytes, options: dict[str, str]) -> None:
    """Within a group the pattern is the same one, and each record is looked at."""
    with jlog.Writer(journal, segment_bytes=64 << 10, **options) as writer:
        for number in range(2_000):
            headers = [("x", b"key 7")] if number % 5 == 0 else None
            writer.append(
                b"number %d.%s" % (number, b"(x)"[: number % 4]), key=b"key 17" if number % 3 == 0 else None, headers=headers
            )
            if number % 50 == 0:
                writer.append(None, key=b"number 17")
    for more in ((), ("--from", 100, "--to", 1_000), ("--limit", 3), ("--count",), ("-v",)):
        expected = do("dump", journal, "--grep", b"(?:" + pattern + b")", *more)
        assert do("dump", journal, "--grep", pattern, *more).out == expected.out


@pytest.mark.damage
@pytest.mark.parametrize("pattern", [b"7", b"no such text"], ids=str)
def test_grep_lists_all_damage(segments: Path, pattern: bytes) -> None:
    for segment in jlog.Journal(segments).segments()[1:3]:
        damage(segment, 0.5)
    expected = run("dump", segments, "--grep", b"(?:" + pattern + b")")
    found = run("dump", segments, "--grep", pattern)
    assert (found.out, found.err, found.code) == (expected.out, expected.err, 3)


def test_limit_counts_what_grep_finds(numbers: Path) -> None:
    assert do("dump", numbers, "--grep", "7$", "--limit", 2).lines == [b"7", b"17"]


def test_grep_in_keys_and_values_finds_records_that_have_both(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"paid", key=b"alice")
        writer.append(b"paid", key=b"bob")
        writer.append(b"open", key=b"bob")
        writer.append(b"paid")
    assert do("dump", journal, "--grep-key", "^b").lines == [b"paid", b"open"]
    assert do("dump", journal, "--grep-key", "^b", "--grep", "paid", "--json").json["sequence"] == 1


def test_invert_match_prints_what_is_left_out_otherwise(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"one", None, b"two", b"three"])
    assert do("dump", journal, "-v", "--grep", "^t").lines == [b"one", b""]
    assert run("dump", journal, "-v").code == 2


def test_ignore_case_knows_the_letters_of_ascii(journal: Path) -> None:
    do("append", journal, stdin="Error\nERROR\nÄ\nä\n".encode())
    assert do("dump", journal, "-i", "--grep", "error").lines == [b"Error", b"ERROR"]
    assert do("dump", journal, "-i", "--grep", "ä").lines == ["ä".encode()]
    assert run("dump", journal, "-i").code == 2


def test_reverse_prints_the_same_records_newest_first(numbers: Path) -> None:
    assert do("dump", numbers, "--reverse").lines == do("dump", numbers).lines[::-1]
    assert do("dump", numbers, "--reverse", "--from", 5, "--to", 8).lines == [b"7", b"6", b"5"]
    assert do("dump", numbers, "--reverse", "--from", 8, "--to", 5).lines == []
    assert do("dump", numbers, "--reverse", "--to", 1000, "--limit", 2).lines == [b"99", b"98"]
    assert do("dump", numbers, "--reverse", "--grep", "7$", "--limit", 2).lines == [b"97", b"87"]


def test_reverse_goes_over_records_of_every_size(journal: Path) -> None:
    values = [b"%d" % number + b"." * size for number, size in enumerate([0, 3 << 20, 7] * 30)]
    with jlog.Writer(journal) as writer:
        writer.extend(values)
    assert do("dump", journal, "--reverse").out == b"".join(value + b"\n" for value in values[::-1])


@pytest.mark.damage
def test_reverse_writes_what_is_intact_and_lists_the_damage(segments: Path) -> None:
    for segment in jlog.Journal(segments).segments()[1:3]:
        damage(segment, 0.5)
    forward, backward = run("dump", segments), run("dump", segments, "--reverse")
    assert backward.lines == forward.lines[::-1]
    assert sorted(backward.err.splitlines()) == sorted(forward.err.splitlines())
    assert backward.code == forward.code == 3


def test_a_bad_regular_expression_is_an_error_of_usage(numbers: Path) -> None:
    assert run("dump", numbers, "--grep", "(").code == 2


def test_framing_is_of_raw_only(numbers: Path) -> None:
    assert run("dump", numbers, "--format", "jsonl", "--framing", "length32").code == 2


def test_it_ends_at_the_end_as_it_was_when_it_began(journal: Path) -> None:
    """Else it would never end beside a busy writer."""
    with jlog.Writer(journal) as writer:
        writer.extend([b"x" * 1000] * 20_000)
        with start("dump", journal) as tool:
            read = len(tool.stdout.read(1))  # it has begun, and waits for the pipe to be read
            writer.extend([b"late"])
            read += len(tool.stdout.read())
            assert tool.wait(HUNG_SECONDS) == 0
    assert read == 20_000 * 1001


def test_blocks_shows_what_the_records_are_stored_in(segments: Path) -> None:
    blocks = [block for block in do("dump", segments, "--blocks", "--json").json_lines if block["records"]]
    assert [block["first_sequence"] for block in blocks] == list(range(40))
    assert {block["kind"] for block in blocks} == {"records"}
    assert len({block["path"] for block in blocks}) == 4
    assert b"records" in do("dump", segments, "--blocks").lines[0]


def damage(segment: jlog.Segment, at: float) -> None:
    """Flips a byte, at this part of its content."""
    invert(segment.path, int(segment.size_bytes * at))


@pytest.mark.damage
def test_intact_records_are_written_and_damage_is_listed(segments: Path) -> None:
    for segment in jlog.Journal(segments).segments()[1:3]:
        damage(segment, 0.5)
    result = run("dump", segments)
    lost = set(numbers_from(0, 40)) - set(result.lines)
    assert (result.code, result.err.count("\n")) == (3, 2)
    assert result.lines == [value for value in numbers_from(0, 40) if value not in lost]
    assert len(lost) == 2


@pytest.mark.damage
def test_damage_before_from_is_no_matter(segments: Path) -> None:
    damage(jlog.Journal(segments).segments()[1], 0.5)
    result = run("dump", segments, "--from", 19)
    assert result.lines == numbers_from(19, 40)


@pytest.mark.damage
def test_blocks_ends_with_3_where_one_is_damaged(segments: Path) -> None:
    damage(jlog.Journal(segments).segments()[1], 0.5)
    result = run("dump", segments, "--blocks")
    assert (result.code, result.err.count("\n")) == (3, 1)


@pytest.mark.damage
def test_blocks_shows_damage_in_its_place_and_what_follows(segments: Path) -> None:
    path, block = [found for found in jlog.Journal(segments).blocks() if found[0].endswith("10.seg")][4]
    change(path, block.offset + 20, b"\xff\xff")
    result = run("dump", segments, "--blocks", "--json")
    there = [found for found in result.json_lines if found["path"] == path]
    assert [(found["kind"], found["first_sequence"]) for found in there[3:6]] == [
        ("records", 12),
        ("damaged", 13),
        ("records", 14),
    ]
    assert (there[4]["offset"], there[4]["records_lost"]) == (block.offset, 1)
    assert (result.code, len(there)) == (3, 11)
    assert any(b"damaged" in line and b"13" in line for line in run("dump", segments, "--blocks").lines)


def test_a_name_that_is_not_a_position_is_told_what_positions_are(numbers: Path) -> None:
    for arguments in (["dump", "--from", "noon"], ["dump", "--to", "noon"], ["read", "--start", "noon"]):
        result = run(*arguments, numbers, *(["billing"] if arguments[0] == "read" else []))
        assert (result.code, result.out) == (1, b"")
        assert (
            "has no checkpoint 'noon'; there: none; a position is begin, end, a sequence, the name of a checkpoint, or a time:"
            in result.err
        )
    do("subscriber", "add", numbers, "billing")
    assert run("rewind", numbers, "billing", "noon").err.endswith("has no checkpoint 'noon'; there: none\n")


@pytest.fixture
def levels(journal: Path) -> Path:
    """A record of each level, by turns, with it in a header."""
    with jlog.Writer(journal) as writer:
        for number in range(9):
            level = [b"INFO", b"WARNING", b"ERROR"][number % 3]
            writer.append(b"disk %d full" % number, headers=[("level", level), ("host", b"a")])
    return journal


def test_grep_header_finds_records_by_their_headers(levels: Path) -> None:
    assert do("dump", levels, "--grep-header", "level=^ERR").lines == [b"disk 2 full", b"disk 5 full", b"disk 8 full"]
    assert do("dump", levels, "--grep-header", "level=info", "-i", "--grep", "[36]").lines == [b"disk 3 full", b"disk 6 full"]
    assert do("dump", levels, "--grep-header", "level=WARN", "--grep-header", "host=a", "-n", 1).lines == [b"disk 1 full"]
    assert do("dump", levels, "--grep-header", "level=.", "-v").lines == []
    assert do("tail", levels, "--grep-header", "level=ERROR", "-n", 1).lines == [b"disk 8 full"]
    for wrong in ("level", "=x", "level=("):
        assert run("dump", levels, "--grep-header", wrong).code == 2


def test_count_prints_only_how_many(levels: Path) -> None:
    assert do("dump", levels, "--count").out == b"9\n"
    assert do("dump", levels, "--count", "--grep-header", "level=ERROR").out == b"3\n"
    assert do("dump", levels, "--count", "--from", 4, "--limit", 2).out == b"2\n"
    assert run("dump", levels, "--count", "--json").code == 2


def test_at_a_terminal_it_is_pretty_and_what_was_found_stands_out(levels: Path) -> None:
    code, shown = run_on_terminal("dump", levels, "--grep", "[25]", "--limit", "1")
    assert (code, shown.count(b"\n")) == (0, 1)
    assert b"ERROR" in shown.partition(b"disk")[0]
    assert b"disk \x1b[31m\x1b[1m2\x1b[0m full" in shown
    assert run_on_terminal("dump", levels, "--limit", "1", "--format", "raw")[1] == b"disk 0 full\r\n"
    assert run_on_terminal("dump", levels, "--limit", "1", "--framing", "lines")[1] == b"disk 0 full\r\n"
    assert do("dump", levels, "--limit", 1).lines == [b"disk 0 full"]


@pytest.mark.damage
def test_count_is_printed_after_damage_too(segments: Path) -> None:
    path, block = [found for found in jlog.Journal(segments).blocks() if found[0].endswith("10.seg")][4]
    change(path, block.offset + 20, b"\xff\xff")
    result = run("dump", segments, "--count")
    assert (result.code, result.out) == (3, b"39\n")

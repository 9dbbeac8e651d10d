"""`jlogtool append --format jsonl`: what `dump --format jsonl` prints comes back."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

import jlog
from cli.command import HUNG_SECONDS, do, run, start

if TYPE_CHECKING:
    from pathlib import Path


def records(journal: Path) -> list[jlog.Record]:
    with jlog.Reader(journal) as reader:
        return list(reader)


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def append(journal: Path, *lines: bytes) -> list[jlog.Record]:
    do("append", "--format", "jsonl", journal, stdin=b"".join(lines))
    return records(journal)


def test_a_journal_comes_back_as_it_was_but_for_its_sequences(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"gone")
        writer.append("zwölf\n\0".encode(), key=b"k", headers=[("name", b"text"), ("none", None), ("b", b"\xff")])
        writer.append(b"\xff\x00", key=b"\xfe", timestamp_us=-1)
        writer.append(None, key=b"")
        writer.append(b"", timestamp_us=1 << 62)
    lines = do("dump", "--json", "--from", 1, journal).out
    do("append", "--format", "jsonl", tmp_path / "copy", stdin=lines)
    copied = do("dump", "--json", tmp_path / "copy").json_lines
    assert copied == [dict(json.loads(text), sequence=number) for number, text in enumerate(lines.splitlines())]


def test_missing_parts_of_a_record_are_null_and_its_time_is_now(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"before")
    before, only, empty = append(journal, line(value="only"), b"\n", b"{}\n")
    assert (only.value, only.key, only.headers) == (b"only", None, [])
    assert (empty.value, empty.key, empty.headers) == (None, None, [])
    assert only.timestamp_us >= before.timestamp_us


def test_the_last_line_needs_no_newline(journal: Path) -> None:
    (found,) = append(journal, line(value="x").rstrip())
    assert found.value == b"x"


BAD = {
    "nonsense": "Expecting value",
    "[1]": "a record must be an object",
    '{"value": 1}': "value must be text or null, not 1",
    '{"key": {}}': "key must be text or null",
    '{"value_base64": "x"}': "value_base64 is not base64",
    '{"value_base64": 5}': "value_base64 is not base64",
    '{"headers": [1]}': "a header must be",
    '{"headers": 1}': "headers must be a list",
    '{"headers": [["a"]]}': "a header must be",
    '{"headers": [["a", null, "!"]]}': "not base64",
    '{"timestamp": 5}': "timestamp must be a time",
    '{"timestamp": "noon"}': "is not a time",
    '{"timestamp_us": 9223372036854775808}': "64 bits",
    '{"timestamp_us": "1"}': "64 bits",
    '{"timestamp_us": true}': "64 bits",
    '{"value": "\\ud800"}': "surrogates not allowed",
    '{"headers": [["\\ud800", "x"]]}': "surrogates not allowed",
    '{"value":' + "[" * 100_000 + "]" * 100_000 + "}": "nested too deeply",
    '{"MESSAGE": "the disk is on fire"}': 'a record has no field "MESSAGE"; its fields are headers, key,',
    '{"value": "a", "vlaue": "b"}': 'a record has no field "vlaue"',
    '{"\\ud800": 1}': 'a record has no field "\\ud800"',
    '{"timestamp": "yesterday"}': "is not a time with a UTC offset",
    '{"value": ' + "9" * 5000 + "}": "int",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_a_line_that_is_not_a_record_ends_it_after_those_before(journal: Path, text: str) -> None:
    result = run("append", "--format", "jsonl", journal, stdin=line(value="good") + f"{text}\n{{}}\n".encode())
    assert (result.code, "line 2" in result.err, BAD[text] in result.err) == (1, True, True)
    assert [record.value for record in records(journal)] == [b"good"]


def test_records_from_a_slow_pipe_are_readable_at_once(journal: Path) -> None:
    do("create", journal)
    with start("append", "--format", "jsonl", journal) as tool, jlog.Reader(journal) as reader:
        tool.stdin.write(line(value="now", key="k"))
        (record,) = reader.read(timeout=HUNG_SECONDS)
        assert (record.value, record.key) == (b"now", b"k")
        tool.send_signal(signal.SIGINT)
        assert tool.wait(HUNG_SECONDS) == 130


def test_framing_is_of_raw_only(journal: Path) -> None:
    assert run("append", "--format", "jsonl", "--framing", "lines", journal).code == 2
    assert not journal.exists()

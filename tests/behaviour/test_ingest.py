"""Files of records that become segments, written without the journal."""

from __future__ import annotations

import errno
import os
import random
import resource
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import jlog
from behaviour.journals import values
from crash.tampering import change, flip
from jlog.writer import EncodedRecords, Piece, SegmentBuilder, extend_body, ingest, read_piece

STATE: dict[bytes, bytes | None] = {b"loader": b"1"}
NUMBERS = [b"%d" % n for n in range(10_000)]


def built(path: Path, data: Any = NUMBERS, compression: str = "none", pieces: int = 4) -> SegmentBuilder:
    table = data if isinstance(data, pyarrow.Table) else pyarrow.table({"value": pyarrow.array(data)})
    with SegmentBuilder(path, compression) as file:
        for first in range(0, len(table), len(table) // pieces):
            file.add(table.slice(first, len(table) // pieces))
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with one record."""
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b"first")
    return tmp_path / "journal"


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_its_records_are_the_next_ones_and_the_file_a_segment(path: Path, tmp_path: Path, compression: str) -> None:
    file = built(tmp_path / "file", compression=compression)
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces, STATE) == 1
        assert writer.append(b"last") == 10_001
        assert os.path.samefile(file.path, path / f"{1:020}.seg")
    os.unlink(file.path)
    assert values(path) == [b"first", *NUMBERS, b"last"]
    journal = jlog.Journal(path)
    assert journal.state() == STATE
    assert journal.verify().ok
    assert [segment.records for segment in journal.segments()] == [1, 10_001]
    with jlog.Reader(path) as reader:
        reader.seek(7_777)
        assert reader.read(1).values() == [NUMBERS[7_776]]


def test_keys_headers_and_times_are_those_of_the_rows(path: Path, tmp_path: Path) -> None:
    headers = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    given = datetime(2026, 1, 2, tzinfo=timezone.utc)
    table = pyarrow.table(
        {
            "value": pyarrow.array([b"a", None]),
            "key": pyarrow.array([None, b"k"]),
            "headers": pyarrow.array([[{"key": "h", "value": b"v"}], None], headers),
            "timestamp": pyarrow.array([given, None], pyarrow.timestamp("us", "UTC")),
        }
    )
    file = built(tmp_path / "file", table, pieces=1)
    before = datetime.now(timezone.utc)
    with jlog.Writer(path) as writer:
        ingest(writer, file.path, file.pieces, STATE)
        writer.append(b"later")
    with jlog.Reader(path, start=1) as reader:
        a, b, later = reader
    assert (a.value, a.key, a.headers) == (b"a", None, [("h", b"v")])
    assert (b.value, b.key, b.headers) == (None, b"k", [])
    assert a.timestamp == given
    assert before <= b.timestamp <= later.timestamp
    assert jlog.Journal(path).find(before - timedelta(seconds=1)) <= 2


def test_one_after_the_other_and_after_rolls(path: Path, tmp_path: Path) -> None:
    expected = [b"first"]
    with jlog.Writer(path) as writer:
        for number in range(5):
            file = built(tmp_path / f"file{number}", [b"%d-%d" % (number, n) for n in range(100)])
            if number == 2:
                writer.append(b"between")
                expected.append(b"between")
            if number == 3:
                writer.roll()
                writer.append(b"after")
                expected.append(b"after")
            assert ingest(writer, file.path, file.pieces, {b"file": b"%d" % number}) == len(expected)
            expected += [b"%d-%d" % (number, n) for n in range(100)]
    assert values(path) == expected
    assert jlog.Journal(path).state() == {b"file": b"4"}


def test_readers_and_subscribers_go_through_it(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    found: list[bytes] = []
    with jlog.Reader(path, start="end") as reader, jlog.Writer(path) as writer:
        thread = threading.Thread(
            target=lambda: found.extend(record.value for _, record in zip(range(10_001), reader.follow(), strict=False))
        )
        thread.start()
        ingest(writer, file.path, file.pieces, STATE)
        writer.append(b"last")
        thread.join()
    assert found == [*NUMBERS, b"last"]
    with jlog.Reader(path, "s") as reader, jlog.Writer(path) as writer:
        assert len(reader.read(20_000)) == 10_002
        reader.commit()
        writer.roll()
        writer.append(b"open")
    jlog.Journal(path).clean()
    assert values(path) == [b"open"]


def test_beside_others_that_append_every_record_is_there_once(path: Path, tmp_path: Path) -> None:
    ended = threading.Event()
    appended = 0

    def append() -> None:
        nonlocal appended
        with jlog.Writer(path) as writer:
            while not ended.is_set():
                writer.append(b"other")
                appended += 1

    thread = threading.Thread(target=append)
    thread.start()
    ingested = 0
    try:
        with jlog.Writer(path) as writer:
            for number in range(8):
                file = built(tmp_path / f"file{number}", [b"ours"] * 100)
                ingested += ingest(writer, file.path, file.pieces, STATE) is not None
    finally:
        ended.set()
        thread.join()
    found = values(path)
    assert found.count(b"other") == appended
    assert found.count(b"ours") == 100 * ingested
    assert jlog.Journal(path).verify().ok


# --- Where it cannot be ---------------------------------------------------------------------------------------------


def test_not_in_a_journal_without_a_record(tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    with jlog.Writer(tmp_path / "journal") as writer:
        assert ingest(writer, file.path, file.pieces, STATE) is None
        assert writer.append(b"a") == 0
        assert ingest(writer, file.path, file.pieces, STATE) == 1


def test_not_where_the_live_state_takes_up_its_room(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    with jlog.Writer(path) as writer:
        writer.extend([], state={b"large": random.Random(0).randbytes(65_500)})
        assert ingest(writer, file.path, file.pieces, STATE) is None
        writer.extend([], state={b"large": None})
        assert ingest(writer, file.path, file.pieces, STATE) == 1
        with pytest.raises(jlog.RecordTooLarge, match="65536"):
            ingest(writer, file.path, file.pieces, {b"large": bytes(65_530)})


def test_not_from_another_file_system(path: Path, mount: Callable[[str, float], Path]) -> None:
    file = built(mount("tmpfs", 16) / "file")
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces, STATE) is None
    assert values(path) == [b"first"]


def test_a_file_that_was_cut_off_is_refused(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    os.truncate(file.path, file.bytes - 1)
    with jlog.Writer(path) as writer:
        with pytest.raises(jlog.JournalError, match="it was truncated"):
            ingest(writer, file.path, file.pieces, STATE)
        writer.append(b"second")
    assert values(path) == [b"first", b"second"]
    assert left_over(path) == []


def test_not_a_file_that_is_longer_than_it_was(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    os.truncate(file.path, file.bytes + 1)
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces, STATE) is None
    assert left_over(path) == []


def left_over(path: Path) -> list[str]:
    return [name for name in os.listdir(path) if name.startswith("next.")]


def test_not_a_file_that_has_lost_its_name_to_another_one(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its two names are then ours and, for all we know, that of a segment."""
    file = built(tmp_path / "file")
    link = os.link

    def link_and_lose(source: str, target: str, **options: Any) -> None:
        link(source, target, **options)
        link(source, tmp_path / "segment")
        os.unlink(source)

    monkeypatch.setattr(os, "link", link_and_lose)
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces, STATE) is None
    assert (tmp_path / "segment").read_bytes()[:8] == bytes(8)
    assert left_over(path) == []


def test_not_while_descriptors_are_short(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with jlog.Writer(path) as writer:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # what is open stays open
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                ingest(writer, file.path, file.pieces, STATE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert left_over(path) == []
        assert ingest(writer, file.path, file.pieces, STATE) == 1


def test_state_is_taken_as_extend_takes_it(path: Path, tmp_path: Path) -> None:
    file, value = built(tmp_path / "file"), bytearray(b"before")
    with jlog.Writer(path) as writer:
        ingest(writer, file.path, file.pieces, {b"key": value})
        value[:] = b"after"
        writer.roll()
        writer.append(b"a")
    assert jlog.Journal(path).state() == {b"key": b"before"}


def test_pieces_that_are_not_the_builders_are_refused(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    with jlog.Writer(path) as writer:
        for pieces in (file.pieces[1:], file.pieces[::-1], [file.pieces[0], file.pieces[2]]):
            with pytest.raises(ValueError, match="all pieces of a builder"):
                ingest(writer, file.path, pieces, STATE)


def test_pieces_of_another_file_are_refused(path: Path, tmp_path: Path) -> None:
    one, other = (
        built(tmp_path / name, [b"%c%06d" % (letter, n) for n in range(1_000)]) for name, letter in (("a", 97), ("b", 98))
    )
    altered = [one.pieces[0]._replace(records=7), *one.pieces[1:]]
    body = EncodedRecords()
    with jlog.Writer(path) as writer:
        for pieces in (other.pieces, altered):
            with pytest.raises(ValueError, match="is not of this file"):
                ingest(writer, one.path, pieces)
            with pytest.raises(ValueError, match="is not of this file"):
                read_piece(one.path, pieces[0], body)
        with pytest.raises(TypeError, match="pieces must be those of a SegmentBuilder, not contain 1"):
            ingest(writer, one.path, [1])  # type: ignore[list-item]
        assert ingest(writer, one.path, one.pieces) == 1
    assert len(values(path)) == 1_001


def test_pieces_of_an_earlier_version_are_taken_at_their_word(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    for piece in file.pieces:
        change(file.path, piece.offset, bytes(72))
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces) == 1
    assert values(path) == [b"first", *NUMBERS]


def test_threads_may_share_a_builder(path: Path, tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path / "file") as file:
        arrays = [pyarrow.array([b"%d" % n + bytes(100_000)] * 10) for n in range(20)]
        threads = [threading.Thread(target=file.add, args=(array,)) for array in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces) == 1
    assert len(set(values(path))) == 21
    assert jlog.Journal(path).verify().ok


def test_not_above_the_limit_of_the_journal(tmp_path: Path) -> None:
    path, file = tmp_path / "journal", built(tmp_path / "file", [bytes(1_000)] * 400)
    retention = jlog.Retention(limit_bytes=200 << 10)
    with jlog.Writer(path, retention=retention, segment_bytes=64 << 10) as writer:
        writer.append(b"first")
        assert ingest(writer, file.path, file.pieces, STATE) is None
        writer.append(b"second")
    assert values(path) == [b"first", b"second"]


def test_not_twice(path: Path, tmp_path: Path) -> None:
    file = built(tmp_path / "file")
    with jlog.Writer(path) as writer:
        assert ingest(writer, file.path, file.pieces, STATE) == 1
        assert ingest(writer, file.path, file.pieces, STATE) is None
        writer.append(b"last")
    assert values(path) == [b"first", *NUMBERS, b"last"]
    assert jlog.Journal(path).verify().ok
    assert left_over(path) == []


def test_not_without_a_piece(path: Path, tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path / "file") as file:
        file.add(pyarrow.array([], pyarrow.binary()))
    with jlog.Writer(path) as writer, pytest.raises(ValueError, match="no pieces"):
        ingest(writer, file.path, file.pieces, STATE)


# --- Pieces that are copied -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_piece_is_read_into_a_body(path: Path, tmp_path: Path, compression: str) -> None:
    file = built(tmp_path / "file", compression=compression)
    with jlog.Writer(path) as writer:
        body = EncodedRecords()
        for piece in file.pieces[1:3]:
            read_piece(file.path, piece, body)
        extend_body(writer, body)
    assert values(path) == [b"first", *NUMBERS[2_500:7_500]]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_damaged_piece_is_refused_and_the_body_is_unchanged(path: Path, tmp_path: Path, compression: str) -> None:
    file = built(tmp_path / "file", compression=compression)
    damaged: Piece = file.pieces[1]
    flip(file.path, damaged.offset + 100)
    with jlog.Writer(path) as writer:
        body = EncodedRecords()
        read_piece(file.path, file.pieces[0], body)
        with pytest.raises(jlog.JournalError, match="checksum"):
            read_piece(file.path, damaged, body)
        extend_body(writer, body)
    assert values(path) == [b"first", *NUMBERS[:2_500]]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("file", path)])
def test_what_is_not_a_regular_file_is_refused(path: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    file, other = built(tmp_path / "file"), tmp_path / "other"
    make(other)
    with jlog.Writer(path) as writer:
        for use in (partial(ingest, writer, other, file.pieces), partial(read_piece, other, file.pieces[0], EncodedRecords())):
            with pytest.raises(jlog.JournalError, match="other is not a regular file; give the one that the") as raised:
                use()
            assert not isinstance(raised.value, jlog.CorruptJournal)
    assert left_over(path) == []


def test_a_builder_takes_a_new_file_only_and_names_its_codecs(tmp_path: Path) -> None:
    built(tmp_path / "file")
    with pytest.raises(FileExistsError):
        SegmentBuilder(tmp_path / "file")
    with pytest.raises(ValueError, match="none, lz4"):
        SegmentBuilder(tmp_path / "other", "zip")

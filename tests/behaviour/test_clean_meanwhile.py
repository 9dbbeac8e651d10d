"""Segments go in the very moment in which somebody looks for what is in them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

import jlog
import jlog._core.read.cursor
import jlog.positions.start
import jlog.reading.journal_records
from behaviour.journals import SMALL, fill, read_away, sequences
from crash.tampering import lose_unsynced
from jlog._core.segments.build import encode_block
from jlog._core.segments.segment import SegmentFile
from jlog.archive import Archive
from jlog.archive.cursor import ArchiveCursor
from jlog.archive.store import ArchiveFolder

LONG_AGO = datetime(2001, 9, 9, tzinfo=timezone.utc)


def make(path, retention=None):
    """Three segments of ten records and one record in the open one, which the subscriber has yet to read."""
    with jlog.Writer(path, **SMALL, retention=retention) as writer:
        jlog.Journal(path).add_subscriber("billing")
        for _ in range(3):
            fill(writer, 10)
            writer.roll()
        fill(writer, 1)
    return jlog.Journal(path)


def clean(journal):
    read_away(journal.path, "billing")
    journal.clean()
    assert journal.first_sequence == 30


@pytest.fixture
def archiving(path, tmp_path):
    return make(path, jlog.Retention(archive=(tmp_path / "archive").as_uri()))


@pytest.fixture
def clean_after(monkeypatch):
    """The journal is cleaned once `name` of `owner` has been called, before the caller has what it returns."""

    def arrange(journal, owner, name):
        original = getattr(owner, name)
        done = []

        def call(*arguments, **options):
            found = original(*arguments, **options)
            if not done:
                done.append(True)
                clean(journal)
            return found

        monkeypatch.setattr(owner, name, call)
        return done

    return arrange


@pytest.fixture
def when_listed(monkeypatch):
    """Something is done to the journal `before` or `after` the files are listed, the next time that `owner` does that."""

    def arrange(owner, before=None, after=None):
        listed = owner.list_segments

        def list_segments(directory):
            monkeypatch.undo()
            if before is not None:
                before()
            found = listed(directory)
            if after is not None:
                after()
            return found

        monkeypatch.setattr(owner, "list_segments", list_segments)

    return arrange


# --- The journal alone: what is left is read ----------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["begin", LONG_AGO], ids=["begin", "time"])
def test_a_reader_begins_at_what_is_left(path, start, clean_after):
    journal = make(path)
    done = clean_after(journal, jlog.reading.journal_records, "find_start")
    with jlog.Reader(path, start=start) as reader:
        assert sequences(reader) == [30]
    assert done


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (jlog.positions.start, "list_segments"),
        (jlog.positions.start, "load_index"),
        (jlog.positions.start, "_before"),
    ],
)
def test_a_time_is_found_in_what_is_left(path, owner, name, clean_after):
    journal = make(path)
    done = clean_after(journal, owner, name)
    assert journal.find(LONG_AGO) == 30
    assert done


def test_a_segment_gone_before_it_is_listed_is_not_damage(path, when_listed):
    journal = make(path)
    with jlog.Reader(path, start=25) as reader:
        when_listed(jlog._core.read.cursor, before=lambda: clean(journal))
        with pytest.raises(jlog.PositionLost, match="before 30 have been removed") as caught:
            reader.seek(5)
        assert caught.value.first_sequence == 30
        assert sequences(reader) == [25, 26, 27, 28, 29, 30]  # it has stayed where it was


def test_a_reader_without_its_next_segments_lost_its_position(path):
    """All that follows the segment which it has open is rolled away from and cleaned before it goes on."""
    journal = make(path)

    def roll_away_and_clean():
        with jlog.Writer(path) as writer:
            writer.roll()
            fill(writer, 1)
        read_away(path, "billing")
        journal.clean()

    with jlog.Reader(path, start=20) as reader:
        assert [record.sequence for record in reader.read(10)] == list(range(20, 30))
        roll_away_and_clean()
        with pytest.raises(jlog.PositionLost, match="from 30 to 30") as caught:
            reader.read(1)
        assert caught.value.first_sequence == 31
        assert not {int(file.stem) for file in path.glob("*.seg")} & {0, 10, 20, 30}


def test_a_reader_at_a_removed_torn_block_has_lost_its_position(path):
    """It stands where a killed writer has left half a block in a sealed segment, and asks whether the next one follows."""
    journal = make(path)
    uuid = bytes.fromhex(journal.uuid)
    segment = SegmentFile(str(path), 10, uuid)
    *_, last = segment.blocks()
    end = segment.file_bytes
    with open(journal.segments()[1].path, "ab") as file:
        file.write(encode_block(uuid, 10, end, segment.raw_body(last.offset), last.base_time_us, 20)[:-1])
    with jlog.Reader(path, start=10) as reader:
        assert [record.sequence for record in reader.read(10)] == list(range(10, 20))
        clean(journal)
        with pytest.raises(jlog.PositionLost, match="from 20 to 29") as caught:
            reader.read(1)
        assert caught.value.first_sequence == 30


def test_the_number_of_a_hole_before_what_is_left_is_not_damage(path, tmp_path, when_listed):
    """The segments before the gap are removed between the look at `bounds` and the look at the files."""
    make(path)
    with jlog.Writer(path):
        journal = jlog.Journal(lose_unsynced(path, tmp_path / "left"))
    with jlog.Writer(journal.path) as writer:
        fill(writer, 1)
    ((first, after),) = journal.gaps()

    def remove_what_is_before():
        read_away(journal.path, "billing")
        journal.clean()

    with jlog.Reader(journal.path, start="end") as reader:
        when_listed(jlog._core.read.cursor, before=remove_what_is_before)
        reader.seek(first)
        assert journal.first_sequence == after
        assert sequences(reader) == [after]


def test_the_blocks_of_what_is_left_are_listed(path):
    journal = make(path)
    blocks = journal.blocks()
    first, _ = next(blocks)
    clean(journal)
    assert {path for path, _ in blocks} <= {first, journal.segments()[0].path}


# --- With an archive: nothing is missed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["begin", LONG_AGO], ids=["begin", "time"])
def test_a_reader_begins_in_the_archive(archiving, start, clean_after):
    """The segment was empty when the reader looked into it."""
    done = clean_after(archiving, ArchiveFolder, "sizes")
    with jlog.Reader(archiving.path, start=start, archive=True) as reader:
        assert sequences(reader) == list(range(31))
    assert done


def test_a_reader_that_leaves_the_archive_goes_back_to_it(path, tmp_path, monkeypatch):
    """All that follows goes there between its look at the journal and its first step into it."""
    journal = make(path, jlog.Retention(archive=(tmp_path / "archive").as_uri()))
    with jlog.Reader(path, "billing") as reader:
        reader.seek(10)
        reader.commit()
    journal.clean()
    assert journal.first_sequence == 10
    original = ArchiveCursor._live_after

    def live_after(self, before):
        found = original(self, before)
        monkeypatch.undo()
        clean(journal)
        return found

    with jlog.Reader(path, archive=True) as reader:
        monkeypatch.setattr(ArchiveCursor, "_live_after", live_after)
        assert sequences(reader) == list(range(31))


def test_a_time_is_found_in_the_journal_beside_an_empty_archive(archiving):
    with jlog.Reader(archiving.path, start=LONG_AGO, archive=True) as reader:
        assert reader.position == 0
        reader.seek(datetime.now(timezone.utc))
        assert reader.position == 31


def test_a_time_is_not_found_in_an_empty_archive_alone(archiving):
    with pytest.raises(jlog.JournalNotFound, match="contains no archived segment"):
        Archive(archiving.options.retention.archive, journal=archiving.path).find(LONG_AGO)


@pytest.mark.parametrize("call", ["SegmentFile", "first_block_offset"])
def test_the_first_retained_segment_is_replaced_meanwhile(tmp_path, monkeypatch, call):
    """It holds state alone, and the state has become smaller."""
    path = tmp_path / "j"

    def store_until_replaced(writer, value):
        (newest,) = path.glob(f"{10:020d}.seg")
        inode = newest.stat().st_ino
        while newest.stat().st_ino == inode:
            writer.extend([], state={b"large": bytes(value)})

    original = getattr(jlog.care.cleaning, call)

    def then_replaced(*arguments):
        monkeypatch.setattr(jlog.care.cleaning, call, original)
        found = original(*arguments)
        store_until_replaced(writer, 20_000)
        return found

    with jlog.Writer(path, **SMALL) as writer:
        jlog.Journal(path).add_subscriber("billing")
        fill(writer, 10)
        writer.roll()
        store_until_replaced(writer, 60_000)
        jlog.Journal(path).set_subscriber("billing", 10)
        monkeypatch.setattr(jlog.care.cleaning, call, then_replaced)
        assert [segment.first_sequence for segment in jlog.Journal(path).clean()] == [0]
        assert jlog.Journal(path).verify().ok
    assert {key: len(value) for key, value in jlog.Journal(path).state().items()} == {b"large": 20_000}

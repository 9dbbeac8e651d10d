"""Which segments go, and what a reader that comes too late gets."""

import gc
import os
import sys

import pytest

import jlog
import jlog.care.passed_segments
import oracle
from behaviour.journals import SMALL, fill, read_away, sequences, value_of, values
from elsewhere import run_python
from jlog.positions.position_files import table_locked


@pytest.fixture
def journal(writer, path):
    """A segment every ten records."""
    for _ in range(10):
        fill(writer, 10)
        writer.roll()
    return jlog.Journal(path)


def files(path):
    return sorted(file.name for file in path.iterdir() if file.suffix in (".seg", ".idx"))


def test_a_journal_without_subscribers_keeps_everything(journal, writer):
    journal.set_checkpoint("c", "end")
    assert journal.clean() == []
    writer.append(b"x")
    writer.roll()
    assert (journal.first_sequence, len(journal.segments())) == (0, 12)


def test_a_segment_goes_once_its_only_subscriber_has_passed_it(journal, path):
    with jlog.Reader(path, "billing") as reader:
        for committed, kept in ((5, 0), (9, 0), (10, 10), (19, 10), (35, 30), (100, 100)):
            reader.commit(committed)
            assert journal.first_sequence == kept
    assert len(journal) == 0
    assert len(journal.segments()) == 1


def test_a_removed_segment_leaves_no_file(journal, path):
    read_away(path, "billing", 55)
    assert files(path)[0] == f"{50:020d}.idx"
    assert len(files(path)) == 11


def test_the_slowest_subscriber_decides(journal, path):
    for name in ("a", "b", "c"):
        journal.add_subscriber(name)
    read_away(path, "a")
    read_away(path, "b", 45)
    assert journal.first_sequence == 0
    read_away(path, "c", 25)
    assert journal.first_sequence == 20
    read_away(path, "c", 75)
    assert journal.first_sequence == 40
    assert values(path) == [value_of(number) for number in range(40, 100)]


def test_a_checkpoint_holds_back_like_a_subscriber(journal, path):
    journal.set_checkpoint("before-batch", 33)
    read_away(path, "billing")
    assert journal.first_sequence == 30
    with jlog.Reader(path, "billing") as reader:
        reader.rewind("before-batch")
        assert sequences(reader) == list(range(33, 100))
        reader.commit()
    journal.remove_checkpoint("before-batch")
    assert journal.first_sequence == 100


def test_moving_a_checkpoint_on_frees_what_it_has_passed(journal, path):
    journal.set_checkpoint("c", 33)
    read_away(path, "billing")
    journal.set_checkpoint("c", 78)
    journal.clean()
    assert journal.first_sequence == 70


def test_removing_the_slowest_subscriber_frees_what_it_held(journal, path):
    journal.add_subscriber("slow")
    read_away(path, "fast", 85)
    assert journal.first_sequence == 0
    journal.remove_subscriber("slow")
    assert journal.first_sequence == 80


def test_removing_the_last_subscriber_frees_nothing(journal, path):
    read_away(path, "billing", 30)
    journal.remove_subscriber("billing")
    assert (journal.first_sequence, journal.clean()) == (30, [])


def test_a_roll_removes_what_was_waiting_for_it(writer, path):
    journal = jlog.Journal(path)
    fill(writer, 10)
    with jlog.Reader(path, "billing") as reader:
        list(reader)
        reader.commit()
    assert journal.first_sequence == 0
    writer.append(b"next")
    read_away(path, "billing")
    assert journal.first_sequence == 0
    writer.roll()
    assert journal.first_sequence == 11


def test_a_subscriber_in_the_open_segment_never_loses_it(writer, path):
    with jlog.Reader(path, "billing") as reader:
        for _ in range(300):
            fill(writer, 1)
            assert len(sequences(reader)) == 1
            reader.commit()
    journal = jlog.Journal(path)
    assert len(journal.segments()) == 1
    assert journal.next_sequence == 300


def test_seeking_and_reading_without_commit_removes_nothing(journal, path):
    with jlog.Reader(path, "billing") as reader:
        reader.seek("end")
        list(reader.values())
        assert journal.clean() == []
    assert journal.first_sequence == 0


def test_clean_lists_what_it_removes_and_a_dry_run_what_it_would(journal, path):
    journal.set_checkpoint("c", "begin")
    read_away(path, "billing", 55)
    os.unlink(path / "checkpoints" / "c")  # so that nobody has noticed
    before = files(path)
    would = journal.clean(dry_run=True)
    assert [segment.first_sequence for segment in would] == [0, 10, 20, 30, 40]
    assert (files(path), journal.first_sequence) == (before, 0)
    assert journal.clean() == would
    assert journal.first_sequence == 50
    assert journal.clean() == journal.clean(dry_run=True) == []
    assert not any(os.path.exists(segment.path) for segment in would)


def test_clean_works_where_no_writer_is(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
    jlog.Journal(path).add_subscriber("billing", start=90)
    removed = jlog.Journal(path).clean()
    assert removed
    assert jlog.Journal(path).first_sequence == removed[-1].first_sequence + removed[-1].records
    assert values(path) == [value_of(number) for number in range(jlog.Journal(path).first_sequence, 100)]


def test_delete_read_false_keeps_what_is_read(path):
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(delete_read=False)) as writer:
        fill(writer, 100)
        read_away(path, "billing")
        writer.roll()
    assert jlog.Journal(path).clean() == []
    assert values(path) == [value_of(number) for number in range(100)]


def test_delete_read_may_be_changed_back_and_forth(journal, path):
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False)):
        read_away(path, "billing", 55)
        assert journal.first_sequence == 0
    with jlog.Writer(path, retention=jlog.Retention()):
        assert len(journal.clean()) == 5


def test_a_retention_set_by_another_process_holds_for_this_one(journal, path):
    change = f"import jlog; jlog.Writer({str(path)!r}, retention=jlog.Retention(delete_read=False)).close()"
    run_python(change)
    assert journal.options.retention.delete_read is False
    read_away(path, "billing")
    assert (journal.clean(), journal.first_sequence) == ([], 0)


def test_a_damaged_position_holds_everything_back(journal, path, request):
    request.applymarker(pytest.mark.damage)
    journal.add_subscriber("broken", start="end")
    (path / "subscribers" / "broken").write_bytes(bytes(8192))
    read_away(path, "billing")
    assert (journal.clean(), journal.first_sequence) == ([], 0)
    journal.set_subscriber("broken", "end")
    assert len(journal.clean()) == 10


def test_nothing_is_removed_before_its_replacement_is_on_disk(journal, writer, path):
    writer.sync()
    writer.extend([b"x"], state={b"k": b"v"})
    writer.roll()
    read_away(path, "billing")
    first = journal.first_sequence
    assert first > 100
    # The mark: a power loss leaves at least what lies before it, here the state that the removed segments had.
    assert oracle.read_journal(path).bounds.mark >= (first, 1, first)


def test_a_durable_reader_begins_after_removed_unsynced_records(journal, writer, path):
    fill(writer, 5)
    read_away(path, "billing")
    assert journal.first_sequence == 100
    with jlog.Reader(path, durable_only=True) as reader:
        assert list(reader) == []
        writer.sync()
        assert sequences(reader) == [100, 101, 102, 103, 104]


def test_lag_of_a_durable_reader_skips_removed_unsynced_records(journal, writer, path):
    fill(writer, 5)
    read_away(path, "billing")
    with jlog.Reader(path, durable_only=True) as reader:
        assert (reader.lag, journal.first_sequence) == (5, 100)


# --- Too late -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cleaned(journal, path):
    """The first 50 of 100 records are gone."""
    read_away(path, "billing", 55)
    return path


def lost(call):
    with pytest.raises(jlog.PositionLost, match="retention") as caught:
        call()
    assert isinstance(caught.value, LookupError)
    return caught.value.first_sequence


def test_an_anonymous_reader_learns_the_first_record_still_there(journal, path):
    reader = jlog.Reader(path)
    assert next(iter(reader)).sequence == 0
    reader.seek(10)
    read_away(path, "billing", 55)
    found = []
    first = lost(lambda: found.extend(reader))
    assert first == 50
    assert all(record.sequence < 50 for record in found)
    reader.seek(first)
    assert sequences(reader) == list(range(50, 100))


def test_a_reader_in_a_removed_segment_never_skips_silently(journal, path):
    reader = jlog.Reader(path)
    records = iter(reader)
    found = [next(records).sequence for _ in range(5)]
    read_away(path, "billing", 95)
    try:
        found += [record.sequence for record in records]
    except jlog.PositionLost as error:
        assert error.first_sequence == 90  # noqa: PT017
    assert found == list(range(len(found)))


@pytest.mark.parametrize(
    "call",
    [
        lambda path: jlog.Reader(path, start=10),
        lambda path: jlog.Reader(path, start="end").seek(10),
        lambda path: jlog.Reader(path, "billing").commit(10),
        lambda path: jlog.Journal(path).set_checkpoint("c", 49),
        lambda path: jlog.Journal(path).set_subscriber("billing", 49),
    ],
    ids=["start", "seek", "commit", "set_checkpoint", "set_subscriber"],
)
def test_going_back_to_what_is_gone_is_refused(cleaned, call):
    assert lost(lambda: call(cleaned)) == 50
    gc.collect()
    assert jlog.Journal(cleaned).subscribers()["billing"].sequence == 55


def test_begin_is_the_first_that_is_there(cleaned):
    with jlog.Reader(cleaned) as reader:
        assert (reader.position, reader.lag) == (50, 50)
    with jlog.Reader(cleaned, "new") as reader:
        assert sequences(reader)[0] == 50


def test_a_passed_over_subscriber_raises_until_it_seeks(journal, path):
    journal.add_subscriber("late", start=5)
    os.rename(path / "subscribers" / "late", path / "subscribers" / ".late")
    read_away(path, "billing", 55)
    os.rename(path / "subscribers" / ".late", path / "subscribers" / "late")
    with jlog.Reader(path, "late") as reader:
        assert (reader.position, reader.committed) == (5, 5)
        for call in (reader.__iter__, reader.values, reader.read, lambda: next(reader.follow(timeout=0))):
            assert lost(call) == 50
        reader.seek("begin")
        assert sequences(reader) == list(range(50, 100))
        reader.commit()
    assert journal.subscribers()["late"].sequence == 100


def test_lag_counts_only_what_is_still_there(journal, path):
    journal.add_subscriber("late", start=5)
    os.rename(path / "subscribers" / "late", path / "subscribers" / ".late")
    read_away(path, "billing", 55)
    os.rename(path / "subscribers" / ".late", path / "subscribers" / "late")
    assert journal.subscribers()["late"].lag == 50


# --- Commits that free nothing -------------------------------------------------------------------------------------------


@pytest.fixture
def listings(path):
    """The listings of the journal's directory, as Python reports them."""
    found, watching = [], [True]

    def note(event, arguments):
        if watching and event in ("os.listdir", "os.scandir") and os.path.samefile(arguments[0], path):
            found.append(event)

    sys.addaudithook(note)  # it can never be removed
    yield found
    watching.clear()


@pytest.mark.parametrize("held", [False, True])
def test_commits_within_the_open_segment_list_no_directory(journal, writer, path, listings, held):
    if held:
        journal.add_subscriber("slow")
    fill(writer, 20)
    with jlog.Reader(path, "billing") as reader:
        reader.commit(101)
        assert listings
        listings.clear()
        for sequence in range(102, 120):
            reader.commit(sequence)
        assert listings == []
        writer.roll()
        reader.commit(120)
        assert listings
    assert journal.first_sequence == (0 if held else 120)


@pytest.mark.parametrize("move", ["set_checkpoint", "remove_checkpoint", "set_by_the_reader"])
def test_a_commit_within_the_open_segment_removes_what_a_checkpoint_lets_go(journal, writer, path, move):
    journal.set_checkpoint("c", 15)
    fill(writer, 20)
    with jlog.Reader(path, "billing", start=110) as reader:
        reader.commit(111)
        assert journal.first_sequence == 10
        if move == "set_checkpoint":
            journal.set_checkpoint("c", 16)
            reader.commit(112)
            assert journal.first_sequence == 10
            journal.set_checkpoint("c", 35)
        elif move == "remove_checkpoint":
            os.unlink(path / "checkpoints" / "c")
        else:
            reader.seek(35)
            reader.checkpoint("c")
        reader.commit(113)
        assert journal.first_sequence == (100 if move == "remove_checkpoint" else 30)


def test_a_commit_removes_what_the_one_before_had_to_leave(journal, writer, path):
    """Another process held the lock of the table at the first one."""
    fill(writer, 20)
    with jlog.Reader(path, "billing") as reader:
        with table_locked(str(path)):
            reader.commit(110)
        assert journal.first_sequence == 0
        reader.commit(111)
        assert journal.first_sequence == 100


def test_commits_do_not_try_again_and_again_what_fails(journal, writer, path, listings, monkeypatch):
    """Another process removes segments, or a backup copies the journal for hours."""
    fill(writer, 20)
    with jlog.Reader(path, "billing") as reader:
        with table_locked(str(path)):
            for sequence in range(101, 103):
                reader.commit(sequence)
            listings.clear()
            for sequence in range(103, 120):
                reader.commit(sequence)
            assert listings == []
        monkeypatch.setattr(jlog.care.passed_segments, "RETRY_SECONDS", 0)
        reader.commit(120)
        assert journal.first_sequence == 100


def test_a_commit_within_the_open_segment_removes_what_a_changed_retention_lets_go(path, monkeypatch):
    """Nothing tells the reader of the change: a look for segments holds for a limited time."""
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(delete_read=False)) as writer:
        fill(writer, 10)
        writer.roll()
        fill(writer, 10)
        with jlog.Reader(path, "billing") as reader:
            reader.commit(11)
            jlog.Writer(path, retention=jlog.Retention()).close()
            reader.commit(12)
            assert jlog.Journal(path).first_sequence == 0
            monkeypatch.setattr(jlog.care.passed_segments, "LOOK_SECONDS", 0)
            reader.commit(13)
            assert jlog.Journal(path).first_sequence == 10

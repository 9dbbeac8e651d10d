"""Durable positions: commit, checkpoint, rewind, and what belongs to one Reader at a time."""

import shutil

import pytest

import jlog
from behaviour.journals import SMALL, fill, sequences


@pytest.fixture
def ten(writer, path):
    fill(writer, 10)
    return path


@pytest.fixture
def reader(ten):
    with jlog.Reader(ten, "billing") as reader:
        yield reader


def take(reader, count):
    return [record.sequence for record in reader.read(max_records=count)]


def stands_at(path, name="billing"):
    return jlog.Journal(path).subscribers()[name].sequence


def test_nothing_is_committed_before_commit(reader, ten):
    take(reader, 4)
    assert (reader.position, reader.committed, stands_at(ten)) == (4, 0, 0)


def test_commit_commits_the_position(reader, ten):
    take(reader, 4)
    reader.commit()
    assert (reader.position, reader.committed, stands_at(ten)) == (4, 4, 4)


def test_closing_does_not_commit(reader, ten):
    """Reading resumes at the last commit."""
    take(reader, 4)
    reader.commit()
    take(reader, 3)
    reader.close()
    with jlog.Reader(ten, "billing") as again:
        assert again.position == 4
        assert sequences(again) == [4, 5, 6, 7, 8, 9]


def test_commit_of_a_sequence_is_up_to_but_without_it(reader, ten):
    take(reader, 8)
    reader.commit(3)
    assert (reader.position, reader.committed) == (8, 3)
    reader.close()
    with jlog.Reader(ten, "billing") as again:
        assert sequences(again)[0] == 3


def test_commit_goes_backward_too(reader, ten):
    take(reader, 8)
    reader.commit()
    reader.commit(2)
    assert (reader.committed, stands_at(ten)) == (2, 2)
    reader.seek(5)
    reader.commit()
    assert reader.committed == 5


def test_unread_records_may_be_committed_up_to_the_end(reader):
    reader.commit(10)
    assert (reader.position, reader.committed) == (0, 10)
    with pytest.raises(ValueError, match="11"):
        reader.commit(11)
    assert reader.committed == 10


@pytest.mark.parametrize("sequence", [1.0, "5", True])
def test_a_commit_takes_an_int(reader, sequence):
    with pytest.raises(TypeError, match="sequence"):
        reader.commit(sequence)


def test_a_commit_takes_no_negative_number(reader):
    with pytest.raises(ValueError, match="-1"):
        reader.commit(-1)


def test_a_durable_commit_syncs_the_journal_up_to_it(reader, ten):
    take(reader, 4)
    with jlog.Reader(ten, durable_only=True) as durable:
        assert sequences(durable) == []
        reader.commit(durable=True)
        assert sequences(durable)[:4] == [0, 1, 2, 3]
    assert reader.committed == 4


def test_a_durable_commit_works_where_no_writer_is(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 5)
    with jlog.Reader(path, "billing") as reader:
        take(reader, 5)
        reader.commit(durable=True)
        assert reader.committed == 5


def test_a_durable_commit_of_synced_records_does_not_open_the_journal_for_writing(ten, reader, monkeypatch):
    take(reader, 4)
    reader.sync()
    monkeypatch.setattr("jlog.reading.reader.sync_up_to", None)
    reader.commit(4, durable=True)
    assert reader.committed == 4


@pytest.mark.parametrize("durable", [False, True])
def test_a_commit_into_a_journal_that_was_removed_says_so(path, durable):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 5)
    with jlog.Reader(path, "billing") as reader:
        take(reader, 5)
        shutil.rmtree(path)
        with pytest.raises(jlog.JournalMoved, match="its directory was removed"):
            reader.commit(durable=durable)


def test_an_anonymous_reader_cannot_commit_and_is_told_how(ten):
    with jlog.Reader(ten) as reader:
        for call in (reader.commit, lambda: reader.rewind("x"), lambda: reader.committed):
            with pytest.raises(jlog.JournalError, match=r"anonymous.*name"):
                call()


# --- Checkpoints --------------------------------------------------------------------------------------------------


def test_a_checkpoint_marks_the_position_and_moves(reader, ten):
    take(reader, 3)
    reader.checkpoint("before-batch")
    assert jlog.Journal(ten).checkpoints()["before-batch"].sequence == 3
    take(reader, 4)
    reader.checkpoint("before-batch")
    found = jlog.Journal(ten).checkpoints()["before-batch"]
    assert (found.sequence, found.lag) == (7, 3)
    reader.seek(2)
    reader.checkpoint("before-batch")
    assert jlog.Journal(ten).checkpoints()["before-batch"].sequence == 2
    assert reader.committed == 0


def test_an_anonymous_reader_makes_checkpoints_too(ten):
    with jlog.Reader(ten, start=6) as reader:
        reader.checkpoint("here")
    assert jlog.Journal(ten).checkpoints()["here"].sequence == 6


def test_rewind_moves_position_and_committed_back(reader, ten):
    take(reader, 3)
    reader.checkpoint("before-batch")
    take(reader, 5)
    reader.commit()
    reader.rewind("before-batch")
    assert (reader.position, reader.committed, stands_at(ten)) == (3, 3, 3)
    assert sequences(reader) == [3, 4, 5, 6, 7, 8, 9]


def test_rewind_goes_forward_to_a_checkpoint_that_lies_ahead(reader, ten):
    jlog.Journal(ten).set_checkpoint("ahead", 8)
    reader.rewind("ahead")
    assert (reader.position, reader.committed) == (8, 8)


def test_rewind_to_nowhere_names_the_checkpoints_that_there_are(reader, ten):
    jlog.Journal(ten).set_checkpoint("a", 1)
    jlog.Journal(ten).set_checkpoint("b", 2)
    take(reader, 5)
    with pytest.raises(jlog.CheckpointNotFound, match=r"'c'.*a, b"):
        reader.rewind("c")
    assert (reader.position, reader.committed) == (5, 0)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "begin", "5"])
def test_a_checkpoints_name_keeps_the_rules(reader, ten, name):
    with pytest.raises(ValueError, match="checkpoint"):
        reader.checkpoint(name)
    with pytest.raises(ValueError, match="checkpoint"):
        reader.rewind(name)
    assert jlog.Journal(ten).checkpoints() == {}


# --- One Reader at a time -----------------------------------------------------------------------------------------


def test_a_name_belongs_to_one_reader(reader, ten):
    for _ in range(2):
        with pytest.raises(jlog.SubscriberBusy, match="billing"):
            jlog.Reader(ten, "billing")
    with jlog.Reader(ten, "shipping") as other:
        assert len(list(other)) == 10
    assert jlog.Journal(ten).subscribers()["billing"].busy
    assert not jlog.Journal(ten).subscribers()["shipping"].busy


def test_closing_frees_the_name(reader, ten):
    reader.close()
    assert not jlog.Journal(ten).subscribers()["billing"].busy
    jlog.Reader(ten, "billing").close()


def test_a_forgotten_reader_frees_the_name(ten):
    reader = jlog.Reader(ten, "billing")
    del reader
    jlog.Reader(ten, "billing").close()


def test_a_refused_reader_frees_nothing_and_holds_nothing(reader, ten):
    with pytest.raises(jlog.SubscriberBusy):
        jlog.Reader(ten, "billing")
    reader.close()
    with jlog.Reader(ten, "billing") as again:
        assert again.position == 0


def test_a_busy_subscriber_can_be_copied_and_not_changed(reader, ten):
    """It is neither moved nor removed."""
    journal = jlog.Journal(ten)
    journal.set_checkpoint("c", 1)
    for change in (
        lambda: journal.set_subscriber("billing", 5),
        lambda: journal.rewind("billing", "c"),
        lambda: journal.remove_subscriber("billing"),
        lambda: jlog.Journal.delete(ten),
    ):
        with pytest.raises((jlog.SubscriberBusy, jlog.JournalLocked)):
            change()
    reader.commit(4)
    journal.add_subscriber("copy", copy_of="billing")
    assert stands_at(ten, "copy") == 4
    assert reader.committed == 4

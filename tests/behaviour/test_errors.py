"""Errors: of the right kinds, with what happened, where, and what to do next."""

import copy
import errno
import inspect
import pickle

import pytest

import jlog
import jlog.errors
from behaviour.journals import fill

ALSO = {
    "JournalNotFound": FileNotFoundError,
    "JournalExists": FileExistsError,
    "JournalClosed": ValueError,
    "DecodeError": ValueError,
    "RecordTooLarge": ValueError,
    "SchemaConflict": ValueError,
    "SubscriberNotFound": LookupError,
    "CheckpointNotFound": LookupError,
    "PositionLost": LookupError,
}
PLAIN = [
    "JournalLocked",
    "JournalMoved",
    "JournalFull",
    "CorruptJournal",
    "UnsupportedFormat",
    "SubscriberExists",
    "SubscriberBusy",
    "LeaseLost",
]


@pytest.mark.parametrize("name", [*ALSO, *PLAIN])
def test_every_error_is_a_journal_error_and_a_builtin_one(name):
    error = getattr(jlog, name)
    assert issubclass(error, jlog.JournalError)
    assert issubclass(error, ALSO.get(name, Exception))
    assert inspect.getdoc(error)


def test_there_are_no_others():
    assert set(jlog.errors.__all__) == {*ALSO, *PLAIN, "JournalError"}
    assert set(jlog.errors.__all__) <= set(jlog.__all__)


ARGUMENTS = {
    "JournalNotFound": ("there is none", "/path"),
    "CorruptJournal": ("/path/file.seg", 96, "the block fails"),
    "DecodeError": ("/path", 7, "ValueError: broken"),
    "PositionLost": ("it is gone", 50),
}


@pytest.mark.parametrize("name", jlog.errors.__all__)
def test_an_error_survives_the_way_to_another_process(name):
    error = getattr(jlog, name)(*ARGUMENTS.get(name, ("it is so",)))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        for attribute in ("errno", "strerror", "filename"):
            assert getattr(again, attribute, None) == getattr(error, attribute, None)


def test_lost_tasks_stay_in_the_process_of_their_worker(path):
    with jlog.Writer(path) as writer, jlog.Worker(path, "work") as worker:
        fill(writer, 1)
        tasks = worker.take()
        error = jlog.LeaseLost("it is lost", tasks)
        assert copy.copy(error).tasks == tasks
        for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert (str(again), again.tasks) == ("it is lost", [])


def test_a_missing_or_existing_journal_gives_errno_and_filename(path):
    """Each of the two errors has a message of its own."""
    with pytest.raises(jlog.JournalNotFound) as missing:
        jlog.Journal(path)
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(path))
    assert str(missing.value) == missing.value.strerror
    jlog.Journal.create(path)
    with pytest.raises(jlog.JournalExists) as there:
        jlog.Journal.create(path)
    assert (there.value.errno, there.value.filename) == (errno.EEXIST, str(path))
    assert str(there.value).startswith(f"{path} is already a journal")


def test_corrupt_journal_tells_path_offset_and_reason():
    error = jlog.CorruptJournal("/path/file.seg", 96, "the block fails its checksum")
    assert (error.path, error.offset, error.reason) == ("/path/file.seg", 96, "the block fails its checksum")
    assert str(error).startswith("/path/file.seg: damaged at byte 96: the block fails its checksum")
    assert "jlogtool verify" in str(error)


def test_position_lost_tells_the_first_sequence_that_is_there():
    error = jlog.PositionLost("it is gone", 50)
    assert (error.first_sequence, str(error)) == (50, "it is gone")


def busy(path):
    reader = jlog.Reader(path, "billing")
    try:
        jlog.Reader(path, "billing")
    finally:
        reader.close()


def closed_writer(path):
    writer = jlog.Writer(path)
    writer.close()
    writer.append(b"x")


def closed_reader(path):
    reader = jlog.Reader(path)
    reader.close()
    reader.read()


def taken(path):
    jlog.Journal(path).add_subscriber("taken")
    jlog.Journal(path).add_subscriber("taken")


SAID = {
    "not found": (lambda path: jlog.Journal(f"{path}-missing"), "create"),
    "exists": (jlog.Journal.create, "another path"),
    "closed writer": (closed_writer, "open a new one"),
    "closed reader": (closed_reader, "open a new one"),
    "delete": (jlog.Journal.delete, "close its writers"),
    "no subscriber": (lambda path: jlog.Reader(path, "x", create=False), "there: billing"),
    "no checkpoint": (lambda path: jlog.Reader(path, start="x"), "there: none"),
    "taken": (taken, "another name"),
    "busy": (busy, "close these"),
    "anonymous commit": (lambda path: jlog.Reader(path).commit(), "open it with a name"),
    "beyond the end": (lambda path: jlog.Reader(path, start=1000), "ends at sequence 10"),
}


@pytest.mark.parametrize(("call", "advice"), SAID.values(), ids=SAID.keys())
def test_a_message_names_the_journal_and_says_what_to_do(writer, path, call, advice):
    fill(writer, 10)
    jlog.Journal(path).add_subscriber("billing")
    with pytest.raises((jlog.JournalError, ValueError)) as caught:
        call(path)
    assert str(path) in str(caught.value)
    assert advice in str(caught.value)

"""A reader's life: what it tells, close, and where it cannot go."""

import pickle

import pytest

import jlog
from behaviour.journals import fill


@pytest.fixture
def reader(writer, path):
    fill(writer, 10)
    with jlog.Reader(path, "billing") as reader:
        yield reader


def test_it_tells_its_name_and_journal(reader, path):
    assert reader.name == "billing"
    assert str(path) in repr(reader)
    assert "billing" in repr(reader)
    with jlog.Reader(path) as anonymous:
        assert anonymous.name is None


CALLS = {
    "iteration": list,
    "values": lambda reader: list(reader.values()),
    "read": lambda reader: reader.read(),
    "follow": lambda reader: list(reader.follow(timeout=0)),
    "read_backward": lambda reader: reader.read_backward(1),
    "committed": lambda reader: reader.committed,
    "lag": lambda reader: reader.lag,
    "seek": lambda reader: reader.seek(0),
    "commit": lambda reader: reader.commit(),
    "commit of a sequence": lambda reader: reader.commit(1),
    "rewind": lambda reader: reader.rewind("c"),
    "skip_damage": lambda reader: reader.skip_damage(),
    "position": lambda reader: reader.position,
    "checkpoint": lambda reader: reader.checkpoint("c"),
    "with": lambda reader: reader.__enter__(),
}


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, id=name) for name, call in CALLS.items()],
)
def test_a_closed_reader_raises(reader, path, call):
    reader.seek(5)
    reader.close()
    with pytest.raises(jlog.JournalClosed, match=str(path)):
        call(reader)


@pytest.mark.parametrize("start", [iter, lambda reader: reader.values(), lambda reader: reader.follow(timeout=0)])
def test_an_iterator_of_a_closed_reader_raises(reader, start):
    records = start(reader)
    next(records)
    reader.close()
    with pytest.raises(jlog.JournalClosed):
        next(records)


def test_a_second_close_does_nothing(reader):
    reader.close()
    reader.close()
    assert "billing" in repr(reader)


def test_with_closes_it_also_when_the_body_raises(writer, path):
    with pytest.raises(RuntimeError, match="body"):
        with jlog.Reader(path, "billing"):
            raise RuntimeError("body")
    jlog.Reader(path, "billing").close()


def test_it_does_not_pickle_and_says_what_to_do(reader):
    with pytest.raises(TypeError, match="path and name"):
        pickle.dumps(reader)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a" * 201,
        "é" * 101,
        "a/b",
        "/",
        "a\nb",
        "a\0b",
        ".a",
        "begin",
        "end",
        "0",
        "17",
        "2024-05-01",
        "2024-05-01T12:00",
    ],
)
def test_a_name_against_the_rules_is_refused(writer, path, name):
    with pytest.raises(ValueError, match="cannot name a subscriber"):
        jlog.Reader(path, name)
    assert jlog.Journal(path).subscribers() == {}


@pytest.mark.parametrize("name", ["a", "a" * 200, "é" * 100, "kafka:orders", "größe 5", "-", "a.b", "5a", "Begin"])
def test_a_name_within_the_rules_is_taken(writer, path, name):
    fill(writer, 3)
    with jlog.Reader(path, name) as reader:
        list(reader)
        reader.commit()
        reader.checkpoint(name)
    journal = jlog.Journal(path)
    assert (list(journal.subscribers()), list(journal.checkpoints())) == ([name], [name])
    assert journal.subscribers()[name].sequence == 3


def test_a_name_is_str(writer, path):
    with pytest.raises(TypeError, match="str"):
        jlog.Reader(path, b"billing")


@pytest.mark.parametrize(("name", "create"), [("billing", False), (None, True)])
def test_a_journal_that_does_not_exist_is_not_created(tmp_path, name, create):
    with pytest.raises(jlog.JournalNotFound):
        jlog.Reader(tmp_path / "missing", name, create=create)
    assert not (tmp_path / "missing").exists()

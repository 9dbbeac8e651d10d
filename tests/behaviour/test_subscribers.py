"""Subscribers and checkpoints, kept from outside."""

from datetime import datetime, timezone

import pytest

import jlog
from behaviour.journals import fill, read_away, sequences


@pytest.fixture
def journal(writer, path):
    fill(writer, 100)
    return jlog.Journal(path)


def stands(journal, name="billing"):
    found = journal.subscribers()[name]
    return found.sequence, found.lag


def test_there_are_none_at_first(journal):
    assert (journal.subscribers(), journal.checkpoints()) == ({}, {})


@pytest.mark.parametrize(("start", "expected"), [("begin", 0), ("end", 100), (0, 0), (42, 42), (100, 100), ("middle", 50)])
def test_one_is_added_where_it_is_told(journal, path, start, expected):
    journal.set_checkpoint("middle", 50)
    journal.add_subscriber("billing", start=start)
    assert stands(journal) == (expected, 100 - expected)
    with jlog.Reader(path, "billing", create=False) as reader:
        assert sequences(reader) == list(range(expected, 100))


def test_one_is_added_at_a_time(journal):
    journal.add_subscriber("billing", start=datetime.now(timezone.utc).replace(year=2090))
    assert stands(journal) == (100, 0)


def test_a_copy_stands_where_the_other_one_stands(journal):
    journal.add_subscriber("billing", start=30)
    journal.add_subscriber("copy", copy_of="billing")
    journal.set_subscriber("billing", 60)
    assert (stands(journal), stands(journal, "copy")) == ((60, 40), (30, 70))


def test_a_copy_of_nobody_names_those_that_there_are(journal):
    journal.add_subscriber("shipping")
    with pytest.raises(jlog.SubscriberNotFound, match=r"'billing'.*shipping"):
        journal.add_subscriber("copy", copy_of="billing")
    assert list(journal.subscribers()) == ["shipping"]


def test_a_name_that_is_taken_is_refused(journal):
    journal.add_subscriber("billing", start=30)
    with pytest.raises(jlog.SubscriberExists, match="billing"):
        journal.add_subscriber("billing")
    assert stands(journal) == (30, 70)


def test_names_are_told_in_order_and_may_be_those_of_checkpoints(journal):
    for name in ("c", "a", "b"):
        journal.add_subscriber(name)
        journal.set_checkpoint(name, 5)
    assert list(journal.subscribers()) == list(journal.checkpoints()) == ["a", "b", "c"]


def test_one_is_set_to_any_place(journal):
    journal.add_subscriber("billing")
    journal.set_checkpoint("middle", 50)
    for position, expected in ((70, 70), (20, 20), ("end", 100), ("begin", 0), ("middle", 50)):
        journal.set_subscriber("billing", position)
        assert stands(journal) == (expected, 100 - expected)


def test_one_is_rewound_to_a_checkpoint(journal):
    journal.add_subscriber("billing", start="end")
    journal.set_checkpoint("before-batch", 42)
    journal.rewind("billing", "before-batch")
    assert stands(journal) == (42, 58)


def test_one_is_removed(journal, path):
    journal.add_subscriber("billing", start=50)
    journal.remove_subscriber("billing")
    assert journal.subscribers() == {}
    with jlog.Reader(path, "billing") as reader:
        assert reader.position == 0


NOBODY = {
    "remove": lambda journal: journal.remove_subscriber("billing"),
    "set": lambda journal: journal.set_subscriber("billing", 5),
    "rewind": lambda journal: journal.rewind("billing", "c"),
}


@pytest.mark.parametrize("call", NOBODY.values(), ids=NOBODY.keys())
def test_a_missing_name_is_not_found_and_not_made(journal, call):
    journal.set_checkpoint("c", 5)
    journal.add_subscriber("shipping")
    with pytest.raises(jlog.SubscriberNotFound, match=r"'billing'.*shipping") as caught:
        call(journal)
    assert isinstance(caught.value, LookupError)
    assert list(journal.subscribers()) == ["shipping"]


def test_a_checkpoint_that_is_not_there_is_not_found(journal):
    journal.add_subscriber("billing")
    journal.set_checkpoint("there", 5)
    for call in (
        lambda: journal.remove_checkpoint("c"),
        lambda: journal.rewind("billing", "c"),
        lambda: journal.add_subscriber("other", start="c"),
        lambda: journal.set_subscriber("billing", "c"),
        lambda: journal.set_checkpoint("d", "c"),
    ):
        with pytest.raises(jlog.CheckpointNotFound, match=r"'c'.*there") as caught:
            call()
        assert isinstance(caught.value, LookupError)
    assert (stands(journal), list(journal.checkpoints())) == ((0, 100), ["there"])


def test_a_checkpoint_is_made_moved_and_removed(journal):
    journal.set_checkpoint("c", 10)
    assert journal.checkpoints()["c"].sequence == 10
    journal.set_checkpoint("c", "end")
    journal.set_checkpoint("d", "c")
    assert (journal.checkpoints()["c"].lag, journal.checkpoints()["d"].sequence) == (0, 100)
    journal.remove_checkpoint("c")
    assert list(journal.checkpoints()) == ["d"]


@pytest.mark.parametrize(("position", "error"), [(101, ValueError), (-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_a_place_that_cannot_be_is_refused_everywhere(journal, position, error):
    journal.add_subscriber("billing", start=7)
    for call in (
        lambda: journal.add_subscriber("other", start=position),
        lambda: journal.set_subscriber("billing", position),
        lambda: journal.set_checkpoint("c", position),
    ):
        with pytest.raises(error):
            call()
    assert (list(journal.subscribers()), stands(journal), journal.checkpoints()) == (["billing"], (7, 93), {})


@pytest.mark.parametrize("name", ["", "a/b", "..", ".x", "a\n", "begin", "end", "12", "x" * 201])
def test_names_against_the_rules_are_refused_everywhere(journal, name):
    journal.add_subscriber("billing")
    for call in (
        lambda: journal.add_subscriber(name),
        lambda: journal.add_subscriber("other", copy_of=name),
        lambda: journal.remove_subscriber(name),
        lambda: journal.set_subscriber(name, 5),
        lambda: journal.rewind(name, "c"),
        lambda: journal.rewind("billing", name),
        lambda: journal.set_checkpoint(name, 5),
        lambda: journal.remove_checkpoint(name),
    ):
        with pytest.raises(ValueError, match="cannot name a"):
            call()
    assert (list(journal.subscribers()), journal.checkpoints()) == (["billing"], {})


@pytest.mark.parametrize(
    "call",
    [
        lambda journal: journal.set_subscriber("billing", 0),
        lambda journal: journal.set_checkpoint("c", 0),
        lambda journal: journal.add_subscriber("other", start=0),
        lambda journal: jlog.Reader(journal.path, "other", start=0),
    ],
    ids=["set_subscriber", "set_checkpoint", "add_subscriber", "Reader"],
)
def test_nobody_is_put_where_retention_has_removed_the_records(journal, path, call):
    journal.add_subscriber("billing")
    read_away(path, "billing", 60)
    assert journal.first_sequence > 0
    with pytest.raises(jlog.PositionLost) as caught:
        call(journal)
    assert caught.value.first_sequence == journal.first_sequence
    assert (list(journal.subscribers()), stands(journal), journal.checkpoints()) == (
        ["billing"],
        (60, 40),
        {},
    )


def test_a_flow_that_cannot_begin_leaves_no_subscriber(path, writer, tmp_path):
    """It would hold back every segment, and nobody would read."""
    fill(writer, 3)
    taken = tmp_path / "taken"
    taken.write_text("a file")
    for subscribers in ({}, {"mine": 2}):
        for name, sequence in subscribers.items():
            jlog.Journal(path).add_subscriber(name, sequence)
        with pytest.raises((jlog.JournalError, OSError)):
            jlog.transform(path, taken, lambda record: record, subscriber="mine")
        assert {name: at.sequence for name, at in jlog.Journal(path).subscribers().items()} == subscribers


def test_both_lags_of_a_subscriber_that_reads_synced_records_count_those_that_are_not_synced_too(path):
    with jlog.Writer(path) as writer, jlog.Reader(path, "billing", durable_only=True) as reader:
        fill(writer, 3)
        writer.sync()
        fill(writer, 2)
        assert reader.lag == jlog.Journal(path).subscribers()["billing"].lag == 5
        assert len(reader.read()) == 3
        reader.commit()
        assert reader.lag == jlog.Journal(path).subscribers()["billing"].lag == 2


@pytest.mark.parametrize("names", ["billing", b"billing", [1]])
def test_names_that_are_no_list_of_names_are_refused(tmp_path, names):
    with jlog.Reader(tmp_path / "j", "billing"):
        journal = jlog.Journal(tmp_path / "j")
        for find in (journal.subscribers, journal.checkpoints):
            with pytest.raises(TypeError, match="names must be a list of str, not "):
                find(names)
        assert list(journal.subscribers({"billing"})) == ["billing"]

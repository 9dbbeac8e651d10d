"""append(value, id=...) by several processes that are killed: each id has one record, and every process is told the same."""

import random
import signal

import pytest

import jlog
from crash.tampering import lose_unsynced
from processes.children import Died

pytestmark = pytest.mark.usefixtures("failpoints")

COUNT = 120
ALL = list(range(COUNT))
OPTIONS = {"precommit": 4 << 10, "segment_bytes": 8 << 10}


def start(spawn, path, failpoints="", **options):
    child = spawn(failpoints)
    child.call("open_writer", "w", str(path), {**OPTIONS, **options})
    return child


def told_by(child, found):
    """Waits for the end of the call, or of the child. Returns whether it was killed."""
    try:
        while True:
            kind, *content = child._message()
            if kind == "once":
                number, sequence = content
                assert found.setdefault(number, sequence) == sequence
            elif kind == "done":
                return False
            else:
                raise AssertionError(content)
    except Died:
        assert child.process.wait() == -signal.SIGKILL, "it crashed"
        return True


def check(path, found):
    with jlog.Reader(path) as reader:
        records = list(reader)
    assert sorted(int(record.id) for record in records) == ALL
    assert {int(record.id): record.sequence for record in records} == found
    assert all(int(record.value) == int(record.id) for record in records)


@pytest.mark.parametrize("survives", [True, False], ids=["one takes over", "none is left"])
@pytest.mark.parametrize("precommit", [0, 4 << 10])
@pytest.mark.parametrize(
    ("point", "visit"),
    [
        ("append.encoded", 20),
        ("append.published", 20),
        ("direct.intent", 5),
        ("direct.written", 5),
        ("close.written", 2),
        ("rotate.turned", 2),
        ("roll.renamed", 1),
        ("file.sync_directory", 1),
        ("file.sync_directory", 2),
    ],
)
def test_an_id_is_appended_once_whatever_its_process_is_killed_at(spawn, path, point, visit, precommit, survives):
    found = {}
    other = start(spawn, path)
    other.start("append_once", "w", ALL[:30], 100)
    assert not told_by(other, found)
    victim = start(spawn, path, f"{point}=kill@{visit}", precommit=precommit)
    victim.start("append_once", "w", ALL, 100)
    told_by(victim, found)
    if not survives:
        other.kill()
        other = start(spawn, path)
    other.start("append_once", "w", ALL, 100)
    assert not told_by(other, found)
    check(path, found)


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_append_the_same_ids_at_once_and_are_killed(spawn, path, seed):
    order = random.Random(seed)
    found = {}
    for _ in range(3):
        children = [start(spawn, path, precommit=precommit) for precommit in (0, 4 << 10, 4 << 10)]
        for child in children:
            child.start("append_once", "w", order.sample(ALL, COUNT), 50)
        for _ in range(order.randrange(COUNT)):
            number, sequence = children[0].wait_for("once")
            assert found.setdefault(number, sequence) == sequence
        children[0].kill()
        assert [told_by(child, found) for child in children] == [True, False, False]
        for child in children[1:]:
            child.call("close", "w")
    check(path, found)


@pytest.mark.parametrize("visit", [1, 2, 3, 4])
def test_ids_outlive_their_records_whatever_the_cleaning_is_killed_at(spawn, path, visit):
    found = {}
    child = start(spawn, path)
    child.start("append_once", "w", ALL, 200)
    assert not told_by(child, found)
    child.call("close", "w")
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False, max_bytes=1)) as writer:
        writer.roll()
    cleaning = spawn(f"file.sync_directory=kill@{visit}")
    cleaning.may_die("clean", str(path))
    jlog.Journal(path).clean()
    assert jlog.Journal(path).first_sequence == COUNT
    again = start(spawn, path)
    again.start("append_once", "w", ALL, 200)
    assert not told_by(again, found)
    assert jlog.Journal(path).next_sequence == COUNT


def test_an_id_whose_record_a_power_loss_takes_is_appended_again(path, tmp_path):
    with jlog.Writer(path, **OPTIONS) as writer:
        for number in range(50):
            writer.append(b"v", id=b"%d" % number)
        writer.sync()
        for number in range(50, 100):
            writer.append(b"v", id=b"%d" % number)
        left = lose_unsynced(path, tmp_path / "left")
    with jlog.Writer(left) as writer:
        sequences = [writer.append(b"v", id=b"%d" % number) for number in range(100)]
    assert sequences[:50] == list(range(50))
    assert sequences[50] >= 100
    with jlog.Reader(left) as reader:
        assert sorted(int(record.id) for record in reader) == list(range(100))


def test_stored_ids_are_only_those_of_durable_records(path, tmp_path, monkeypatch):
    """The writer stores them while it appends, and the power goes a moment later."""
    monkeypatch.setattr("jlog.writer.ids.STORED_EVERY", 40)
    with jlog.Writer(path, **OPTIONS) as writer:
        for number in range(100):
            writer.append(b"v", id=b"%d" % number)
        left = lose_unsynced(path, tmp_path / "left")
    with jlog.Writer(left) as writer:
        kept = jlog.Journal(left).stats().next_sequence
        sequences = [writer.append(b"v", id=b"%d" % number) for number in range(100)]
    with jlog.Reader(left) as reader:
        assert {int(record.id): record.sequence for record in reader} == dict(enumerate(sequences))
    assert kept >= 80, "they were synced when they were stored"

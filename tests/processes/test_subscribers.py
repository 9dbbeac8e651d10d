"""A subscriber's name belongs to one Reader of all processes; the kernel frees it when its owner dies."""

import pytest

import jlog
from processes.units import read_all


@pytest.fixture
def path(tmp_path):
    with jlog.Writer(tmp_path / "j", precommit=4 << 10) as writer:
        writer.extend([b"%d" % i for i in range(10)])
    return str(tmp_path / "j")


def test_a_name_is_busy_in_every_other_process(spawn, path, raised_by):
    """Every call that would change or open it raises."""
    owner, other = spawn(), spawn()
    owner.call("subscribe", "billing", path)
    assert raised_by(other, "subscribe", "billing", path).kind == "SubscriberBusy"
    with pytest.raises(jlog.SubscriberBusy):
        jlog.Reader(path, "billing")
    journal = jlog.Journal(path)
    journal.set_checkpoint("before", 0)
    for change in (
        lambda: journal.remove_subscriber("billing"),
        lambda: journal.set_subscriber("billing", 5),
        lambda: journal.rewind("billing", "before"),
        lambda: jlog.Journal.delete(path),
    ):
        with pytest.raises(jlog.SubscriberBusy):
            change()
    assert journal.subscribers()["billing"].busy
    assert read_all(path)


def test_a_name_is_free_once_its_reader_has_closed(spawn, path):
    owner, other = spawn(), spawn()
    owner.call("subscribe", "billing", path)
    owner.call("read", "billing", 4)
    owner.call("commit", "billing")
    owner.call("close", "billing")
    assert other.call("subscribe", "billing", path) == 4
    assert jlog.Journal(path).subscribers()["billing"].busy


def test_a_killed_readers_name_is_free_at_its_last_commit(spawn, path):
    owner, other = spawn(), spawn()
    owner.call("subscribe", "billing", path)
    owner.call("read", "billing", 4)
    owner.call("commit", "billing")
    owner.call("read", "billing", 3)
    owner.kill()
    assert not jlog.Journal(path).subscribers()["billing"].busy
    assert other.call("subscribe", "billing", path) == 4
    assert other.call("read", "billing", 100) == [4, 5, 6, 7, 8, 9]


def test_other_names_are_free_meanwhile(spawn, path):
    owner, other = spawn(), spawn()
    owner.call("subscribe", "billing", path)
    assert other.call("subscribe", "shipping", path) == 0


def test_one_of_many_that_want_a_new_name_at_once_gets_it(spawn, path):
    children = [spawn() for _ in range(5)]
    for child in children:
        child.start("subscribe", "billing", path)
    results = []
    for child in children:
        try:
            results.append(child.result())
        except Exception as error:  # noqa: BLE001
            results.append(error.args[0])
    assert sorted(results, key=str) == [0, *["SubscriberBusy"] * 4]


@pytest.mark.usefixtures("failpoints")
def test_a_killed_commit_leaves_the_old_position(spawn, path):
    """Both copies of the new one are written by one call."""
    owner, other = spawn(), spawn()
    owner.call("subscribe", "billing", path)
    owner.call("read", "billing", 4)
    owner.call("commit", "billing")
    owner.call("read", "billing", 3)
    owner.call("arm", "file.write=kill@1")
    owner.dies("commit", "billing")
    assert other.call("subscribe", "billing", path) == 4

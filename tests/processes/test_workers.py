"""Workers in several processes that are killed, stopped and forked: each record is delivered at least once, and none that was
finished comes again."""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict

import pytest

import jlog
from crash.tampering import change
from jlog._core.system.lock import LockFile
from jlog._core.work.window import SLOT_BYTE

TRIES = 30
POINTS = ("window.passing", "window.passed", "window.finishing", "window.finished", "window.returning")


def another_boot(path):
    """The window is of a boot that is over."""
    change(path / "work" / "billing.window", 32, b"an earlier boot.")


def fill(path, count, keys=None, **options):
    with jlog.Writer(path, **options) as writer:
        writer.extend([b"%d" % i for i in range(count)], keys)


def start(spawn, path, failpoints="", **options):
    child = spawn(failpoints)
    child.call("open_worker", "w", str(path), options)
    return child


def gather(child):
    """Reads what the child tells until its call ends. Returns what it took and finished, and whether it was killed."""
    from processes.children import Died

    taken, finished = [], []
    try:
        while True:
            kind, *content = child._message()
            if kind == "taken":
                taken.append(tuple(content))
            elif kind == "finished":
                finished.append(content[0])
            elif kind == "done":
                return taken, finished, False
            elif kind == "raised":
                raise AssertionError(content)
    except Died:
        return taken, finished, True


def test_what_a_killed_worker_has_is_free_at_once(spawn, path):
    fill(path, 10)
    victim, other = start(spawn, path), start(spawn, path)
    assert victim.call("take", "w", 3) == [[0, 1], [1, 1], [2, 1]]
    victim.call("finish", "w", 1)
    victim.kill()
    assert other.call("take", "w", 10) == [[2, 2], [0, 2], *([i, 1] for i in range(3, 10))]


def test_a_record_that_kills_its_workers_waits_for_the_backoff_and_is_rejected(spawn, path, tmp_path):
    fill(path, 1)  # a second one would come first while the other waits for the backoff
    options = {"max_attempts": 3, "backoff": [0.001, 0.001], "dead_letters": str(tmp_path / "dead")}
    for attempt in (1, 2, 3):
        child = start(spawn, path, **options)
        assert child.call("take", "w", 1, 30) == [[0, attempt]]
        child.kill()
    child = start(spawn, path)
    assert child.call("take", "w", 1, 0.2) == []
    assert jlog.Journal(path).subscribers()["billing"].lag == 0
    with jlog.Reader(tmp_path / "dead") as reader:
        assert [(record.value, dict(record.headers)["jlog.work.attempts"]) for record in reader] == [(b"0", b"3")]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.usefixtures("failpoints")
@pytest.mark.parametrize("visit", [1, 2, 7])
def test_a_worker_killed_at_any_point_loses_nothing_and_holds_nobody_up(spawn, path, point, visit):
    fill(path, 60, [b"%d" % (i % 5) for i in range(60)])
    other = start(spawn, path, order="key", backoff=[0.001, 0.001])
    victim = start(spawn, path, f"{point}=kill@{visit}")
    victim.start("take_all", "w", 30, 3)
    _, finished, killed = gather(victim)
    assert killed
    victim.process.wait()
    other.start("take_all", "w", 0.2, 3)
    taken, more, _ = gather(other)
    assert not {sequence for sequence, _ in taken} & set(finished)
    assert set(finished) | set(more) >= set(range(60)) - {0} or point == "window.finished"
    with jlog.Worker(path, "billing") as worker:
        assert worker.take(timeout=0) == []
        assert worker.committed == 60


@pytest.mark.usefixtures("failpoints")
def test_finishing_goes_on_after_another_worker_died_under_the_windows_lock(spawn, path):
    """The committed position is not known then, until it is written again."""
    with jlog.Writer(path) as writer, jlog.Worker(path, "billing") as worker:
        writer.extend([b"%d" % number for number in range(20)])
        (first,) = worker.take()
        first.ack()  # looks for segments to remove
        tasks = worker.take(5)
        victim = start(spawn, path, "window.finishing=kill@1")
        victim.start("take_all", "w", 30, 3)
        assert gather(victim)[2]
        victim.process.wait()
        writer.roll()
        writer.append(b"20")
        while tasks:
            for task in tasks:
                task.ack()
            tasks = worker.take(5, timeout=0)
        assert worker.committed == 21
    assert jlog.Journal(path).subscribers()["billing"].sequence == 21


@pytest.mark.usefixtures("failpoints")
def test_a_worker_that_gets_the_place_of_one_that_died_under_the_windows_lock_holds_nobody_up(spawn, path):
    """The lock has its own number then, and it alone can know that no living worker has it."""
    fill(path, 10)
    victim = start(spawn, path, "window.passing=kill@1")
    other = start(spawn, path)
    victim.dies("take", "w")
    with jlog.Worker(path, "billing", lock_timeout=60) as worker:
        held = worker.take(5, timeout=0)
        assert [task.sequence for task in held] == [0, 1, 2, 3, 4]
        assert other.call("take", "w", 10) == [[i, 1] for i in range(5, 10)]


@pytest.mark.usefixtures("failpoints")
def test_what_is_finished_holds_where_the_worker_that_took_over_a_dead_ones_lock_is_killed_too(spawn, path, caplog):
    """The window does not know then which position was written last."""
    fill(path, 10)
    other = start(spawn, path)
    victim = start(spawn, path, "window.passing=kill@1")
    assert other.call("take", "w", 4) == [[0, 1], [1, 1], [2, 1], [3, 1]]
    assert [other.call("finish", "w", sequence) for sequence in (1, 3)] == ["finished"] * 2
    victim.dies("take", "w")
    assert other.call("take", "w") == [[4, 1]]
    other.kill()
    with jlog.Worker(path, "billing") as worker:
        taken = []
        while tasks := worker.take(10, timeout=0):  # a record whose worker died comes alone
            taken += [task.sequence for task in tasks]
            worker.ack(tasks)
    assert sorted(taken) == [0, 2, 4, 5, 6, 7, 8, 9]
    assert not caplog.records


@pytest.mark.usefixtures("failpoints")
def test_a_dead_worker_is_buried_before_another_one_gets_its_place_though_two_threads_meet_it(spawn, path):
    """One thread holds the dead worker's byte, and waits for the lock with which it died. Another thread takes that lock over,
    and stops. It has waited for longer, so that it comes first, but on a busy machine not each time."""
    fill(path, 2 * TRIES)
    for _ in range(TRIES):
        victim, worker = start(spawn, path, "window.passing=kill@1"), start(spawn, path)  # the victim has slot 0
        ((sequence, _),) = worker.call("take", "w")
        victim.dies("take", "w")
        worker.call("arm", "window.finishing=stop@1")
        worker.start("finish_while_another_thread_takes", "w", sequence)
        worker.is_stopped()
        locks = LockFile(path / "subscribers" / "billing")
        held = locks.is_held(SLOT_BYTE)
        locks.close()
        worker.goes_on()
        worker.call("close_worker", "w")
        worker.end()
        if held:
            return
    raise AssertionError("the byte of the dead worker was free each time")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.usefixtures("failpoints")
def test_a_worker_killed_alone_loses_nothing(spawn, path, point):
    fill(path, 60)
    victim = start(spawn, path, f"{point}=kill@5", backoff=[0.001, 0.001])
    victim.start("take_all", "w", 30, 2)
    _, finished, killed = gather(victim)
    assert killed
    victim.process.wait()
    other = start(spawn, path)
    other.start("take_all", "w", 0.2)
    taken, more, _ = gather(other)
    assert not {sequence for sequence, _ in taken} & set(finished)
    assert len(set(finished) | set(more)) >= 59  # one may be finished and not told
    assert jlog.Journal(path).subscribers()["billing"].lag == 0


@pytest.mark.parametrize("order", ["any", "key"])
def test_workers_are_killed_again_and_again_and_every_record_is_finished_once(spawn, path, order):
    count, chance = 12_000, random.Random(7)  # more than the pipes of all children hold: they wait to be read
    fill(path, count, [b"%d" % (i % 17) for i in range(count)], precommit=4 << 10, segment_bytes=8 << 10)
    children = [start(spawn, path, order=order, backoff=[0.001, 0.002]) for _ in range(3)]
    for child in children:
        child.start("take_all", "w", 0.5, 5)
    history = []  # (child, kind, sequence), as they told it
    for _ in range(8):
        victim = children.pop(chance.randrange(3))
        victim.wait_for("taken")
        os.kill(victim.pid, signal.SIGKILL)
        _, finished, _ = gather(victim)
        history += finished
        victim.process.wait()
        children.append(start(spawn, path))
        children[-1].start("take_all", "w", 0.5, 5)
    told = defaultdict(list)
    for number, child in enumerate(children):
        _, finished, killed = gather(child)
        assert not killed
        history += finished
        told[number] = finished
    assert len(history) == len(set(history))  # none that was finished has come again
    assert len(set(history)) >= count - 30  # a killed worker may not have told its last ones
    with jlog.Worker(path, "billing") as worker:
        assert worker.take(timeout=0) == []
        assert worker.committed == count
    if order == "key":
        for finished in told.values():
            for key in range(17):
                of_key = [sequence for sequence in finished if sequence % 17 == key]
                assert of_key == sorted(of_key)


def test_a_stopped_worker_with_a_lease_loses_what_others_took(spawn, path):
    fill(path, 2)
    stopped, other = start(spawn, path, lease=0.05), start(spawn, path)
    assert stopped.call("take", "w", 2) == [[0, 1], [1, 1]]
    os.kill(stopped.pid, signal.SIGSTOP)
    assert other.call("take", "w", 1, 30) == [[0, 2]]
    os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.call("finish", "w", 0) == "LeaseLost"
    assert stopped.call("finish", "w", 1) == "finished"
    assert other.call("finish", "w", 0) == "finished"
    assert jlog.Journal(path).subscribers()["billing"].lag == 0


def test_a_stopped_worker_without_a_lease_keeps_its_records(spawn, path):
    fill(path, 2)
    stopped, other = start(spawn, path), start(spawn, path)
    stopped.call("take", "w", 1)
    os.kill(stopped.pid, signal.SIGSTOP)
    assert other.call("take", "w", 5, 0.2) == [[1, 1]]
    os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.call("finish", "w", 0) == "finished"


def test_a_waiting_worker_is_given_what_a_killed_one_had(spawn, path):
    fill(path, 1)
    victim, other = start(spawn, path), start(spawn, path)
    victim.call("take", "w")
    other.start("take", "w", 1, 30)
    victim.kill()
    assert other.result() == [[0, 2]]


def test_a_forked_child_has_no_worker_and_frees_nothing(spawn, path):
    fill(path, 3)
    child, other = start(spawn, path), start(spawn, path)
    assert child.call("take", "w") == [[0, 1]]
    assert child.call("what_a_forked_worker_finds", "w") == "JournalClosed"
    assert child.call("what_a_forked_worker_finds", "w", 0) == "JournalClosed"
    assert other.call("take", "w", 10) == [[1, 1], [2, 1]]
    assert child.call("finish", "w", 0) == "finished"


@pytest.mark.parametrize("executed", [False, True])
def test_a_child_that_outlives_its_parent_keeps_nothing_taken(spawn, path, executed):
    fill(path, 1)
    child, other = start(spawn, path), start(spawn, path)
    child.call("take", "w")
    left = child.call("leave_a_child", "w", executed)
    try:
        child.kill()
        assert other.call("take", "w", 1, 30) == [[0, 2]]
    finally:
        os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("durable", [False, True])
def test_after_another_boot_synced_finishes_hold_and_the_others_are_forgotten(spawn, path, durable):
    fill(path, 10)
    child = start(spawn, path)
    child.call("take", "w", 8)
    if durable:
        child.call("finish_durably", "w", [1, 3])
    child.call("finish", "w", 5)
    child.call("delay", "w", 6, 3600)
    child.kill()
    another_boot(path)
    expected = [i for i in range(10) if not (durable and i in (1, 3))]
    with jlog.Worker(path, "billing") as worker:
        assert [task.sequence for task in worker.take(100, timeout=0)] == expected


def test_killed_between_the_dead_letter_and_the_finish_there_is_one_letter(spawn, path, tmp_path):
    fill(path, 3)
    options = {"dead_letters": str(tmp_path / "dead"), "backoff": [0.001, 0.001]}
    child = start(spawn, path, "window.finishing=kill@1", **options)
    child.call("take", "w", 2)
    child.dies("reject", "w", 0)
    again = start(spawn, path)
    assert again.call("take", "w", 1) == [[0, 2]]
    again.call("reject", "w", 0)
    with jlog.Reader(tmp_path / "dead") as reader:
        assert [record.value for record in reader] == [b"0"]

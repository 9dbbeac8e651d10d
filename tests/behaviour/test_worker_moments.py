"""Bad moments of workers: many keys, much that is unfinished, clocks that jump, and Ctrl-C."""

import math
import os
import random
import signal
import threading

import pytest

import jlog
from patience import wait_until

DAY = 86400


@pytest.fixture
def path(tmp_path):
    return tmp_path / "j"


def fill(path, count, keys=None):
    with jlog.Writer(path) as writer:
        writer.extend([b"%d" % number for number in range(count)], keys)


def wait_interrupted(worker, thread):
    thread.start()
    worker.take()


def test_ten_thousand_keys_are_each_worked_on_in_their_order(path):
    keys = [b"%d" % number for number in range(10_000)] * 3
    random.Random(1).shuffle(keys)
    fill(path, len(keys), keys)
    seen = {}
    with jlog.Worker(path, "billing", order="key") as one, jlog.Worker(path, "billing") as other:
        while tasks := [*one.take(4_000, timeout=0), *other.take(4_000, timeout=0)]:
            taken = [task.key for task in tasks]
            assert len(set(taken)) == len(taken), "one key is with one worker at a time"
            for task in tasks:
                assert seen.get(task.key, -1) < task.sequence
                seen[task.key] = task.sequence
                task.ack()
        assert one.committed == len(keys)


def test_a_hundred_thousand_unfinished_records_are_kept_apart(path):
    count = 100_000
    fill(path, count)
    with jlog.Worker(path, "billing", window=count) as worker:
        tasks = worker.take(count)
        assert len(tasks) == count
        assert worker.take(timeout=0) == []
        tasks[1].nack(delay=3600)
        worker.ack(tasks[2::2])
        at = jlog.Journal(path).subscribers()["billing"]
        assert (at.work.delayed, at.work.unfinished) == (1, count // 2 + 1)
    with jlog.Worker(path, "billing") as worker:
        left = worker.take(count, timeout=0)
        assert [task.sequence for task in left] == [0, *range(3, count, 2)]
        worker.ack(left)
        assert worker.committed == 1


@pytest.mark.usefixtures("failpoints")
@pytest.mark.parametrize("jump", [-30 * DAY, 30 * DAY])
def test_a_delay_does_not_follow_the_clock_of_the_wall(path, monkeypatch, jump):
    fill(path, 3)
    with jlog.Worker(path, "billing") as worker:
        late, soon, _ = worker.take(3)
        late.nack(delay=3600)
        monkeypatch.setenv("JLOG_FAILPOINTS", f"clock={math.ceil(jump)}@0")
        soon.nack(delay=0.01)
        (task,) = worker.take(3)
        assert (task.sequence, task.attempt) == (1, 2)
        assert worker.take(timeout=0) == []


def test_ctrl_c_ends_a_take_that_waits_and_takes_nothing(path):
    jlog.Journal.create(path)
    with jlog.Worker(path, "billing") as worker:
        thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            wait_interrupted(worker, thread)
        thread.join()
        with jlog.Writer(path) as writer:
            writer.append(b"value")
        (task,) = worker.take()
        assert task.attempt == 1


def test_a_close_in_the_middle_of_takes_gives_everything_back(path):
    """Four threads take and finish, and the worker is closed beneath them."""
    count = 20_000
    fill(path, count)
    worker = jlog.Worker(path, "billing")
    finished, raised = [], []

    def work():
        try:
            while True:
                for task in worker.take(10):
                    task.ack()
                    finished.append(task.sequence)
        except jlog.JournalClosed as error:
            raised.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(finished) > 200)
    worker.close()
    for thread in threads:
        thread.join()
    assert len(raised) == 4
    with jlog.Worker(path, "billing") as again:
        left = [task.sequence for task in again.take(count, timeout=0)]
        assert all(task.attempt == 1 for task in again.take(1, timeout=0))
    missing = set(range(count)) - {*left, *finished}
    assert len(missing) <= 4, "a thread may have finished a record, and not have noted it yet"
    assert not set(left) & set(finished)


def test_a_close_beneath_a_durable_ack_leaves_it_the_lock_until_it_ends(path):
    fill(path, 2)
    worker = jlog.Worker(path, "billing")
    tasks = worker.take(2)
    subscriber = worker._subscriber
    write = subscriber._write_copy

    def close_meanwhile(deadline):
        worker.close()  # as another thread may
        with pytest.raises(jlog.SubscriberBusy):  # else a Reader might go back, and lose that to the copy that is written
            jlog.Reader(path, "billing")
        write(deadline)

    subscriber._write_copy = close_meanwhile
    with pytest.raises(jlog.JournalClosed):
        worker.ack(tasks, durable=True)
    jlog.Reader(path, "billing").close()

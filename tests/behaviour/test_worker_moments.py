"""Bad moments of workers: many keys, much that is unfinished, clocks that jump, a window that is not theirs, and Ctrl-C."""

import math
import os
import random
import signal
import tempfile
import threading
from pathlib import Path

import pytest

import jlog
from elsewhere import ANOTHER_USER, run_python
from jlog._core.system.lock import LockFile
from jlog._core.work.window import OPENING_BYTE
from patience import wait_until

DAY = 86400


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


def test_one_hot_key_stops_no_other(path):
    fill(path, 1_001, [b"hot"] * 1_000 + [b"cold"])
    with jlog.Worker(path, "billing", order="key") as worker:
        assert [task.sequence for task in worker.take(10, timeout=0)] == [0, 1_000]


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
def test_a_lease_does_not_follow_the_clock_of_the_wall(path, monkeypatch, jump):
    fill(path, 2)
    with jlog.Worker(path, "billing", lease=3600) as worker, jlog.Worker(path, "billing", lease=0.01) as other:
        (held,), (short,) = worker.take(), other.take()
        monkeypatch.setenv("JLOG_FAILPOINTS", f"clock={math.ceil(jump)}@0")
        (again,) = worker.take(timeout=30)
        assert (again.sequence, again.attempt) == (short.sequence, 2)
        assert other.take(timeout=0) == []
        held.ack()
        with pytest.raises(jlog.LeaseLost):
            short.ack()


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
    write = subscriber._log_changes

    def close_meanwhile(*arguments):
        worker.close()  # as another thread may
        with pytest.raises(jlog.SubscriberBusy):  # else a Reader might go back, and lose that to the copy that is written
            jlog.Reader(path, "billing")
        write(*arguments)

    subscriber._log_changes = close_meanwhile
    with pytest.raises(jlog.JournalClosed):
        worker.ack(tasks, durable=True)
    jlog.Reader(path, "billing").close()


def test_a_task_of_before_a_rewind_finishes_nothing(path):
    fill(path, 3)
    journal = jlog.Journal(path)
    journal.set_checkpoint("start", 0)
    with jlog.Worker(path, "billing") as worker:
        old = worker.take(3)
        old[0].ack()
    journal.rewind("billing", "start")
    with jlog.Worker(path, "billing") as worker:
        taken = worker.take(3, timeout=0)
        assert [task.sequence for task in taken] == [0, 1, 2]
        for task in old:
            with pytest.raises(jlog.JournalClosed):
                task.ack()
        assert worker.committed == 0
        worker.ack(taken)
        assert worker.committed == 3


def test_a_sync_of_the_journal_keeps_what_workers_have_finished(path):
    """Without the window, as after another boot, the durable copy counts."""
    fill(path, 6)
    with jlog.Worker(path, "billing") as worker, jlog.Worker(path, "other") as other:
        tasks = worker.take(6)
        worker.ack(tasks[2:4])
        other.ack(other.take(1))
        jlog.Journal(path).sync()
        worker.ack(tasks[5:])
    for name in ("billing", "other"):
        (path / "work" / f"{name}.window").unlink()
    with jlog.Worker(path, "billing") as worker, jlog.Worker(path, "other") as other:
        assert [task.sequence for task in worker.take(10, timeout=0)] == [0, 1, 4, 5]
        assert [task.sequence for task in other.take(10, timeout=0)] == [1, 2, 3, 4, 5]


def test_a_sync_of_the_journal_meets_a_reader_with_the_name_of_workers(path):
    fill(path, 3)
    journal = jlog.Journal(path)
    with jlog.Worker(path, "billing") as worker:
        worker.ack(worker.take(3)[1:])
    with jlog.Reader(path, "billing"), pytest.raises(jlog.SubscriberBusy):
        journal.sync()
    journal.sync()
    with jlog.Reader(path, "billing"):
        journal.sync()


def test_a_window_that_this_user_may_not_open_is_named_and_left_alone():
    """It has mode 0, as an administrator may have left it; all else is for everybody."""
    with tempfile.TemporaryDirectory(prefix="jlog-test-") as directory:
        path = Path(directory) / "j"
        fill(path, 3)
        with jlog.Worker(path, "billing") as worker:
            worker.ack(worker.take(3)[1:])
        for folder, _, names in os.walk(directory):
            os.chmod(folder, 0o777)
            for name in names:
                os.chmod(Path(folder) / name, 0o666)
        window = path / "work" / "billing.window"
        os.chmod(window, 0)
        run_python(
            f"""
            try:
                jlog.Worker({str(path)!r}, "billing")
                raise AssertionError("it was opened")
            except PermissionError as error:
                assert error.filename == {str(window)!r}, error.filename
            assert jlog.Journal({str(path)!r}).subscribers()["billing"].sequence == 0
            with jlog.Worker({str(path)!r}, "another") as worker:
                assert len(worker.take(10, timeout=0)) == 3
            """,
            within=ANOTHER_USER,
        )
        os.chmod(window, 0o600)
        with jlog.Worker(path, "billing") as worker:
            assert [task.sequence for task in worker.take(10, timeout=0)] == [0]


@pytest.mark.damage
def test_a_repair_loses_the_damaged_record_alone(path):
    with jlog.Writer(path, precommit=0) as writer:
        for number in range(10):
            writer.append(b"record %d" % number)
    with jlog.Worker(path, "billing") as worker:
        tasks = worker.take(6)
        worker.ack([tasks[0], tasks[5]])
    (segment,) = path.glob("*.seg")
    segment.write_bytes(segment.read_bytes().replace(b"record 4", b"record X"))
    assert jlog.Journal(path).repair().ok
    with jlog.Worker(path, "billing") as worker:
        left = worker.take(10, timeout=0)
        assert [task.sequence for task in left] == [1, 2, 3, 6, 7, 8, 9]
        worker.ack(left)
        assert worker.committed == 10


def test_a_worker_waits_no_longer_than_its_lock_timeout_for_another_that_opens(path):
    fill(path, 1)
    jlog.Journal(path).add_subscriber("billing")
    file = LockFile(path / "subscribers" / "billing")
    assert file.acquire(OPENING_BYTE, timeout=0)
    with pytest.raises(jlog.JournalLocked, match="opened a Worker of 'billing'"):
        jlog.Worker(path, "billing", lock_timeout=0.01)
    file.close()
    jlog.Worker(path, "billing", lock_timeout=0.01).close()


HARM = """
import struct

path, window = {path!r}, {window!r}
OFFSETS = [*range(64, 384, 4), *range(4096, 4112, 4), *range(20480, 20520, 4), *range(57344, 57344 + 12 * 80, 4)]
WORDS = 0, 7, 0x7FFFFFFF, 0xFFFFFFFF

def write(offset, content):
    with open(window, "r+b") as file:
        file.seek(offset)
        file.write(content)

def use(worker):
    tasks = []
    def take(count):
        tasks[:] = worker.take(count, timeout=0)
    for step in (
        lambda: take(3),
        lambda: tasks[0].nack(delay=3600),
        lambda: tasks[1].extend(60),
        lambda: worker.ack(tasks),
        lambda: take(2),
        lambda: tasks[0].release(),
        lambda: tasks[1].ack(),
        worker._source.window.snapshot,
        lambda: jlog.Journal(path).subscribers(),
    ):
        try:
            step()
        except (jlog.JournalError, IndexError, OSError, ValueError):
            continue

with jlog.Writer(path) as writer:
    writer.extend([b"%d" % i for i in range(20_000)], [(b"a", b"b", None)[i % 3] for i in range(20_000)])
worker = jlog.Worker(path, "billing", order="key", lease=3600, lock_timeout=1, backoff=(3600, 3600))
for task in worker.take(8, timeout=0)[:4]:
    task.nack()
with open(window, "rb") as file:
    image = file.read()
for offset in OFFSETS:
    for word in WORDS:
        write(offset, struct.pack("<I", word))
        use(worker)
        write(0, image)
try:
    worker.close()
except jlog.JournalError:
    pass
jlog.Worker(path, "billing").close()
"""


def test_damage_of_the_window_beneath_a_living_worker_does_not_end_the_process(path):
    run_python(HARM.format(path=str(path), window=str(path / "work" / "billing.window")))

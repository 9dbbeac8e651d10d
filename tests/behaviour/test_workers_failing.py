"""Failures of a task, and the ends of a worker that are not one."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import jlog
from behaviour.journals import values
from jlog._core.format.checksum import crc32c
from patience import HUNG_SECONDS, wait_until


def fill(path, count):
    with jlog.Writer(path) as writer:
        writer.extend([b"%d" % i for i in range(count)])


def open_worker(path, **options):
    return jlog.Worker(path, "billing", **options)


def sequences(tasks):
    return [task.sequence for task in tasks]


def fail_at_the_first(tasks):
    for task in tasks:
        with task:
            1 / 0  # noqa: B018


def counts(tasks):
    return [(task.sequence, task.attempt, task.failures) for task in tasks]


# --- What ends without a word --------------------------------------------------------------------------------------------


def test_tasks_that_nobody_refers_to_come_again_without_a_failure(path):
    """The loop ends at the first exception, and the program can reach the others no more."""
    fill(path, 100)
    with open_worker(path, backoff=(0, 0)) as worker, open_worker(path) as other:
        with pytest.raises(ZeroDivisionError):
            fail_at_the_first(worker.take(100))
        assert sorted(counts(other.take(100, timeout=0))) == [(0, 2, 1), *((sequence, 1, 0) for sequence in range(1, 100))]


def test_a_dropped_task_wakes_another_worker_that_waits(path):
    fill(path, 1)
    with open_worker(path) as worker, open_worker(path) as other, ThreadPoolExecutor(1) as pool:
        tasks = worker.take()
        waiting = pool.submit(other.take, 1, HUNG_SECONDS)
        tasks.clear()
        assert sequences(waiting.result()) == [0]


def test_a_task_in_a_cycle_is_given_back_when_the_cycle_is_collected(path):
    fill(path, 1)
    with open_worker(path) as worker, open_worker(path) as other:
        cycle = worker.take()
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert sequences(other.take(timeout=0)) == [0]


def test_a_worker_that_is_collected_gives_back_what_it_held(path):
    fill(path, 3)
    with open_worker(path) as other:
        worker = open_worker(path)
        held = [worker, worker.take(2), next(worker.tasks())]
        held.append(held)
        del worker, held
        gc.collect()
        assert counts(other.take(3, timeout=HUNG_SECONDS)) == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]


def test_tasks_of_a_worker_that_is_collected_can_be_finished(path):
    fill(path, 2)
    tasks = open_worker(path).take(2)
    gc.collect()
    tasks.pop().ack()
    with open_worker(path) as other:
        assert other.take(timeout=0) == []
        tasks.clear()
        assert counts(other.take(timeout=HUNG_SECONDS)) == [(0, 1, 0)]


ENDS = {
    "by itself": "",
    "with an exception": "raise SystemExit(3)",
    "in a child of multiprocessing": "",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_that_ends_without_a_close_gives_back_what_it_held(path, how):
    fill(path, 3)
    use = f"""
worker = jlog.Worker({str(path)!r}, "billing")
held = worker.take(2)
held[0].begin()
"""
    if how == "in a child of multiprocessing":
        use = f"""
import multiprocessing

def work():
    exec({use!r}, globals())

child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
"""
    found = subprocess.run([sys.executable, "-c", f"import jlog\n{use}\n{ENDS[how]}"], check=False)
    assert found.returncode == (3 if ENDS[how] else 0)
    with open_worker(path) as worker:
        assert counts(worker.take(3)) == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]


def test_a_lease_that_is_taken_over_is_a_failure_and_the_last_one_rejects(path, tmp_path):
    fill(path, 1)
    with open_worker(path, lease=0.001, max_attempts=2, dead_letters=tmp_path / "dead") as worker:
        (late,) = worker.take()
        (again,) = worker.take(timeout=HUNG_SECONDS)
        assert (late.failures, again.failures) == (0, 1)
        wait_until(lambda: worker.take(timeout=0) == [] and worker.committed == 1)
    assert values(tmp_path / "dead") == [b"0"]


def test_a_release_takes_a_delivery_back_and_is_not_a_failure(path):
    fill(path, 1)
    with open_worker(path, max_attempts=1) as worker:
        for _ in range(3):
            (task,) = worker.take(timeout=0)
            assert (task.attempt, task.failures) == (1, 0)
            task.begin()
            task.release()


@pytest.mark.parametrize("version", [1, 2])
def test_failures_survive_a_boot_in_the_durable_copy(path, version):
    """In the first version each attempt but the last one was a failure."""
    fill(path, 3)
    with open_worker(path, backoff=(0, 0)) as worker:
        worker.take()[0].nack()
        tasks = worker.take(3)
        worker.ack(tasks[2:], durable=True)
    (path / "work" / "billing.window").unlink()
    copy = path / "work" / "billing.work"
    if version == 1:
        fields = json.loads(copy.read_bytes().splitlines()[1])
        fields |= {"next_sequence": 3, "unfinished": [[0, 0, 2], [1, 0, 1]]}
        text = json.dumps(fields).encode()
        copy.write_bytes(b"jlog work 1 crc32c=%08x\n" % crc32c(text) + text)
    with open_worker(path) as worker:
        assert counts(worker.take(3, timeout=0)) == [(0, 3, 1), (1, 2, 0)]


def test_a_window_of_an_earlier_layout_is_created_anew(path, caplog):
    fill(path, 4)
    with open_worker(path) as worker:
        worker.ack(worker.take(2))
    with open(path / "work" / "billing.window", "r+b") as window:
        window.seek(8)
        window.write(b"\1")
    with open_worker(path) as worker:
        assert counts(worker.take(4)) == [(2, 1, 0), (3, 1, 0)]
    assert "its header is not that of a window" in caplog.text

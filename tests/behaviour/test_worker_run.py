"""Worker.run() and the coroutines of a Worker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

import jlog
from patience import HUNG_SECONDS, wait_until


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "j"
    with jlog.Writer(path) as writer:
        writer.extend([b"%d" % i for i in range(20)])
    return path


def open_worker(path, **options):
    return jlog.Worker(path, "billing", backoff=(0.001, 0.001), **options)


# --- run --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_run_finishes_every_record_and_tries_failed_ones_again(path, threads):
    done, failed = [], set()

    def handle(task):
        if task.sequence % 5 == 0 and task.attempt == 1:
            failed.add(task.sequence)
            raise ValueError("not yet")
        done.append(task.sequence)
        if len(done) == 20:
            worker.stop()

    with open_worker(path) as worker:
        worker.run(handle, threads=threads)
        assert worker.committed == 20
    assert sorted(done) == list(range(20))
    assert failed == {0, 5, 10, 15}


def test_stop_lets_a_task_in_work_end(path):
    started, go_on = threading.Event(), threading.Event()

    def handle(_):
        started.set()
        go_on.wait()

    with open_worker(path) as worker:
        thread = threading.Thread(target=worker.run, args=(handle,))
        thread.start()
        started.wait()
        worker.stop()
        go_on.set()
        thread.join()
        assert worker.committed == 1


def test_after_the_grace_time_a_task_is_given_back(path):
    started, go_on = threading.Event(), threading.Event()

    def handle(_):
        started.set()
        go_on.wait()

    with open_worker(path) as worker, open_worker(path) as other:
        thread = threading.Thread(target=worker.run, args=(handle,), kwargs={"grace": 0})
        thread.start()
        started.wait()
        worker.stop()
        thread.join()
        (again,) = other.take(timeout=0)
        go_on.set()
        assert (again.sequence, again.attempt) == (0, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_run_and_its_handler_is_restored(path, number):
    before = signal.getsignal(number)
    with open_worker(path) as worker:
        worker.run(lambda task: os.kill(os.getpid(), number) if task.sequence == 3 else None)
        assert worker.committed >= 4
    assert signal.getsignal(number) is before


def test_a_signal_that_does_not_wake_the_main_thread_stops_run_too(path):
    """It comes to another thread here. To the main one it may come just before that sleeps."""

    def signal_this_thread():
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    later = threading.Timer(0.2, signal_this_thread)  # once run() waits; if it comes before, it stops run() as well
    with open_worker(path) as worker:
        worker.run(lambda task: later.start() if task.sequence == 19 else None)
    later.join()


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_whose_text_cannot_be_made_is_a_failed_attempt(path, tmp_path):
    def handle(task):
        if task.sequence == 1:
            raise Unsayable
        if task.sequence == 3:
            worker.stop()

    with open_worker(path, max_attempts=1, dead_letters=tmp_path / "dead") as worker:
        worker.run(handle)
        assert worker.committed == 4
        (task,) = worker.take(timeout=0)
        with pytest.raises(Unsayable), task:
            raise Unsayable
    with jlog.Reader(tmp_path / "dead") as reader:
        reasons = [dict(letter.headers)["jlog.work.reason"] for letter in reader]
    assert len(reasons) == 2
    assert all(reason.endswith(b"Unsayable: (its __str__ raises)") for reason in reasons)


def test_a_reason_is_a_text_and_is_cut_between_characters(path, tmp_path):
    with open_worker(path, dead_letters=tmp_path / "dead") as worker:
        task, *_ = worker.take(timeout=0)
        for give in (task.reject, lambda reason: task.nack(reason=reason)):  # not only at the last attempt
            with pytest.raises(TypeError, match=r"reason must be a str, not KeyError\(\)"):
                give(KeyError())
        task.reject("x" + "é" * 999)
    with jlog.Reader(tmp_path / "dead") as reader:
        (letter,) = reader
    assert dict(letter.headers)["jlog.work.reason"].decode() == "x" + "é" * 499


def test_run_raises_what_is_not_an_exception_of_the_task(path):
    def handle(_):
        raise SystemExit(3)

    with open_worker(path) as worker:
        with pytest.raises(SystemExit):
            worker.run(handle)
        worker_again = worker.take(timeout=0)
        assert [task.attempt for task in worker_again] == [1]


def test_a_task_that_handle_has_finished_itself_stays_so(path):
    def handle(task):
        if task.sequence == 1:
            task.reject("unwanted")
            worker.stop()

    with open_worker(path) as worker:
        worker.run(handle)
        assert worker.committed == 2


def test_run_extends_no_lease_and_tells_of_a_lost_one(path, caplog):
    taken = []

    def handle(task):
        taken.extend(other.take(19, timeout=0))  # all others
        taken.extend(other.take(timeout=HUNG_SECONDS))
        worker.stop()

    with open_worker(path, lease=0.05) as worker, open_worker(path) as other:
        worker.run(handle)
        assert [(task.sequence, task.attempt) for task in taken] == [*((i, 1) for i in range(1, 20)), (0, 2)]
        assert "take a longer lease, or extend it" in caplog.text
        assert worker.committed == 0
        other.ack(taken)
        assert worker.committed == 20


def test_iterating_over_a_worker_goes_on_until_stop(path):
    found = []
    with open_worker(path) as worker:
        for task in worker:
            with task:
                found.append(task.sequence)
            if len(found) == 20:
                worker.stop()
        assert worker.committed == 20
    assert found == list(range(20))


# --- Coroutines ---------------------------------------------------------------------------------------------------------


def test_tasks_come_to_a_coroutine(path):
    async def work():
        found = []
        async for task in worker.tasks_async(timeout=0):
            found.append(task.sequence)
            task.ack()
        return found

    with open_worker(path) as worker:
        assert asyncio.run(work()) == list(range(20))
        assert worker.committed == 20


def test_a_coroutine_waits_for_what_is_appended(path):
    async def work():
        waiting = asyncio.create_task(worker.take_async(10))
        await asyncio.sleep(0)
        writer.append(b"late")
        return [task.value for task in await waiting]

    with jlog.Writer(path) as writer, open_worker(path, window=100) as worker:
        worker.ack(worker.take(20))
        assert asyncio.run(work()) == [b"late"]


def test_a_take_that_ends_or_is_cancelled_leaves_nothing_taken(path):
    async def work():
        assert await worker.take_async(timeout=0.01) == []
        waiting = [asyncio.create_task(worker.take_async()) for _ in range(3)]
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    with jlog.Writer(path) as writer, open_worker(path) as worker, open_worker(path) as other:
        worker.ack(worker.take(20))
        asyncio.run(work())
        writer.append(b"late")
        assert [task.value for task in other.take(timeout=30)] == [b"late"]


def test_many_coroutines_get_different_records(path):
    async def work(found):
        async for task in worker.tasks_async(timeout=0.05):
            found.append(task.sequence)
            await asyncio.sleep(0)
            task.ack()

    async def main():
        found = []
        await asyncio.gather(*(work(found) for _ in range(5)))
        return found

    with open_worker(path) as worker:
        assert sorted(asyncio.run(main())) == list(range(20))


def test_close_ends_a_coroutine_that_waits(path):
    async def work():
        waiting = asyncio.create_task(worker.take_async())
        await asyncio.sleep(0.01)
        worker.close()
        with pytest.raises(jlog.JournalClosed):
            await waiting

    with open_worker(path) as worker:
        worker.ack(worker.take(20))
        asyncio.run(work())


def test_a_coroutine_cancelled_when_its_tasks_have_come_gives_them_back(path):
    """The loop is busy meanwhile, so that the coroutine has not seen them."""

    async def work():
        waiting = asyncio.create_task(worker.take_async(5))
        await asyncio.sleep(0.01)
        writer.append(b"late")
        wait_until(lambda: jlog.Journal(path).subscribers()["billing"].work.taken == 1)
        await asyncio.sleep(0)  # the tasks are handed over to the loop
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return [task.value for task in await worker.take_async(timeout=HUNG_SECONDS)]

    with jlog.Writer(path) as writer, open_worker(path) as worker:
        worker.ack(worker.take(20))
        assert asyncio.run(work()) == [b"late"]


# --- What is refused --------------------------------------------------------------------------------------------------


async def coroutine(_):
    raise AssertionError


def generator(_):
    yield


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        (None, "must be a function"),
        (coroutine, "tasks_async"),
        (generator, "tasks_async"),
        (lambda task: coroutine(task), "tasks_async"),  # noqa: PLW0108 - nothing tells before the call
    ],
)
def test_run_refuses_what_would_run_nothing(path, handle, said):
    """Each record would be acknowledged, or rejected."""
    with open_worker(path, max_attempts=1) as worker:
        with pytest.raises(TypeError, match=said):
            worker.run(handle)
        assert worker.committed == 0
        found = jlog.Journal(path).subscribers()["billing"].work
        assert (found.taken, found.rejections) == (0, 0)


def test_a_closed_worker_neither_runs_nor_is_entered(path):
    worker = open_worker(path)
    worker.close()
    with pytest.raises(jlog.JournalClosed):
        worker.run(print)
    with pytest.raises(jlog.JournalClosed), worker:
        pass


def in_a_child(call):
    """Returns the exit status of a forked child that makes the call."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(HUNG_SECONDS))
        try:
            call()
        except jlog.JournalClosed:
            os._exit(10)
        except SystemExit as error:
            os._exit(error.code)
        except BaseException:  # noqa: BLE001
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_calls_in_a_forked_child_end_though_another_thread_was_in_the_worker(path):
    inside, go_on = threading.Event(), threading.Event()

    def stay():
        inside.set()
        go_on.wait()

    with open_worker(path) as worker:
        thread = threading.Thread(target=worker._source.with_cursor, args=(stay,))
        thread.start()
        inside.wait()
        try:
            for call in (lambda: worker.take(timeout=0), lambda: worker.run(print), worker.skip_damage):
                assert in_a_child(call) == 10
            assert in_a_child(worker.close) == 0
        finally:
            go_on.set()
            thread.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_does_to_a_child_forked_in_run_what_it_did_before(path, number):
    found = []

    def handle(task):
        found.append(in_a_child(lambda: (signal.raise_signal(number), time.sleep(HUNG_SECONDS))))
        worker.stop()

    with open_worker(path) as worker:
        worker.run(handle)
    assert found == [-signal.SIGTERM if number == signal.SIGTERM else 1]  # of SIGINT, KeyboardInterrupt


def test_a_forked_child_may_leave_the_block_of_a_worker(path):
    with open_worker(path) as worker:
        assert in_a_child(lambda: worker.__exit__(None, None, None)) == 0
        assert len(worker.take(20)) == 20

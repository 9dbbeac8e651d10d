"""Durable appends in event loops: all coroutines that wait share one fdatasync, and one thread makes it."""

import asyncio
import threading
from datetime import datetime, timezone

import pytest

import jlog
from behaviour.journals import SMALL
from elsewhere import run_python
from jlog.writer.syncing import AsyncSyncs
from patience import HUNG_SECONDS, wait_until


def durable_end(path):
    return jlog.Journal(path).stats().durable_end


def counters(path):
    return jlog.Journal(path).stats().counters


def syncing() -> int:
    return sum(thread.name == "jlog-sync" for thread in threading.enumerate())


@pytest.fixture
def nobody_syncs():
    """Waits until the threads of earlier writers have gone."""
    wait_until(lambda: not syncing(), complaint="an idle thread is still there")


def one_thread_stays() -> None:
    """Several calls at once start more of them, each of which ends when it comes to run."""
    wait_until(lambda: syncing() <= 1)


async def append_at_once(writer, first: int, count: int) -> list[int]:
    return await asyncio.gather(*(writer.append_durable(b"%d" % number) for number in range(first, first + count)))


@pytest.mark.parametrize("sync", ["none", "append"])
@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_a_record_is_durable_when_its_coroutine_goes_on(path, sync, precommit):
    async def append():
        for number in range(3):
            assert await writer.append_durable(b"value", key=b"k", headers={"n": b"v"}) == number
            assert durable_end(path) == number + 1

    with jlog.Writer(path, sync=sync, precommit=precommit) as writer:
        asyncio.run(append())


def test_a_time_is_given_as_to_append(path):
    time = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
    with jlog.Writer(path) as writer:
        asyncio.run(writer.append_durable(b"value", timestamp=time))
    with jlog.Reader(path) as reader:
        assert [record.timestamp for record in reader] == [time]


def test_a_thousand_coroutines_share_their_fdatasyncs_and_one_thread(nobody_syncs, path):
    async def append():
        before = counters(path)["syncs"]
        sequences = await append_at_once(writer, 0, 1000)
        one_thread_stays()
        return sequences, counters(path)["syncs"] - before

    with jlog.Writer(path, sync="append", **SMALL) as writer:
        sequences, syncs = asyncio.run(append())
        assert sequences == list(range(1000))
        assert syncs < 100
        assert durable_end(path) == 1000
    with jlog.Reader(path) as reader:
        assert list(reader.values()) == [b"%d" % number for number in range(1000)]


def test_event_loops_of_several_threads_share_the_thread(nobody_syncs, path):
    found = {}
    began = threading.Barrier(4)

    def run(number):
        async def append():
            began.wait()
            sequences = []
            for step in range(20):
                sequences += await append_at_once(writer, step, 5)
            one_thread_stays()
            return sequences

        found[number] = asyncio.run(append())

    with jlog.Writer(path) as writer:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(sequence for given in found.values() for sequence in given) == list(range(400))
        assert durable_end(path) == 400


def test_sync_async_makes_what_was_appended_durable(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"a", b"b"])
        assert durable_end(path) == 0
        asyncio.run(writer.sync_async())
        assert durable_end(path) == 2


def test_a_cancelled_coroutine_leaves_its_record_and_the_others_go_on(path):
    async def append():
        tasks = [asyncio.create_task(writer.append_durable(b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with jlog.Writer(path) as writer:
        first, cancelled, last = asyncio.run(append())
        assert (first, last) == (0, 2)
        assert isinstance(cancelled, asyncio.CancelledError)
    with jlog.Reader(path) as reader:
        assert list(reader.values()) == [b"0", b"1", b"2"]


def test_a_closed_writer_raises_and_appends_nothing(path):
    writer = jlog.Writer(path)
    writer.append(b"value")
    writer.close()
    for call in (writer.append_durable(b"value"), writer.sync_async()):
        with pytest.raises(jlog.JournalClosed):
            asyncio.run(call)
    assert jlog.Journal(path).stats().next_sequence == 1


def test_without_an_event_loop_nothing_is_appended(path):
    with jlog.Writer(path) as writer:
        with pytest.raises(RuntimeError, match="no running event loop"):
            writer.append_durable(b"value").send(None)
        assert writer.next_sequence == 0


def test_a_sync_that_has_no_memory_is_tried_again(path, monkeypatch):
    """An error would say that nothing is appended."""
    syncs = []

    def sync():
        syncs.append(None)
        if len(syncs) < 3:
            raise MemoryError

    with jlog.Writer(path) as writer:
        monkeypatch.setattr(jlog.Writer, "sync", lambda _: sync())
        assert asyncio.run(writer.append_durable(b"value")) == 0
        assert len(syncs) == 3


def test_a_thread_that_has_no_memory_for_its_answer_gives_it_later(path, monkeypatch):
    calls = []
    answer = AsyncSyncs._answer

    def late(*given):
        calls.append(None)
        if len(calls) < 3:
            raise MemoryError
        answer(*given)

    monkeypatch.setattr(AsyncSyncs, "_answer", late)
    with jlog.Writer(path) as writer:
        assert asyncio.run(asyncio.wait_for(writer.append_durable(b"value"), HUNG_SECONDS)) == 0


def test_where_no_thread_can_be_started_any_more_the_error_says_that_the_record_is_appended(path, monkeypatch):
    async def append():
        with pytest.raises(jlog.JournalError, match=r"no thread.*this call appended its records, from sequence 0 on"):
            await writer.append_durable(b"value")

    def refuse(*_):
        raise jlog.JournalError("no thread")

    with jlog.Writer(path) as writer:
        monkeypatch.setattr(writer._syncs, "wait", refuse)
        asyncio.run(append())


def test_a_refused_value_appends_nothing(path):
    with jlog.Writer(path) as writer:
        with pytest.raises(TypeError, match="must be bytes, not str"):
            asyncio.run(writer.append_durable("value"))
        assert writer.next_sequence == 0


def test_an_idle_thread_keeps_no_writer_open(path):
    writer = jlog.Writer(path)
    asyncio.run(writer.append_durable(b"value"))
    del writer
    with jlog.Writer(path, exclusive=True, lock_timeout=0):
        pass


def test_every_coroutine_gets_an_error_of_its_own_from_a_failed_fdatasync(path):
    run_python(f"""
import asyncio, threading
from jlog.writer.syncing import AsyncSyncs
run, appended = AsyncSyncs._run, threading.Event()
AsyncSyncs._run = lambda syncs: appended.wait() and run(syncs)  # else it may fail before all are appended

async def append():
    calls = [asyncio.ensure_future(writer.append_durable(b"value")) for _ in range(3)]
    while writer.next_sequence < len(calls):
        await asyncio.sleep(0)
    appended.set()
    return await asyncio.gather(*calls, return_exceptions=True)

with jlog.Writer({str(path)!r}) as writer:
    os.environ["JLOG_FAILPOINTS"] = "file.sync=5@1"
    errors = asyncio.run(append())
    assert [error.errno for error in errors] == [errno.EIO] * 3, errors
    for sequence, error in enumerate(errors):
        assert f"from sequence {{sequence}} on, and they can be read, but they are not durable" in str(error), error
""")


def test_a_child_of_a_fork_syncs_with_a_thread_of_its_own(path):
    run_python(f"""
import asyncio, os, jlog
writer = jlog.Writer({str(path)!r})
assert asyncio.run(writer.append_durable(b"parent")) == 0
pid = os.fork()
if pid == 0:
    assert asyncio.run(writer.append_durable(b"child")) == 1
    asyncio.run(writer.sync_async())
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert asyncio.run(writer.append_durable(b"parent")) == 2
""")

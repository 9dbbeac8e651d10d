"""Following journals in event loops."""

import asyncio
import threading
import time
from contextlib import ExitStack

import pytest

import jlog
from behaviour.journals import SMALL, fill, value_of
from crash.tampering import flip
from elsewhere import mounted_by, read_only, run_python
from patience import HUNG_SECONDS, wait_until
from processes.children import nobody_follows, somebody_follows


def watching() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "jlog-watch"]


def nobody_watches() -> None:
    """Waits until the thread that waits for the loops has gone."""
    wait_until(lambda: not watching(), complaint="the waiting thread is still there")


async def until_asked(*paths) -> None:
    """Waits until a reader of each journal waits."""
    for path in paths:
        await asyncio.to_thread(somebody_follows, path)


async def collect(following, records: int) -> list[bytes]:
    return [(await anext(following)).value for _ in range(records)]


async def ends(reader, **options) -> list[int]:
    return [record.sequence async for record in reader.follow_async(**options)]


@pytest.fixture
def reader(writer, path):
    with jlog.Reader(path, "billing") as reader:
        yield reader


# --- What it gives ------------------------------------------------------------------------------------------------


def test_it_hands_out_what_is_there_and_ends_after_its_timeout(writer, reader):
    fill(writer, 100)
    assert asyncio.run(ends(reader, timeout=0)) == list(range(100))
    assert asyncio.run(ends(reader, timeout=0.01)) == []
    assert reader.position == 100


def test_its_timeout_counts_from_the_last_record(writer, reader):
    began = time.monotonic()
    assert asyncio.run(ends(reader, timeout=0.2)) == []
    assert time.monotonic() - began >= 0.2


def test_once_it_has_ended_it_stays_so(writer, reader):
    async def follow():
        following = reader.follow_async(timeout=0)
        assert [record async for record in following] == []
        writer.append(b"x")
        assert [record async for record in following] == []

    asyncio.run(follow())


def test_it_is_woken_by_another_process(path, spawn):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)

    async def follow():
        with jlog.Reader(path) as reader:
            following = reader.follow_async(timeout=HUNG_SECONDS)
            for number in range(50):
                task = asyncio.ensure_future(anext(following))
                await until_asked(path)
                child.call("append", "w", 1, 100)
                assert (await task).sequence == number

    asyncio.run(follow())


def test_it_goes_on_through_rolls_while_another_process_writes(path, spawn):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)

    async def follow():
        with jlog.Reader(path) as reader:
            child.start("append", "w", 2000, 100)
            following = reader.follow_async(timeout=HUNG_SECONDS)
            assert [(await anext(following)).sequence for _ in range(2000)] == list(range(2000))

    asyncio.run(follow())
    child.result()


def test_one_that_waits_since_before_the_first_writer_is_woken(path):
    jlog.Journal.create(path)

    async def follow():
        with jlog.Reader(path) as reader:
            task = asyncio.ensure_future(collect(reader.follow_async(), 1))
            await asyncio.sleep(0)
            with jlog.Writer(path) as writer:
                writer.append(b"first")
            assert await task == [b"first"]

    asyncio.run(follow())


def test_durable_only_is_woken_by_the_sync(path):
    async def follow():
        with jlog.Writer(path, **SMALL) as writer, jlog.Reader(path, durable_only=True) as reader:
            task = asyncio.ensure_future(collect(reader.follow_async(), 1))
            await until_asked(path)
            writer.append(b"x")
            await until_asked(path)
            await asyncio.to_thread(writer.sync)
            assert await task == [b"x"]

    asyncio.run(follow())


def test_a_reader_on_a_read_only_mount_sees_new_records(path, spawn):
    with jlog.Writer(path) as writer:
        done = threading.Event()

        def write():  # whenever the reader comes, it finds one after what it has begun with
            while not done.wait(0.02):
                writer.append(b"last")

        thread = threading.Thread(target=write)
        thread.start()
        try:
            run_python(
                f"""
                import asyncio

                async def follow():
                    with jlog.Reader({str(path)!r}, start="end") as reader:
                        async for record in reader.follow_async(timeout={HUNG_SECONDS}):
                            assert record.value == b"last"
                            return
                    sys.exit("no record came")

                asyncio.run(follow())
                """,
                within=mounted_by(read_only(path)),
            )
        finally:
            done.set()
            thread.join()


# --- Many ---------------------------------------------------------------------------------------------------------


async def follow_all(readers, wake, journals) -> list[list[bytes]]:
    """Returns the one record that each gets; `wake` is called when all, or nearly all, wait."""
    followings = [reader.follow_async() for reader in readers]
    tasks = [asyncio.ensure_future(collect(following, 1)) for following in followings]
    await until_asked(*journals)
    assert len(watching()) == 1 + (len(journals) - 1) // 127
    await asyncio.to_thread(wake)
    return await asyncio.wait_for(asyncio.gather(*tasks), HUNG_SECONDS)


def test_hundreds_of_readers_wait_in_one_thread(tmp_path, spawn):
    """They belong to several journals."""
    paths = [tmp_path / str(number) for number in range(4)]
    child = spawn()
    for path in paths:
        child.call("open_writer", path.name, str(path), SMALL)
    with ExitStack() as stack:
        readers = [stack.enter_context(jlog.Reader(path)) for path in paths for _ in range(75)]

        def wake():
            for path in paths:
                child.call("append", path.name)

        found = asyncio.run(follow_all(readers, wake, paths))
    assert all(len(values) == 1 for values in found)
    nobody_watches()


def test_more_journals_than_the_kernel_waits_for_at_once(tmp_path):
    paths = [tmp_path / str(number) for number in range(130)]
    with ExitStack() as stack:
        writers = [stack.enter_context(jlog.Writer(path, precommit=4096)) for path in paths]
        readers = [stack.enter_context(jlog.Reader(path)) for path in paths]

        def wake():
            for writer, path in zip(writers, paths, strict=True):
                writer.append(path.name.encode())

        found = asyncio.run(follow_all(readers, wake, paths))
    assert found == [[path.name.encode()] for path in paths]
    nobody_watches()


@pytest.mark.usefixtures("failpoints")
def test_it_polls_where_the_kernel_cannot_wait_for_many_words(path, writer, monkeypatch):
    monkeypatch.setenv("JLOG_FAILPOINTS", "wake.wait_for_any=38@0")
    with jlog.Reader(path) as one, jlog.Reader(path) as other:
        found = asyncio.run(follow_all([one, other], lambda: writer.append(b"x"), [path]))
    assert found == [[b"x"]] * 2
    nobody_watches()


def test_loops_of_several_threads_wait_in_one_thread(path, writer):
    found = []

    def follow():
        with jlog.Reader(path) as reader:
            found.append(asyncio.run(collect(reader.follow_async(), 3)))

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(3):
        somebody_follows(path)
        assert len(watching()) <= 1
        writer.append(value_of(number))
    for thread in threads:
        thread.join()
    assert found == [[value_of(number) for number in range(3)]] * 4
    nobody_watches()


def test_one_with_much_to_read_lets_other_tasks_run(path):
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def follow():
        other = asyncio.ensure_future(take_turns())
        with jlog.Reader(path) as reader:
            async for record in reader.follow_async():
                if record.sequence == 199_999:
                    break
        other.cancel()

    with jlog.Writer(path) as writer:
        for _ in range(200):
            writer.extend([b"x" * 100] * 1000)
    asyncio.run(follow())
    assert turns > 2


# --- How it ends --------------------------------------------------------------------------------------------------


def test_a_cancelled_step_loses_no_record(writer, path, reader):
    """The iterator goes on with the next one."""

    async def follow():
        following = reader.follow_async()
        for number in range(20):
            step = asyncio.ensure_future(anext(following))
            await until_asked(path)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            writer.append(value_of(number))
            assert (await anext(following)).value == value_of(number)

    asyncio.run(follow())
    assert reader.position == 20


def test_no_thread_is_left_once_nobody_waits(writer, path, reader):
    async def follow():
        task = asyncio.ensure_future(collect(reader.follow_async(), 1))
        await until_asked(path)
        assert len(watching()) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(nobody_watches)

        assert await ends(reader, timeout=0.01) == []
        await asyncio.to_thread(nobody_watches)

        task = asyncio.ensure_future(collect(reader.follow_async(), 1))
        nobody_follows(path)
        await until_asked(path)
        writer.append(b"x")
        await task
        await asyncio.to_thread(nobody_watches)

    asyncio.run(follow())


def test_a_loop_closed_under_a_waiting_reader_leaves_nothing(writer, path, reader):
    loop = asyncio.new_event_loop()
    following = reader.follow_async()
    task = loop.create_task(collect(following, 1))
    loop.run_until_complete(until_asked(path))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    writer.append(b"to a loop that is gone")
    del task, following, loop
    nobody_watches()
    assert asyncio.run(collect(reader.follow_async(), 1)) == [b"to a loop that is gone"]


def test_a_journal_that_is_gone_does_not_keep_the_thread(path):
    jlog.Journal.create(path)  # which nobody has open, so that it is polled

    async def follow():
        with jlog.Reader(path) as reader:
            task = asyncio.ensure_future(collect(reader.follow_async(), 1))
            while not watching():
                await asyncio.sleep(0)
            path.rename(path.with_name("elsewhere"))
            with pytest.raises(jlog.JournalMoved, match=f"its directory is {path.with_name('elsewhere')} now"):
                await asyncio.wait_for(task, HUNG_SECONDS)

    asyncio.run(follow())
    nobody_watches()


def test_closing_the_reader_ends_the_wait(writer, path, reader):
    async def follow():
        task = asyncio.ensure_future(collect(reader.follow_async(), 1))
        await until_asked(path)
        reader.close()
        with pytest.raises(jlog.JournalClosed, match=str(path)):
            await task

    asyncio.run(follow())
    nobody_watches()


def test_aclose_ends_it(writer, reader):
    async def follow():
        following = reader.follow_async()
        await following.aclose()
        assert [record async for record in following] == []

    asyncio.run(follow())


@pytest.mark.damage
def test_the_same_iterator_goes_on_after_damage(path):
    with jlog.Writer(path, precommit=0) as writer:
        for number in range(4):
            writer.append(value_of(number))
    (segment,) = path.glob("*.seg")
    flip(segment, segment.read_bytes().index(value_of(1)), 0)

    async def follow():
        with jlog.Reader(path) as reader:
            following = reader.follow_async(timeout=0)
            assert (await anext(following)).sequence == 0
            with pytest.raises(jlog.CorruptJournal):
                await anext(following)
            assert reader.skip_damage().records_lost == 1
            assert [record.sequence async for record in following] == [2, 3]

    asyncio.run(follow())


# --- Processes ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("failpoints")
def test_a_record_is_found_whose_writer_died_before_the_wake(path, spawn):
    jlog.Journal.create(path)
    child = spawn("append.published=kill@1")
    child.call("open_writer", "w", str(path), {})

    async def follow():
        with jlog.Reader(path) as reader:
            task = asyncio.ensure_future(anext(reader.follow_async()))
            await until_asked(path)
            await asyncio.to_thread(child.dies, "append", "w")
            assert (await task).sequence == 0

    asyncio.run(follow())


def test_writers_that_are_killed_while_readers_wait_end_nothing(path, spawn):
    jlog.Journal.create(path, **SMALL)

    async def follow():
        with ExitStack() as stack:
            followings = [stack.enter_context(jlog.Reader(path)).follow_async() for _ in range(20)]
            for number in range(5):
                child = spawn()
                child.call("open_writer", "w", str(path), {})
                tasks = [asyncio.ensure_future(anext(following)) for following in followings]
                await until_asked(path)
                child.call("append", "w", 1, 100)
                child.kill()
                assert [record.sequence for record in await asyncio.gather(*tasks)] == [number] * 20

    asyncio.run(follow())


FOLLOWS = """
import asyncio

async def follow():
    writer = jlog.Writer({path!r})
    reader = jlog.Reader({path!r}, start="end")
    task = asyncio.ensure_future(anext(reader.follow_async()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return writer, reader, task

loop = asyncio.new_event_loop()
writer, reader, task = loop.run_until_complete(follow())
"""


def test_a_program_ends_while_readers_wait(path):
    run_python(FOLLOWS.format(path=str(path)))


def test_a_program_ends_while_a_loop_of_another_thread_waits(path):
    run_python(
        FOLLOWS.format(path=str(path)) + "import threading; threading.Thread(target=loop.run_forever, daemon=True).start()"
    )


IN_A_CHILD = """
async def follow_in_child():
    with jlog.Writer({path!r}) as writer, jlog.Reader({path!r}, start="end") as reader:
        task = asyncio.ensure_future(anext(reader.follow_async()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.append(b"from the child")
        assert (await task).value == b"from the child"

pid = os.fork()
if pid == 0:
    try:
        asyncio.run(follow_in_child())
        try:
            next(iter(reader))
        except jlog.JournalClosed:
            os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
assert loop.run_until_complete(task).value == b"from the child"
"""


def test_a_child_of_a_process_that_waits_follows_for_itself(path):
    run_python((FOLLOWS + IN_A_CHILD).format(path=str(path)))

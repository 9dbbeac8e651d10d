"""Waiting for records: follow, and read with a timeout."""

import threading
import time

import pytest

import jlog
from behaviour.journals import SMALL, fill, value_of
from crash.tampering import flip
from patience import HUNG_SECONDS
from processes.children import Raised, nobody_follows, somebody_follows


@pytest.fixture(params=["billing", None], ids=["named", "anonymous"])
def reader(request, writer, path):
    with jlog.Reader(path, request.param) as reader:
        yield reader


@pytest.fixture
def in_thread():
    threads = []

    def start(function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.join()


def test_it_hands_out_what_is_there_and_ends_after_its_timeout(writer, reader):
    fill(writer, 100)
    assert [record.sequence for record in reader.follow(timeout=0)] == list(range(100))
    assert list(reader.follow(timeout=0.01)) == []
    assert reader.position == 100


def test_its_timeout_counts_from_the_last_record(writer, reader):
    began = time.monotonic()
    assert list(reader.follow(timeout=0.2)) == []
    assert time.monotonic() - began >= 0.2


def test_it_is_woken_by_another_thread(writer, reader, in_thread):
    following = reader.follow(timeout=HUNG_SECONDS)
    for number in range(20):
        in_thread(writer.append, value_of(number))
        assert next(following).value == value_of(number)


def test_it_is_woken_by_every_kind_of_append(writer, path, reader, in_thread):
    following = reader.follow(timeout=HUNG_SECONDS)
    with jlog.Writer(path, precommit=0) as bypassing:
        for append in (
            lambda: writer.append(b"x"),
            lambda: writer.append(b"x", key=b"k"),
            lambda: writer.extend([b"x"]),
            lambda: writer.extend([b"x"], state={b"k": b"v"}),
            lambda: writer.append(b"x" * 100_000),
            lambda: bypassing.append(b"x"),
        ):
            in_thread(lambda append=append: (somebody_follows(path), append()))
            assert next(following).value.startswith(b"x")


def test_it_goes_on_through_rolls(writer, reader, in_thread):
    in_thread(fill, writer, 500)
    following = reader.follow(timeout=HUNG_SECONDS)
    assert [next(following).sequence for _ in range(500)] == list(range(500))


def test_many_followers_get_every_record(path, in_thread):
    found = [[] for _ in range(4)]

    def follow(into):
        with jlog.Reader(path) as reader:
            for record in reader.follow(timeout=HUNG_SECONDS):
                into.append(record.sequence)
                if record.value == b"last":
                    return

    with jlog.Writer(path, **SMALL) as writer:
        threads = [in_thread(follow, into) for into in found]
        fill(writer, 300)
        writer.append(b"last")
        for thread in threads:
            thread.join()
    assert found == [list(range(301))] * 4


def test_one_that_waits_since_before_the_first_writer_is_woken(path, in_thread):
    jlog.Journal.create(path)
    with jlog.Reader(path) as reader:

        def write():
            with jlog.Writer(path) as writer:
                writer.append(b"first")

        in_thread(write)
        assert next(reader.follow(timeout=HUNG_SECONDS)).value == b"first"


def test_a_waiting_reader_goes_on_with_the_next_writer(path, in_thread):
    """The one before closes while the reader waits."""
    with jlog.Writer(path, **SMALL) as writer:
        writer.append(b"0")
        reader = jlog.Reader(path)
        following = reader.follow(timeout=HUNG_SECONDS)
        assert next(following).value == b"0"

    def write():
        with jlog.Writer(path) as writer:
            writer.append(b"1")

    in_thread(write)
    assert next(following).value == b"1"
    reader.close()


def test_read_waits_for_the_first_record_and_no_longer(writer, path, reader, in_thread):
    assert len(reader.read(timeout=0)) == 0
    assert len(reader.read(timeout=0.01)) == 0
    nobody_follows(path)
    in_thread(lambda: (somebody_follows(path), writer.append(b"x")))
    assert reader.read(timeout=HUNG_SECONDS).values() == [b"x"]
    in_thread(lambda: (somebody_follows(path), writer.append(b"y")))
    assert reader.read(timeout=None).values() == [b"y"]


def test_read_with_a_timeout_returns_at_once_what_is_there(writer, reader):
    fill(writer, 3)
    assert len(reader.read(timeout=None)) == 3


def test_durable_only_waits_for_the_sync(path, in_thread):
    with jlog.Writer(path, **SMALL) as writer, jlog.Reader(path, durable_only=True) as reader:
        writer.append(b"x")
        assert list(reader.follow(timeout=0.01)) == []
        nobody_follows(path)
        in_thread(lambda: (somebody_follows(path), writer.sync()))
        assert next(reader.follow(timeout=HUNG_SECONDS)).value == b"x"


# --- Writers that die ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("failpoints")
def test_a_record_is_found_whose_writer_died_before_the_wake(path, spawn, in_thread):
    jlog.Journal.create(path)
    child = spawn("append.published=kill@1")
    child.call("open_writer", "w", str(path), {})
    with jlog.Reader(path) as reader:
        in_thread(lambda: (somebody_follows(path), child.dies("append", "w")))
        assert next(reader.follow(timeout=HUNG_SECONDS)).sequence == 0


def test_the_death_of_a_writer_ends_nothing(path, spawn, in_thread):
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w")
    with jlog.Reader(path) as reader:
        following = reader.follow(timeout=HUNG_SECONDS)
        next(following)
        child.kill()

        def write_on():
            somebody_follows(path)
            with jlog.Writer(path) as writer:
                writer.append(b"by another one")

        in_thread(write_on)
        assert next(following).value == b"by another one"


# --- One thread at a time -----------------------------------------------------------------------------------------


CALLS = {
    "iteration": lambda reader: next(iter(reader)),
    "values": lambda reader: next(reader.values()),
    "read": lambda reader: reader.read(),
    "follow": lambda reader: next(reader.follow(timeout=0)),
    "seek": lambda reader: reader.seek(0),
    "read_backward": lambda reader: reader.read_backward(1),
    "record_batches": lambda reader: list(reader.record_batches()),
    "skip_damage": lambda reader: reader.skip_damage(),
}


@pytest.fixture
def waiting(writer, path, in_thread):
    """A reader in which another thread waits; with what that thread gets in the end."""
    fill(writer, 10)
    found = []

    def follow():
        try:
            found.extend(reader.read(timeout=HUNG_SECONDS).values())
        except jlog.JournalError as error:
            found.append(error)

    with jlog.Reader(path, "billing", start="end") as reader:
        nobody_follows(path)
        thread = in_thread(follow)
        somebody_follows(path)
        yield reader, thread, found


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_second_thread_is_refused_and_the_first_goes_on(writer, waiting, call):
    reader, thread, found = waiting
    with pytest.raises(jlog.JournalError, match="in use by another thread"):
        call(reader)
    writer.append(b"for the first")
    thread.join()
    assert found == [b"for the first"]


def test_values_that_were_read_already_are_refused_too(writer, path, in_thread):
    fill(writer, 10)
    with jlog.Reader(path) as reader:
        values = reader.values()
        next(values)
        reader.seek("end")
        nobody_follows(path)
        thread = in_thread(reader.read, 10, 1000, HUNG_SECONDS)
        somebody_follows(path)
        with pytest.raises(jlog.JournalError, match="in use"):
            next(values)
        writer.append(b"x")
        thread.join()
        assert reader.position == 11


def test_another_thread_may_ask_where_the_reader_stands(writer, waiting):
    reader, thread, _ = waiting
    assert (reader.position, reader.committed, reader.lag) == (10, 10, 0)
    reader.commit()
    writer.append(b"x")
    thread.join()
    assert reader.position == 11


def test_another_thread_may_close_it(waiting, path):
    reader, thread, found = waiting
    reader.close()
    thread.join()
    assert [type(error) for error in found] == [jlog.JournalClosed]
    jlog.Reader(path, "billing").close()


def test_threads_on_one_reader_get_each_record_once_or_an_error(writer, path, in_thread):
    written = fill(writer, 2000)
    found = []

    def read(records):
        while reader.position < 2000:
            try:
                found.extend(record.value for record in records())
            except jlog.JournalError:
                continue

    with jlog.Reader(path) as reader:
        ways = (reader.__iter__, lambda: reader.read(7), lambda: reader.follow(timeout=0))
        for thread in [in_thread(read, records) for records in ways]:
            thread.join()
    assert sorted(found) == sorted(written)


# --- Errors on the way --------------------------------------------------------------------------------------------


@pytest.mark.damage
def test_the_same_iterator_goes_on_after_damage(path):
    with jlog.Writer(path, precommit=0) as writer:
        for number in range(5):
            writer.append(value_of(number))
    (segment,) = path.glob("*.seg")
    flip(segment, segment.read_bytes().index(value_of(2)), 0)
    with jlog.Reader(path) as reader:
        following = reader.follow(timeout=0)
        assert [next(following).sequence, next(following).sequence] == [0, 1]
        with pytest.raises(jlog.CorruptJournal):
            next(following)
        assert reader.skip_damage().records_lost == 1
        assert [record.sequence for record in following] == [3, 4]


def test_once_it_has_ended_it_stays_so(writer, reader):
    following = reader.follow(timeout=0)
    assert list(following) == []
    writer.append(b"x")
    assert list(following) == []
    assert [record.value for record in reader] == [b"x"]


def test_a_signal_handler_may_close_the_reader_that_waits(path, spawn):
    """The program ends by itself: without the handler it would wait for ever."""
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.start("close_by_signal", str(path))
    child.wait_for("following")
    somebody_follows(path)
    child.interrupt()
    assert child.result() == "JournalClosed"


def test_ctrl_c_ends_the_wait(path, spawn, raised_by):
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.start("follow", str(path), "never")
    child.wait_for("following")
    somebody_follows(path)
    child.interrupt()
    with pytest.raises(Raised) as caught:
        child.result()
    assert caught.value.kind == "KeyboardInterrupt"

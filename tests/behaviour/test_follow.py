"""Waiting for records: follow, and read with a timeout."""

import threading
import time

import pytest

import jlog
from behaviour.journals import SMALL, fill, value_of

PATIENCE = 30.0  # what only a hang uses up


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
    following = reader.follow(timeout=PATIENCE)
    for number in range(20):
        in_thread(writer.append, value_of(number))
        assert next(following).value == value_of(number)


def test_it_is_woken_by_every_kind_of_append(writer, path, reader, in_thread):
    following = reader.follow(timeout=PATIENCE)
    with jlog.Writer(path, precommit=0) as bypassing:
        for append in (
            lambda: writer.append(b"x"),
            lambda: writer.append(b"x", key=b"k"),
            lambda: writer.extend([b"x"]),
            lambda: writer.extend([b"x"], state={b"k": b"v"}),
            lambda: writer.append(b"x" * 100_000),
            lambda: bypassing.append(b"x"),
        ):
            waiting = threading.Event()
            in_thread(lambda append=append, waiting=waiting: (waiting.wait(), time.sleep(0.02), append()))
            waiting.set()
            assert next(following).value.startswith(b"x")


def test_it_goes_on_through_rolls(writer, reader, in_thread):
    in_thread(fill, writer, 500)
    following = reader.follow(timeout=PATIENCE)
    assert [next(following).sequence for _ in range(500)] == list(range(500))


def test_many_followers_get_every_record(path, in_thread):
    found = [[] for _ in range(4)]

    def follow(into):
        with jlog.Reader(path) as reader:
            for record in reader.follow(timeout=PATIENCE):
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
        assert next(reader.follow(timeout=PATIENCE)).value == b"first"


def test_one_that_waits_goes_on_when_the_writer_closes_and_another_opens(path, in_thread):
    with jlog.Writer(path, **SMALL) as writer:
        writer.append(b"0")
        reader = jlog.Reader(path)
        following = reader.follow(timeout=PATIENCE)
        assert next(following).value == b"0"

    def write():
        with jlog.Writer(path) as writer:
            writer.append(b"1")

    in_thread(write)
    assert next(following).value == b"1"
    reader.close()


def test_read_waits_for_the_first_record_and_no_longer(writer, reader, in_thread):
    assert len(reader.read(timeout=0)) == 0
    assert len(reader.read(timeout=0.01)) == 0
    in_thread(lambda: (time.sleep(0.02), writer.append(b"x")))
    assert reader.read(timeout=PATIENCE).values() == [b"x"]
    in_thread(lambda: (time.sleep(0.02), writer.append(b"y")))
    assert reader.read(timeout=None).values() == [b"y"]


def test_read_with_a_timeout_returns_at_once_what_is_there(writer, reader):
    fill(writer, 3)
    assert len(reader.read(timeout=None)) == 3


def test_durable_only_waits_for_the_sync(path, in_thread):
    with jlog.Writer(path, **SMALL) as writer, jlog.Reader(path, durable_only=True) as reader:
        writer.append(b"x")
        assert list(reader.follow(timeout=0.01)) == []
        in_thread(lambda: (time.sleep(0.02), writer.sync()))
        assert next(reader.follow(timeout=PATIENCE)).value == b"x"

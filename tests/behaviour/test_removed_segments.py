"""Files of removed segments: nobody that is at the journal's end keeps one open, and with it its space on the disk."""

import os
import threading

import pytest

import jlog
from behaviour.journals import SMALL
from patience import HUNG_SECONDS


def removed_and_open(path):
    """Names of files below the journal that are gone while this process has them open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if name.startswith(str(path)) and name.endswith(" (deleted)"):
            found.append(name)
    return found


@pytest.fixture
def writer(path, spawn):
    """The open files of another process, which may keep one open until it is synced."""
    jlog.Journal.create(path, retention=jlog.Retention(delete_read=False, max_bytes=1), **SMALL)
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w", 5)
    return child


def roll_and_remove(writer, path):
    """All but the open segment, which is empty."""
    writer.call("roll", "w")
    jlog.Journal(path).clean()  # where the roll has not done that
    assert len(list(path.glob("*.seg"))) == 1


@pytest.mark.parametrize("durable_only", [False, True])
def test_a_reader_at_the_end_lets_go_of_a_removed_segment(writer, path, durable_only):
    writer.call("sync", "w")
    with jlog.Reader(path, durable_only=durable_only) as reader:
        assert len(reader.read(100)) == 5
        roll_and_remove(writer, path)
        assert removed_and_open(path) != []
        assert len(reader.read(100)) == 0
        assert removed_and_open(path) == []
        writer.call("append", "w", 1)
        writer.call("sync", "w")
        assert [record.sequence for record in reader.read(100)] == [5]


def test_a_follower_that_waits_lets_go_of_a_removed_segment(writer, path):
    seen, follower = threading.Semaphore(0), jlog.Reader(path)

    def follow():
        for record in follower.follow():
            seen.release()
            if record.sequence == 11:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for count in (5, 2, 2, 2):
        for _ in range(count):
            assert seen.acquire(timeout=HUNG_SECONDS)
        roll_and_remove(writer, path)
        while removed_and_open(path):  # until it has looked
            assert thread.is_alive()
        writer.call("append", "w", 2)
    thread.join()
    follower.close()


def test_a_reader_in_a_removed_segment_reads_it_to_its_end(writer, path):
    """It lets go of the file after it."""
    for _ in range(2):
        writer.call("flush", "w")
        writer.call("append", "w", 5)
    with jlog.Reader(path) as reader:
        assert len(reader.read(2)) == 2
        roll_and_remove(writer, path)
        writer.call("append", "w", 1)
        assert removed_and_open(path) != []
        assert [record.sequence for record in reader.read(100)] == list(range(2, 16))
        assert removed_and_open(path) == []


def test_a_reader_at_the_end_goes_on_in_a_replaced_segment(writer, path):
    with jlog.Reader(path) as reader:
        assert len(reader.read(100)) == 5
        roll_and_remove(writer, path)
        assert len(reader.read(100)) == 0
        writer.call("store", "w", 3)
        assert len(reader.read(100)) == 0
        writer.call("append", "w", 1)
        assert [record.sequence for record in reader.read(100)] == [5]


def test_a_subscriber_at_the_end_stands_where_it_stood(writer, path):
    with jlog.Reader(path, "billing") as reader:
        reader.read(100)
        reader.commit()
        roll_and_remove(writer, path)
        assert len(reader.read(100)) == 0
        reader.commit()
        assert reader.committed == reader.position == 5
        assert reader.lag == 0

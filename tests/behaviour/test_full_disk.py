"""A disk without space: an error with errno and path, nothing half written, and on it goes with new space."""

from functools import partial

import pytest

import jlog
from behaviour.journals import no_file_may_grow
from elsewhere import mounted_by, run_python, small_disk

DISK = """
import oracle

path = {disk!r} + "/j"
ballast = {disk!r} + "/ballast"

def fill_disk():
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC

def full(call):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        assert str(error.filename).startswith(path), error.filename
        assert path in str(error), error
        return True
    return False

def append_until_full(writer, append):
    count = 0
    while not full(lambda: append(writer, count)):
        count += 1
        assert count < 100_000
    return count

"""

APPENDS = {
    "append": "lambda writer, number: writer.append(value_of(number))",
    "append with a key": "lambda writer, number: writer.append(value_of(number), key=b'k')",
    "extend": "lambda writer, number: writer.extend([value_of(number)])",
    "state": "lambda writer, number: writer.extend([value_of(number)], state={b'n': b'%d' % number})",
}


@pytest.fixture
def on_small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    return partial(run_python, within=mounted_by(small_disk(disk, "600k"), before=DISK.format(disk=str(disk))))


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS.keys())
@pytest.mark.parametrize("precommit", [0, 4 << 10])
@pytest.mark.parametrize("segment_bytes", [8 << 10, 64 << 20])
def test_an_append_raises_and_goes_on_when_there_is_space_again(on_small_disk, append, precommit, segment_bytes):
    on_small_disk(f"""
append = {append}
with jlog.Writer(path, precommit={precommit}, segment_bytes={segment_bytes}) as writer:
    first = append_until_full(writer, append)
    assert first > 100
    for _ in range(5):
        assert full(lambda: append(writer, first))
        assert values(path) == [value_of(number) for number in range(writer.next_sequence)]
    assert writer.next_sequence == first
    writer.flush()
    oracle.check_journal(path)
    assert os.system("mount -o remount,size=1200k " + os.path.dirname(path)) == 0
    for number in range(first, first + 200):
        append(writer, number)
    assert values(path) == [value_of(number) for number in range(first + 200)]
oracle.check_journal(path)
assert jlog.Journal(path).verify().ok
""")


@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_an_extend_that_does_not_fit_leaves_nothing_of_it(on_small_disk, precommit):
    on_small_disk(f"""
with jlog.Writer(path, precommit={precommit}, segment_bytes=16 << 10) as writer:
    written = fill(writer, 10)
    for _ in range(3):
        assert full(lambda: writer.extend([bytes(1000)] * 1000))
        assert full(lambda: writer.append(bytes(1 << 20)))
        assert full(lambda: writer.extend([bytes(1000)] * 1000, state={{b"k": b"v"}}))
        written += fill(writer, 1)
        assert values(path) == written
    assert jlog.Journal(path).state() == {{}}
    assert writer.extend([b"small"] * 10) == 13
oracle.check_journal(path)
assert len(values(path)) == 23
""")


def test_flush_sync_and_close_need_no_more_space_than_appends(on_small_disk):
    on_small_disk("""
writer = jlog.Writer(path, precommit=32 << 10, segment_bytes=128 << 10)
written = fill(writer, 50)
fill_disk()
written += fill(writer, 100)
writer.flush()
written += fill(writer, 100)
writer.sync()
written += fill(writer, 100)
writer.close()
assert values(path) == written
oracle.check_journal(path)
""")


def test_reading_and_committing_work_on_a_full_disk(on_small_disk):
    on_small_disk("""
with jlog.Writer(path, precommit=4 << 10, segment_bytes=8 << 10) as writer:
    written = fill(writer, 300)
    jlog.Journal(path).add_subscriber("billing")
    fill_disk()
    with jlog.Reader(path, "billing") as reader:
        assert list(reader.values()) == written
        reader.commit()
        assert reader.committed == 300
    assert jlog.Journal(path).verify().ok
    # What was read has made room.
    assert jlog.Journal(path).first_sequence > 0
    assert fill(writer, 100)
oracle.check_journal(path)
""")


def test_a_journal_that_could_not_be_made_is_made_with_space(on_small_disk):
    on_small_disk("""
fill_disk()
assert full(lambda: jlog.Writer(path))
assert full(lambda: jlog.Journal.create(path))
os.remove(ballast)
with jlog.Writer(path, segment_bytes=8 << 10) as writer:
    assert writer.append(b"value") == 0
assert values(path) == [b"value"]
oracle.check_journal(path)
""")


def test_a_subscriber_that_could_not_be_made_is_made_with_space(on_small_disk):
    on_small_disk("""
with jlog.Writer(path, precommit=4 << 10, segment_bytes=8 << 10) as writer:
    fill(writer, 10)
    fill_disk()
    journal = jlog.Journal(path)
    assert full(lambda: jlog.Reader(path, "billing"))
    assert full(lambda: journal.set_checkpoint("c", 5))
    assert (journal.subscribers(), journal.checkpoints()) == ({}, {})
    os.remove(ballast)
    journal.set_checkpoint("c", 5)
    with jlog.Reader(path, "billing") as reader:
        assert len(list(reader)) == 10
oracle.check_journal(path)
""")


def test_workers_lose_nothing_on_a_full_disk(on_small_disk):
    """The window is a mapped file: a page of it for which there is no space would end the process."""
    on_small_disk("""
with jlog.Writer(path, precommit=4 << 10, segment_bytes=1 << 20) as writer:
    fill(writer, 3000)
fill_disk()
assert full(lambda: jlog.Worker(path, "billing"))
os.remove(ballast)
with jlog.Worker(path, "billing") as worker:
    fill_disk()
    first = worker.take(3000, timeout=0)
    assert len(first) == 1024  # so many entries the file begins with
    assert full(lambda: worker.take(timeout=0))
    assert full(worker.take)  # it does not wait as if there was nothing to do
    worker.ack(first[24:])
    more = worker.take(3000, timeout=0)
    assert [task.sequence for task in more] == list(range(1024, 2024))
    full(lambda: worker.ack(more, durable=True))  # its line may have room in the file's last block
    first[0].nack(delay=0)
    first[1].ack()
    again = worker.take()
    assert again[0].sequence == 0
with jlog.Worker(path, "billing") as worker:
    held = worker.take(3000, timeout=0)
    assert [task.sequence for task in held] == [0, *range(2, 24), *range(2024, 3000)]
    full(lambda: worker.ack(held, durable=True))
    os.remove(ballast)
    worker.ack(held, durable=True)
    assert worker.committed == 3000
oracle.check_journal(path)
""")


def test_an_append_whose_sync_finds_no_space_says_only_that_it_is_not_to_be_made_again(tmp_path):
    with jlog.Writer(tmp_path / "j", sync="append") as writer:
        writer.append(b"first")
        with no_file_may_grow(), pytest.raises(OSError, match="do not append them again") as caught:
            writer.append(b"second")
        assert "call it again" not in str(caught.value)
        assert list(jlog.Reader(tmp_path / "j").values()) == [b"first", b"second"]

"""The immutable block is full and not in its segment yet. The process that writes it there may fail, stop or die."""

import shutil

import pytest

import jlog
import oracle
from crash.copies import check_killed
from crash.tampering import another_boot, change, copy, copy_of_killed, flip
from processes.children import lock_word
from processes.units import check_units, read_all

pytestmark = pytest.mark.usefixtures("failpoints")

SMALL = {"precommit": 4 << 10, "segment_bytes": 64 << 10}
POINTS = [
    "close.deferred",
    "rotate.before",
    "rotate.filled",
    "rotate.turned",
    "close.before_write",
    "close.written",
]


@pytest.fixture
def stopped(spawn, path):
    """A stopped process with an immutable block, of which nothing is in the segment. It holds the write lock only."""
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("arm", "close.before_write=stop@1")
    child.start("append", "w", 100, 100)
    child.is_stopped()
    assert lock_word(path) == 0
    assert lock_word(path, "write") != 0
    return child


@pytest.fixture
def other(spawn, path, stopped):
    """Another writer, whose records are in the open block after it."""
    child = spawn()
    child.call("open_writer", "x", str(path), {"lock_timeout": 0.2})
    child.call("append", "x", 3, 100)
    return child


def everything(path, *children):
    return check_units(path, [unit for child in children for unit in child.acknowledged])


def test_others_append_after_it_and_everybody_reads_it(stopped, other, path):
    records = everything(path, stopped, other)
    assert oracle.check_journal(path).immutable_block.record_count > 20
    assert [record.sequence for record, _ in zip(records_of(path), records, strict=True)] == list(range(len(records)))


def records_of(path):
    with jlog.Reader(path) as reader:
        return list(reader)


def test_every_way_of_reading_finds_the_same(stopped, other, path, tmp_path):
    records = read_all(path)
    with jlog.Reader(path) as reader:
        for sequence, value in records[::7]:
            reader.seek(sequence)
            assert reader.read(1).values() == [value]
        reader.seek(0)
        assert reader.read(10_000).values() == [value for _, value in records]
        reader.seek(len(records))
        assert [record.value for record in reader.read_backward(10_000)] == [value for _, value in records][::-1]
        reader.seek(0)
        assert list(reader.values()) == [value for _, value in records]
    journal = jlog.Journal(path)
    assert journal.next_sequence == len(records)
    stats = journal.stats()
    assert stats.open_bytes == sum(len(block.raw) for block in oracle.check_journal(path).unwritten_blocks)
    assert stats.size_bytes == journal.segments()[-1].size_bytes
    assert journal.verify().ok
    journal.backup(tmp_path / "copy")
    assert read_all(tmp_path / "copy") == records


def test_a_reader_that_was_in_it_goes_on(spawn, path):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("append", "w", 5, 100)
    with jlog.Reader(path) as reader:
        found = [record.value for record in reader]
        child.call("arm", "close.before_write=stop@1")
        child.start("append", "w", 100, 100)
        child.is_stopped()
        found += [record.value for record in reader]
        assert found == [value for _, value in read_all(path)]
        child.continues()
        child.result()
        assert found + [record.value for record in reader] == [value for _, value in read_all(path)]


def test_an_append_that_fills_the_next_block_waits_for_it(stopped, other, path, raised_by):
    error = raised_by(other, "append", "x", 100, 100)
    assert error.kind == "JournalLocked"
    for call in (("flush", "x"), ("sync", "x"), ("roll", "x"), ("extend", "x", 1, 2, 100, True)):
        assert raised_by(other, *call).kind == "JournalLocked", call
    before = everything(path, stopped, other)
    stopped.continues()
    stopped.result()
    other.call("append", "x", 100, 100)
    assert everything(path, stopped, other)[: len(before)] == before


@pytest.mark.parametrize("call", [("append", "x", 100, 100), ("flush", "x"), ("sync", "x"), ("roll", "x"), ("close", "x")])
def test_once_its_writer_is_dead_it_is_written_by_who_needs_it(stopped, spawn, path, call):
    other = spawn()
    other.call("open_writer", "x", str(path), {})
    other.call("append", "x", 3, 100)
    stopped.kill()
    before = everything(path, stopped, other)
    other.call(*call)
    assert everything(path, stopped, other)[: len(before)] == before
    assert oracle.check_journal(path).immutable_block is None


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("larger", [4 << 10, 16 << 10])
def test_with_nobody_left_the_next_to_open_writes_it(spawn, path, point, larger):
    """Also where it asks for a larger buffer, so that the second body comes to lie elsewhere."""
    for visit in (1, 2):  # a block of either parity
        shutil.rmtree(path, ignore_errors=True)
        child = spawn()
        child.call("open_writer", "w", str(path), SMALL)
        child.call("arm", f"{point}=kill@{visit}")
        child.dies("append", "w", 100, 100)
        before = check_killed(path, child.acknowledged)
        with jlog.Writer(path, precommit=larger) as writer:
            assert writer.precommit == larger
            assert writer.append(b"w 1000 0 1 plain ") == len(before)
            assert everything(path, child)[: len(before)] == before
        assert everything(path, child)[: len(before)] == before


def test_it_is_killed_that_writes_it_for_another(stopped, spawn, path):
    first, second = spawn(), spawn()
    for child in (first, second):
        child.call("open_writer", "x", str(path), {})
    stopped.kill()
    first.call("arm", "close.written=kill@1")
    first.dies("flush", "x")
    second.call("append", "x", 100, 100)
    everything(path, stopped, second)


def test_a_write_that_fails_is_made_again_and_nobody_is_told(spawn, path):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("arm", "file.write_block=28@1")
    child.call("append", "w", 100, 100)
    assert len(everything(path, child)) == 100


def test_a_dead_disk_is_reported_after_one_more_block(spawn, path, raised_by):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("arm", "file.write_block=28@0")
    error = raised_by(child, "append", "w", 100, 100)
    assert error.errno == 28
    assert 40 < len(child.acknowledged) < 80
    assert raised_by(child, "sync", "w").errno == 28
    everything(path, child)
    child.call("arm", "")
    child.call("append", "w", 100, 100)
    child.call("sync", "w")
    everything(path, child)


def test_after_a_power_loss_both_blocks_of_the_buffer_come_back(stopped, other, path, tmp_path):
    records = read_all(path)
    lost = copy(path, tmp_path / "lost")
    another_boot(lost)
    assert read_all(lost) == records
    with jlog.Writer(lost) as writer:
        after = writer.append(b"w 1000 0 1 plain ")
    assert after >= len(records)
    assert check_units(lost, stopped.acknowledged + other.acknowledged)[: len(records)] == records


@pytest.mark.parametrize("flipped", [1 << 12, 1 << 40, 1 << 13])
def test_the_capacity_in_the_page_may_be_damaged(stopped, other, path, tmp_path, flipped):
    """It says where the second body is, and no checksum is over it."""
    records = read_all(path)
    for make in (copy_of_killed, copy):
        killed = make(path, tmp_path / "killed")
        capacity = int.from_bytes((killed / "precommit").read_bytes()[64:72], "little")
        change(killed / "precommit", 64, (capacity ^ flipped).to_bytes(8, "little"))
        with jlog.Writer(killed) as writer:
            after = writer.append(b"after")
        assert read_all(killed)[:-1] == records
        assert (after == len(records)) == (make is copy_of_killed)


def test_a_damaged_one_is_not_data(stopped, other, path, tmp_path):
    """Neither for readers, nor for who opens it: what cannot be vouched for is told as damage, or as lost."""
    whole = oracle.check_journal(path)
    first = whole.immutable_block.first_sequence
    flipped = copy_of_killed(path, tmp_path / "flipped")
    parity = (whole.page.generation - 1) & 1
    flip(flipped / "precommit", 4096 + parity * whole.page.capacity + 500, 2)
    with pytest.raises(jlog.CorruptJournal):
        read_all(flipped)
    with jlog.Writer(flipped) as writer:
        writer.append(b"after")
    assert [sequence for sequence, _ in read_all(flipped)][:-1] == list(range(first))


@pytest.mark.parametrize("used", [0, 3, 300, 100_000])
def test_a_damaged_slot_word_leads_to_no_other_record(stopped, other, path, tmp_path, used):
    records = read_all(path)
    damaged = copy_of_killed(path, tmp_path / "damaged")
    page = oracle.check_journal(path).page
    change(damaged / "precommit", 512 + 64 * ((page.generation - 1) & 1) + 48, used.to_bytes(4, "little"))
    first = oracle.check_journal(path).immutable_block.first_sequence
    assert read_all(damaged) == records[:first]
    jlog.Journal(damaged).verify()
    with jlog.Reader(damaged, start="end") as reader:
        assert [record.value for record in reader.read_backward(5)] == [value for _, value in records[:first][:-6:-1]]
    with jlog.Writer(damaged) as writer:
        assert writer.append(b"after") > records[-1][0]


def test_repair_keeps_both_blocks(stopped, other, path):
    records = read_all(path)
    stopped.kill()
    other.kill()
    flip(next(path.glob("*.seg")), 80, 3)  # within the state that the segment begins with
    report = jlog.Journal(path).repair()
    assert report.ok
    assert report.lost == []
    assert read_all(path) == records

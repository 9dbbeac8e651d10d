"""Group commit over processes: a syncing process may die or stop, an fdatasync may fail, and no synced record is lost."""

import errno
import os

import pytest

import jlog
from crash.tampering import flip, lose_unsynced, newest_segment, zero, zero_bodies
from patience import HUNG_SECONDS
from processes.children import lock_word
from processes.units import check_units, part_of, read_all

pytestmark = pytest.mark.usefixtures("failpoints")

SMALL = {"precommit": 4 << 10, "segment_bytes": 8 << 10}
DURABLE = {**SMALL, "sync": "append"}
LZ4 = {**DURABLE, "compression": "lz4"}
# Where the one that syncs for all may be: writing the block out, which is compressed, or with the fdatasync.
LEADING = [
    "compress.copied",
    "close.before_write",
    "rotate.filled",
    "sync.begun",
    "file.sync",
    "sync.done",
    "sync.told",
]
WITHOUT_THE_APPEND_LOCK = ["compress.copied", "sync.begun", "file.sync", "sync.done", "sync.told"]


@pytest.fixture
def tmp_path(on_disk):
    """On the disk, where a sync takes the time in which another one comes, and the kernel says what is not written yet."""
    return on_disk


def durable_end(path):
    return jlog.Journal(path).stats().durable_end


@pytest.fixture
def together(spawn, tmp_path):
    """Processes that write to one journal."""

    def start(count, options):
        children = [spawn() for _ in range(count)]
        for number, child in enumerate(children):
            child.call("open_writer", f"w{number}", str(tmp_path / "j"), options)
        return children

    return start


def acknowledged_by(children):
    return [unit for child in children for unit in child.acknowledged]


def check_durable(path, tmp_path, children):
    """All that was acknowledged survives the worst power loss."""
    units = acknowledged_by(children)
    check_units(path, units)
    check_units(lose_unsynced(path, tmp_path / "after the power loss"), units)


@pytest.mark.parametrize("precommit", [0, 4 << 10])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_processes_share_their_fdatasyncs_and_lose_nothing(together, tmp_path, precommit, compression):
    path = tmp_path / "j"
    children = together(4, {**DURABLE, "precommit": precommit, "compression": compression})
    for number, child in enumerate(children):
        child.start("append_in_threads", [f"t{number}{i}" for i in range(2)], 25, f"w{number}")
    for child in children:
        child.result()
    counters = jlog.Journal(path).stats().counters
    assert counters["syncs"] < 200
    assert counters["sync_waits"] > 0
    check_durable(path, tmp_path, children)


def test_processes_with_any_options_share_them_too(together, spawn, tmp_path):
    path = tmp_path / "j"
    children = together(2, DURABLE)
    for number, precommit in enumerate((0, 64 << 10), 2):
        child = spawn()
        child.call("open_writer", f"w{number}", str(path), {"precommit": precommit})
        children.append(child)
    children[0].start("work", "w0", 6)
    children[1].start("extend", "w1", 20, 3, 100, True)
    children[2].start("append", "w2", 30, 300)
    children[3].start("extend", "w3", 10, 10, 500)
    for child in children:
        child.result()
    check_durable(path, tmp_path, children)


# --- Killed, stopped ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", LEADING)
def test_when_the_one_that_syncs_is_killed_the_others_go_on(together, tmp_path, point):
    path = tmp_path / "j"
    victim, waiting, other = children = together(3, LZ4)
    victim.call("arm", f"{point}=kill@3")
    victim.start("append", "w0", 1000, 300)
    waiting.start("append", "w1", 30, 100)
    victim.dies()
    other.call("append", "w2", 3, 100)
    waiting.result()
    check_durable(path, tmp_path, children)


@pytest.mark.parametrize("point", LEADING)
def test_acknowledged_records_of_a_killed_leader_are_durable(together, tmp_path, point):
    """The process is killed while it leads a sync."""
    path = tmp_path / "j"
    (victim,) = children = together(1, LZ4)
    victim.call("arm", f"{point}=kill@5")
    victim.dies("append", "w0", 1000, 300)
    assert len(victim.acknowledged) > 1
    check_durable(path, tmp_path, children)
    with jlog.Writer(path) as writer:
        writer.append(b"after")
        assert durable_end(path) == writer.next_sequence


def test_a_durable_reader_is_not_put_back_when_all_writers_die(together, tmp_path):
    path = tmp_path / "j"
    (victim,) = together(1, DURABLE)
    victim.call("arm", "sync.told=kill@5")
    victim.dies("append", "w0", 1000, 300)
    with jlog.Reader(path, durable_only=True) as reader:
        read = len(list(reader))
        with jlog.Writer(path), jlog.Reader(path, durable_only=True, start="end") as late:
            assert late.position == reader.position == read == 5


@pytest.mark.parametrize("point", WITHOUT_THE_APPEND_LOCK)
def test_while_the_one_that_syncs_is_stopped_the_others_go_on(together, tmp_path, point):
    path = tmp_path / "j"
    stopped, other, third = children = together(3, LZ4)
    stopped.call("append", "w0", 2, 300)
    stopped.call("arm", f"{point}=stop@1")
    stopped.start("append", "w0", 3, 300)
    stopped.is_stopped()
    other.call("append", "w1", 2, 100)
    third.call("extend", "w2", 1, 3, 100, True)
    units = acknowledged_by([other, third])
    check_units(lose_unsynced(path, tmp_path / "meanwhile"), units)
    stopped.continues()
    stopped.result()
    third.call("append", "w2", 3)
    check_durable(path, tmp_path, children)


def test_an_append_not_durable_in_time_says_that_it_is_appended(together, spawn, tmp_path, raised_by):
    """It has closed the block that it is in, to compress it, when another one stops with the append lock."""
    path = tmp_path / "j"
    (other,) = together(1, LZ4)
    child = spawn()
    child.call("open_writer", "x", str(path), {"lock_timeout": 0.2})
    child.call("arm", "compress.copied=stop@1")
    child.start("append", "x", 1, 300)
    child.is_stopped()
    other.call("arm", "append.encoded=stop@1")
    other.start("append", "w0")
    other.is_stopped()
    child.continues()
    with pytest.raises(Exception, match="do not append the records again") as caught:
        child.result()
    assert caught.value.kind == "JournalLocked"
    assert [part_of(value).writer for _, value in read_all(path)] == ["x"]
    other.continues()
    other.result()
    child.call("sync", "x")
    assert [part_of(value).writer for _, value in read_all(path)] == ["x", "w0"]
    assert durable_end(path) == 2


@pytest.mark.parametrize("sync", ["interval", "append"])
def test_a_close_beside_a_stopped_process_ends(spawn, tmp_path, raised_by, sync):
    """The thread that syncs by interval waits for the append lock as well."""
    path, stopped, other, third = tmp_path / "j", spawn(), spawn(), spawn()
    for child, name in ((stopped, "w"), (other, "x"), (third, "y")):
        options = {**SMALL, "sync": sync, "sync_interval": 0.002, "lock_timeout": 2.0}  # no process is starved for so long
        child.call("open_writer", name, str(path), options)
    other.call("append", "x", 2)
    stopped.call("arm", "append.published=stop@1")
    stopped.start("append", "w")
    stopped.is_stopped()
    assert raised_by(other, "close", "x").kind == "JournalLocked"
    third.end()
    stopped.continues()
    stopped.result()
    other.call("open_writer", "z", str(path), {})
    other.call("append", "z", 2)
    other.call("close", "z")
    stopped.call("close", "w")  # the last one: what is synced by interval is synced then
    check_durable(path, tmp_path, [stopped, other, third])


def test_the_thread_that_syncs_takes_over_from_a_killed_one(spawn, tmp_path):
    path, victim, other = tmp_path / "j", spawn(), spawn()
    for child, name in ((victim, "w"), (other, "x")):
        child.call("open_writer", name, str(path), SMALL)
        child.call("append", name, 3)
    victim.call("arm", "file.sync=kill@1")
    victim.dies("sync", "w")
    assert lock_word(path, "sync") != 0
    with jlog.Reader(path, durable_only=True) as reader:
        other.start("extend", "x", 250, 10, 100)  # over more than 16 segments: then the thread syncs
        for record in reader.follow(timeout=HUNG_SECONDS):
            if record.sequence > 100:
                break
        else:
            pytest.fail("nothing has become durable")
    other.result()
    check_units(path, victim.acknowledged + other.acknowledged)


# --- What somebody else may have been told of --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("damaged", [True, False])
def test_a_late_opener_syncs_after_an_unfinished_fdatasync(spawn, tmp_path, raised_by, how, damaged):
    """The kernel reports a failed write-back to one process that has the file open. That may be the other one."""
    path, first, idle, late = tmp_path / "j", spawn(), spawn(), spawn()
    first.call("open_writer", "w", str(path), SMALL)
    idle.call("open_writer", "x", str(path), {})
    first.call("append", "w", 5, 100)
    first.call("arm", f"file.sync={'kill' if how == 'killed' else 'stop'}@1")
    if how == "killed":
        first.dies("sync", "w")
    else:
        first.start("sync", "w")
        first.is_stopped()
    late.call("open_writer", "y", str(path), {})
    late.call("append", "y", 5, 100)
    segment = newest_segment(path)
    if damaged:
        flip(segment, 168 + 72 + 20, 1)
        assert raised_by(late, "sync", "y").errno == errno.EIO
        assert durable_end(path) == 0
        assert raised_by(idle, "append", "x").errno == errno.EIO
        flip(segment, 168 + 72 + 20, 1)
    else:
        late.call("sync", "y")
        assert durable_end(path) == 10
    if how == "stopped":
        first.kill()
    for child in (idle, late):
        child.kill()
    check_units(path, acknowledged_by([first, late]))


def test_a_lone_opener_after_an_unfinished_fdatasync_looks_too(spawn, tmp_path, raised_by):
    path, first, late = tmp_path / "j", spawn(), spawn()
    first.call("open_writer", "w", str(path), SMALL)
    first.call("append", "w", 5, 100)
    first.call("flush", "w")
    first.call("append", "w", 5, 100)
    first.call("arm", "file.sync=kill@1")
    first.dies("sync", "w")
    segment = newest_segment(path)
    late.call("open_writer", "y", str(path), {})
    flip(segment, 168 + 72 + 20, 1)
    late.call("append", "y", 1, 100)
    assert raised_by(late, "sync", "y").errno == errno.EIO
    flip(segment, 168 + 72 + 20, 1)
    late.kill()
    check_units(path, first.acknowledged + late.acknowledged)


def test_a_process_that_dies_in_fdatasync_may_know_of_a_failure(spawn, tmp_path, raised_by):
    """The one that goes on speaks for itself alone."""
    path, first, victim, late = tmp_path / "j", spawn(), spawn(), spawn()
    first.call("open_writer", "w", str(path), SMALL)
    victim.call("open_writer", "x", str(path), {})
    first.call("append", "w", 5, 100)
    first.call("arm", "sync.begun=stop@1")
    first.start("sync", "w")
    first.is_stopped()
    victim.call("append", "x", 5, 100)
    victim.call("arm", "file.sync=kill@1")
    victim.dies("sync", "x")
    first.continues()
    first.result()
    assert durable_end(path) == 5
    late.call("open_writer", "y", str(path), {})
    late.call("append", "y", 5, 100)
    last_of_victim = 168 + 72 + (8 + 5 * 108) + 72 + 20
    flip(newest_segment(path), last_of_victim, 1)
    assert raised_by(late, "sync", "y").errno == errno.EIO
    assert durable_end(path) == 5
    flip(newest_segment(path), last_of_victim, 1)
    for child in (first, late):
        child.kill()
    check_units(path, acknowledged_by([first, victim, late]))


def test_nothing_is_promised_after_a_failure_told_to_another(spawn, tmp_path, raised_by):
    """The kernel does not tell a process of a failure that others were told of before it opened the file."""
    path, first, other = tmp_path / "j", spawn(), spawn()
    for child, name in [(first, "w"), (other, "x")]:
        child.call("open_writer", name, str(path), SMALL)
    first.call("append", "w", 5, 100)
    first.call("arm", "sync.begun=stop@1")
    first.start("sync", "w")
    first.is_stopped()
    assert raised_by_a_failed_sync(other, raised_by) == errno.EIO
    first.continues()
    with pytest.raises(Exception, match=os.strerror(errno.EIO)):
        first.result()
    assert durable_end(path) == 0


def raised_by_a_failed_sync(child, raised_by):
    child.call("arm", "file.sync=5@1")
    return raised_by(child, "sync", "x").errno


# --- A failed fdatasync ------------------------------------------------------------------------------------------


@pytest.fixture
def failed(together, tmp_path):
    """Three processes after an fdatasync that failed in the first; what was appended then is readable."""
    children = together(3, DURABLE)
    for number, child in enumerate(children):
        child.call("append", f"w{number}", 40, 100)
    children[0].call("arm", "file.sync=5@1")
    with pytest.raises(Exception, match=os.strerror(errno.EIO)) as caught:
        children[0].call("append", "w0", 1, 100)
    assert caught.value.errno == errno.EIO
    assert caught.value.filename == str(tmp_path / "j")
    children[0].call("arm", "")
    return children


def test_after_a_failed_fdatasync_every_writer_raises(failed, tmp_path, raised_by):
    path = tmp_path / "j"
    before = check_units(path, acknowledged_by(failed))
    assert len(before) == 121, "what the call has appended is readable, and not durable"
    assert durable_end(path) == 120
    for _ in range(2):
        for number, child in enumerate(failed):
            for call in ("append", "extend", "flush", "sync", "roll"):
                assert raised_by(child, call, f"w{number}").errno == errno.EIO
    assert read_all(path) == before


@pytest.mark.parametrize("how", ["close", "kill"])
def test_the_next_lone_opener_mends_it_in_new_files(failed, spawn, tmp_path, raised_by, how):
    """Appending goes on."""
    path, next_one = tmp_path / "j", spawn()
    before = read_all(path)
    next_one.call("open_writer", "x", str(path), {})
    for number, child in enumerate(failed):
        assert raised_by(next_one, "append", "x").errno == errno.EIO, "somebody has it open still"
        child.call("close", f"w{number}") if how == "close" else child.kill()
    next_one.call("close", "x")
    last = newest_segment(path)
    inode = last.stat().st_ino
    next_one.call("open_writer", "x", str(path), {})
    assert last.stat().st_ino != inode
    assert newest_segment(path) != last
    assert read_all(path) == before
    next_one.call("append", "x", 5)
    assert durable_end(path) == len(before) + 5
    assert not jlog.Journal(path).gaps()
    check_durable(path, tmp_path, [*failed, next_one])


def test_a_reader_reads_on_through_a_failed_fdatasync(failed, spawn, tmp_path):
    """It reads on through the mending, too."""
    path, reader, next_one = tmp_path / "j", spawn(), spawn()
    last = "z 0 0 1 plain "
    reader.start("follow", str(path), last)
    for _ in range(121):
        reader.wait_for("record")
    for child in failed:
        child.kill()
    next_one.call("open_writer", "x", str(path), {})
    next_one.call("append", "x", 100, 100)
    next_one.call("append", "z", 1, 0, "x")
    reader.result()
    assert reader.records == read_all(path)


@pytest.mark.parametrize("point", ["recovery.copied", "file.write"])
@pytest.mark.parametrize("visit", [1, 2, 3])
def test_a_mending_that_is_killed_is_done_again(failed, spawn, tmp_path, point, visit):
    path = tmp_path / "j"
    before = read_all(path)
    for number, child in enumerate(failed):
        child.call("close", f"w{number}")
    opener = spawn(f"{point}=kill@{visit}")
    opener.may_die("open_writer", "x", str(path), {})
    opener.discard()
    with jlog.Writer(path) as writer:
        assert writer.next_sequence == 121
        assert read_all(path) == before
        writer.append(b"w3 0 0 1 plain ")
        assert durable_end(path) == 122
    check_durable(path, tmp_path, failed)


def test_a_block_that_cannot_be_read_any_more_ends_what_is_kept(failed, tmp_path):
    """The kernel has dropped what it could not write, as after a power loss."""
    path = tmp_path / "j"
    for child in failed:
        child.kill()
    segment = newest_segment(path)
    zero(segment, len(segment.read_bytes().rstrip(b"\0")) - 50, 50)
    zero_bodies(path)  # else the block is had from there
    kept = 120
    with jlog.Writer(path) as writer:
        after = writer.append(b"w3 0 0 1 plain ")
    assert after > kept
    check_units(path, acknowledged_by(failed))
    assert len(read_all(path)) == kept + 1


def test_all_waiters_for_a_failed_fdatasync_raise(together, tmp_path):
    path = tmp_path / "j"
    leader, waiting = children = together(2, DURABLE)
    leader.call("arm", "sync.begun=stop@1,file.sync=5@1")
    leader.start("append", "w0", 1, 100)
    leader.is_stopped()
    waiting.call("arm", "file.sync=5@0")  # should it lose patience
    waiting.start("append", "w1", 1, 100)
    leader.continues()
    for child in children:
        with pytest.raises(Exception, match=os.strerror(errno.EIO)):
            child.result()
    assert durable_end(path) == 0
    assert len(read_all(path)) in (1, 2)

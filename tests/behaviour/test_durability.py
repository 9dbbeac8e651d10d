"""Records and commits that survive a power loss: sync="append", "interval", sync(), and durable commits."""

import ctypes
import os
import threading
from datetime import datetime, timedelta, timezone

import pytest

import jlog
import oracle
from behaviour.journals import SMALL, fill, read_away, value_of, values
from crash.tampering import lose_unsynced
from elsewhere import run_python
from jlog.storage.attaching import attached
from patience import HUNG_SECONDS, wait_until

NEVER = 1e6  # seconds: no interval ends in a test
CACHESTAT = 451  # system call, on all machines


def durable_end(path):
    return jlog.Journal(path).stats().durable_end


def counters(path):
    return jlog.Journal(path).stats().counters


@pytest.fixture
def tmp_path(on_disk):
    """On the disk, where a sync takes the time in which another one comes, and the kernel says what is not written yet."""
    return on_disk


def survives(path, tmp_path):
    """The records after the worst power loss."""
    return values(lose_unsynced(path, tmp_path / "after the power loss"))


def dirty_pages(file):
    """The bytes in the page cache, which a power loss takes. None where the kernel does not report them."""
    found, whole = (ctypes.c_uint64 * 5)(), (ctypes.c_uint64 * 2)(0, 0)
    with open(file, "rb") as opened:
        status = ctypes.CDLL(None, use_errno=True).syscall(CACHESTAT, opened.fileno(), whole, found, 0)
    return found[1] + found[2] if status == 0 else None


@pytest.fixture
def told_by_the_kernel(tmp_path):
    """Skips where it does not say which pages are on the disk."""
    probe = tmp_path / "probe"
    with open(probe, "wb") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
    if dirty_pages(probe) != 0:
        pytest.skip("cachestat needs Linux 6.5 and a file system on a disk; set TMPDIR to one")


CALLS = {
    "append": lambda writer: writer.append(b"value"),
    "append with a key": lambda writer: writer.append(b"value", key=b"k"),
    "append of what the buffer cannot hold": lambda writer: writer.append(b"v" * 10_000),
    "append of what a segment cannot hold": lambda writer: writer.append(b"v" * 100_000),
    "extend": lambda writer: writer.extend([b"value"] * 3),
    "extend with headers": lambda writer: writer.extend([b"v"], headers=[[("h", b"v")]]),
    "extend over segments": lambda writer: [writer.extend([b"v" * 1000] * 3) for _ in range(10)],
    "state": lambda writer: writer.extend([b"value"], state={b"k": b"v"}),
}


# --- sync="append" -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("precommit", [0, 4 << 10])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_append_with_sync_append_survives_a_power_loss(path, tmp_path, call, precommit, compression):
    options = {**SMALL, "precommit": precommit, "compression": compression}
    with jlog.Writer(path, sync="append", **options) as writer:
        for _ in range(2):
            call(writer)
            assert durable_end(path) == writer.next_sequence
            written = values(path)
            assert len(written) == writer.next_sequence
            assert survives(path, tmp_path) == written
            with jlog.Reader(path, durable_only=True) as reader:
                assert list(reader.values()) == written


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_kernel_has_nothing_to_write_when_an_append_returns(path, told_by_the_kernel, call):
    with jlog.Writer(path, sync="append", **SMALL) as writer:
        for _ in range(2):
            call(writer)
            assert {file.name: dirty_pages(file) for file in path.glob("*.seg")} == {
                file.name: 0 for file in path.glob("*.seg")
            }
    with jlog.Writer(path, sync="none") as writer:
        writer.append(b"value")
        writer.flush()
        assert dirty_pages(max(path.glob("*.seg"))) > 0


def test_state_alone_survives_a_power_loss_too(path, tmp_path):
    with jlog.Writer(path, sync="append", **SMALL) as writer:
        for number in range(3):
            writer.extend([], state={b"k": b"%d" % number})
            left = lose_unsynced(path, tmp_path / "left")
            assert jlog.Journal(left).state() == {b"k": b"%d" % number}
        writer.append(b"value")
        writer.extend([], state={b"k": None})
        assert jlog.Journal(lose_unsynced(path, tmp_path / "left")).state() == {}


def test_without_sync_a_power_loss_takes_only_unsynced_records(path, tmp_path):
    with jlog.Writer(path, **SMALL) as writer:
        written = fill(writer, 50)
        writer.sync()
        assert durable_end(path) == 50
        fill(writer, 50)
        writer.flush()
        assert durable_end(path) == 50
        assert survives(path, tmp_path) == written
        with jlog.Reader(path, durable_only=True) as reader:
            assert list(reader.values()) == written
        writer.sync()
        assert survives(path, tmp_path) == values(path)


def test_a_sync_of_what_is_synced_already_does_nothing(path):
    with jlog.Writer(path, sync="append") as writer:
        writer.append(b"value")
        before = counters(path)["syncs"]
        for _ in range(3):
            writer.sync()
        assert counters(path)["syncs"] == before


def test_a_power_loss_never_makes_a_number_come_twice(path, tmp_path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 10)
        writer.sync()
        fill(writer, 20)
        left = lose_unsynced(path, tmp_path / "left")
    with jlog.Writer(left) as writer:
        assert writer.append(b"after") >= 30
    ((first, _),) = jlog.Journal(left).gaps()
    assert first == 10


@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_threads_share_their_fdatasyncs(path, tmp_path, precommit):
    with jlog.Writer(path, sync="append", **{**SMALL, "precommit": precommit}) as writer:
        began, results = threading.Barrier(8), {}

        def append(thread):
            began.wait()
            results[thread] = [writer.append(b"%d %d" % (thread, number)) for number in range(40)]

        threads = [threading.Thread(target=append, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = counters(path)
        assert found["syncs"] < 320
        assert found["sync_waits"] > 0
        written = survives(path, tmp_path)
    assert sorted(sequence for given in results.values() for sequence in given) == list(range(320))
    for thread, given in results.items():
        assert [written[sequence] for sequence in given] == [b"%d %d" % (thread, number) for number in range(40)]


# --- sync="interval" ---------------------------------------------------------------------------------------------


def wait_until_durable(path, count):
    """Reads what is synced, until so many records are; nothing else is done for it."""
    with jlog.Reader(path, durable_only=True) as reader:
        for record in reader.follow(timeout=HUNG_SECONDS):
            if record.sequence == count - 1:
                return
    raise AssertionError(f"{durable_end(path)} of {count} records have become durable")


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_with_an_interval_all_becomes_durable_without_any_call(path, tmp_path, compression):
    with jlog.Writer(path, sync="interval", sync_interval=0.05, compression=compression, **SMALL) as writer:
        for count in (1, 2, 60):
            fill(writer, count - writer.next_sequence)
            wait_until_durable(path, count)
            assert len(survives(path, tmp_path)) >= count
    assert jlog.Journal(path).options.sync_interval == 0.05


def test_a_later_writer_sets_the_interval_of_every_process(path, spawn):
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w", 3)
    jlog.Writer(path, sync="interval", sync_interval=0.05).close()
    wait_until_durable(path, 3)
    child.call("append", "w", 3)
    wait_until_durable(path, 6)


def test_a_close_waits_for_the_thread_that_an_earlier_close_did_not_wait_for(path, failpoints, monkeypatch):
    """The thread still keeps the journal open, so that nobody would be the last one to close it, and sync it."""
    with jlog.Writer(path, sync="interval", sync_interval=0.001, lock_timeout=0.1) as first:
        monkeypatch.setenv("JLOG_FAILPOINTS", "sync.told=hold@0")
        first.append(b"a")
        wait_until(lambda: durable_end(path) == 1)
    later = jlog.Writer(path, sync="none")
    later.append(b"b")
    goes_on = threading.Timer(1, os.environ.pop, ("JLOG_FAILPOINTS",))
    goes_on.start()
    later.close()
    assert durable_end(path) == 2
    goes_on.join()


def test_a_long_interval_is_not_cut_short(path):
    with jlog.Writer(path, sync="interval", sync_interval=NEVER) as writer:
        with attached(str(path)) as attachment:
            attachment.maintain()
            writer.append(b"value")
            attachment.maintain()
            attachment.maintain()
            assert durable_end(path) == 0


@pytest.mark.parametrize("sync", ["interval", "append"])
def test_the_last_close_makes_everything_durable(path, tmp_path, sync):
    with jlog.Writer(path, sync=sync, sync_interval=NEVER, **SMALL) as writer:
        other = jlog.Writer(path)
        written = fill(writer, 60)
        other.close()
    assert survives(path, tmp_path) == written


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf")])
def test_an_interval_is_a_time(path, interval):
    with pytest.raises(ValueError, match="sync_interval"):
        jlog.Writer(path, sync_interval=interval)
    assert not path.exists()


def test_without_any_sync_the_mark_follows_by_itself(path):
    """So that a recovery has little to read: after 16 segments, and then the segments' descriptors are closed."""
    with jlog.Writer(path, **SMALL) as writer:
        while len(list(path.glob("*.seg"))) < 20:
            fill(writer, 10)
        wait_until_durable(path, 100)


def test_segments_that_were_removed_take_up_no_space(path):
    def deleted():
        found = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_link(fd)]
        return [name for name in found if name.startswith(f"{path}/0") and name.endswith("(deleted)")]

    def is_link(fd):
        return os.path.lexists(f"/proc/self/fd/{fd}")

    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
        read_away(path, "billing")
        assert jlog.Journal(path).first_sequence > 0
        with attached(str(path)) as attachment:
            attachment.maintain()
            assert not deleted()


# --- A later writer changes it -----------------------------------------------------------------------------------


def test_a_later_writer_changes_the_sync_of_every_process(path, tmp_path, spawn):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("append", "w", 5)
    assert durable_end(path) == 0
    with jlog.Writer(path, sync="append"):
        child.call("append", "w", 5)
        assert durable_end(path) == 10
    child.call("extend", "w", 1, 5)
    assert durable_end(path) == 15
    jlog.Writer(path, sync="none").close()
    syncs = counters(path)["syncs"]
    child.call("append", "w", 5)
    assert counters(path)["syncs"] == syncs


# --- Commits -----------------------------------------------------------------------------------------------------


def test_a_durable_commit_makes_the_records_before_it_durable(path, tmp_path):
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False), **SMALL) as writer:
        written = fill(writer, 60)
        with jlog.Reader(path, "billing") as reader:
            reader.read(max_records=40)
            reader.commit()
            assert durable_end(path) < 40
            reader.commit(durable=True)
            assert durable_end(path) >= 40
            left = lose_unsynced(path, tmp_path / "left")
    assert values(left)[:40] == written[:40]
    assert jlog.Journal(left).subscribers()["billing"].sequence == 40


def test_durable_only_returns_no_record_that_is_not_durable(path):
    with jlog.Writer(path, **SMALL) as writer, jlog.Reader(path, "lake", durable_only=True) as reader:
        fill(writer, 5)
        writer.flush()
        assert reader.read().values() == []
        writer.sync()
        assert reader.read().values() == [value_of(number) for number in range(5)]
        fill(writer, 5)
        assert jlog.Journal(path).find(datetime.now(timezone.utc) + timedelta(days=1)) == 10
        assert list(reader.values()) == []


# --- The thread that does it -------------------------------------------------------------------------------------


def test_the_collector_closes_a_writer_while_its_thread_logs(path, failpoints):
    """Neither of the two holds the other up."""
    run_python(f"""
import gc, logging

class Owner:
    pass

handler = logging.StreamHandler(open(os.devnull, "w"))
logging.getLogger("jlog").addHandler(handler)
owner = Owner()
owner.itself = owner
owner.writer = jlog.Writer({str(path)!r}, sync="interval", sync_interval=0.001)
handler.acquire()  # as whoever logs has it when the collector comes
os.environ["JLOG_FAILPOINTS"] = "file.sync=5@0"
try:
    while True:
        owner.writer.append(b"value")
except OSError:
    pass  # the thread has met the failure, and is about to log it
del owner
gc.collect()
handler.release()
""")
    assert values(path)
    oracle.check_journal(path)


def test_a_writer_can_be_opened_while_the_interpreter_ends(path):
    run_python(f"""
import atexit

def at_the_end():
    with jlog.Writer({str(path)!r}, sync="interval") as writer:
        writer.append(b"last words")

atexit.register(at_the_end)
jlog.Writer({str(path)!r}).append(b"value")
""")
    assert values(path) == [b"value", b"last words"]


def test_a_process_that_ends_without_closing_its_writers_ends(path):
    run_python(f"""
writers = [jlog.Writer({str(path)!r} + str(number), sync="interval", sync_interval=0.001) for number in range(3)]
for writer in writers:
    writer.append(b"value")
sys.modules["kept"] = writers
""")
    assert values(str(path) + "0") == [b"value"]

"""A stopped process that holds the append lock is waited for; from a dead one the lock is taken over."""

import signal

import pytest

import jlog
from jlog.care.numbering import continue_at
from processes.children import lock_word, somebody_waits
from processes.units import check_units, read_all

pytestmark = pytest.mark.usefixtures("failpoints")

# Where it stops, and what it is told to do.
HOLDING = {
    "append.encoded": ("append", "w", 5, 100),
    "append.published": ("extend", "w", 5, 3, 100),
    "close.before_write": ("work", "w", 10, "direct"),
    "rotate.filled": ("append", "w", 100, 100),
    "direct.intent": ("extend", "w", 5, 2, 100, True),
    "direct.written": ("append", "w", 5, 100, "direct"),
    "roll.completed": ("work", "w", 10, "direct"),
}


@pytest.fixture(params=HOLDING)
def stopped(request, spawn, tmp_path):
    """A process that has stopped while it holds the append lock."""
    child, options = spawn(), {"precommit": 4 << 10, "segment_bytes": 8 << 10}
    child.call("open_writer", "w", str(tmp_path / "j"), options)
    child.call("open_writer", "direct", str(tmp_path / "j"), {"precommit": 0})
    child.call("append", "w", 3)
    return child, request.param


def stop(child, failpoint):
    child.call("arm", f"{failpoint}=stop@2")
    child.start(*HOLDING[failpoint])
    child.is_stopped()


def test_lock_timeout_raises_while_the_holder_is_stopped(stopped, spawn, tmp_path, raised_by):
    """All is well once the holder goes on."""
    (holder, failpoint), waiter = stopped, spawn()
    waiter.call("open_writer", "x", str(tmp_path / "j"), {"lock_timeout": 0.1})
    stop(holder, failpoint)
    assert lock_word(tmp_path / "j") != 0
    for call in (("append", "x"), ("extend", "x"), ("flush", "x"), ("sync", "x"), ("roll", "x")):
        assert raised_by(waiter, *call).kind == "JournalLocked", call
    before = read_all(tmp_path / "j")  # readers need no lock
    holder.continues()
    holder.result()
    waiter.call("append", "x", 5)
    assert check_units(tmp_path / "j", holder.acknowledged + waiter.acknowledged)[: len(before)] == before


def test_a_waiter_without_timeout_goes_on_when_the_holder_does(stopped, spawn, tmp_path):
    (holder, failpoint), waiter = stopped, spawn()
    waiter.call("open_writer", "x", str(tmp_path / "j"), {})
    stop(holder, failpoint)
    waiter.start("append", "x", 5)
    somebody_waits(tmp_path / "j")
    holder.continues()
    holder.result(), waiter.result()
    check_units(tmp_path / "j", holder.acknowledged + waiter.acknowledged)


@pytest.mark.parametrize("call", [("append", "x"), ("extend", "x", 1, 3, 0, True), ("sync", "x"), ("close", "x")])
def test_ctrl_c_ends_a_call_that_waits_for_a_stopped_holder(stopped, spawn, tmp_path, raised_by, call):
    (holder, failpoint), waiter = stopped, spawn()
    waiter.call("open_writer", "x", str(tmp_path / "j"), {})
    stop(holder, failpoint)
    waiter.start(*call)
    somebody_waits(tmp_path / "j")
    waiter.interrupt()
    with pytest.raises(Exception, match="KeyboardInterrupt"):
        waiter.result()
    holder.continues()
    holder.result()
    if call[0] != "close":
        waiter.call("append", "x", 5)
    check_units(tmp_path / "j", holder.acknowledged + waiter.acknowledged)


def test_a_stopped_holder_that_is_killed_is_taken_over_from(stopped, spawn, tmp_path):
    (holder, failpoint), waiter = stopped, spawn()
    waiter.call("open_writer", "x", str(tmp_path / "j"), {})
    stop(holder, failpoint)
    waiter.start("append", "x", 5)
    somebody_waits(tmp_path / "j")
    holder.kill()
    waiter.result()
    check_units(tmp_path / "j", holder.acknowledged + waiter.acknowledged)


def test_a_stopped_process_that_holds_no_lock_holds_nobody_up(spawn, tmp_path):
    idle, busy, path = spawn(), spawn(), tmp_path / "j"
    idle.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    idle.call("append", "w", 3)
    busy.call("open_writer", "x", str(path), {"lock_timeout": 30.0})
    idle.process.send_signal(signal.SIGSTOP)
    idle.is_stopped()
    busy.call("work", "x", 10)
    with jlog.Writer(path) as writer:
        assert writer.next_sequence > 3
    idle.continues()
    idle.call("append", "w", 3)
    check_units(path, idle.acknowledged + busy.acknowledged)


def test_a_sync_goes_on_beside_one_that_is_stopped(spawn, tmp_path):
    holder, other, path = spawn(), spawn(), tmp_path / "j"
    for child, name in ((holder, "w"), (other, "x")):
        child.call("open_writer", name, str(path), {})
        child.call("append", name, 3)
    holder.call("arm", "file.sync=stop@1")
    holder.start("sync", "w")
    holder.is_stopped()
    other.call("append", "x", 2)
    other.call("sync", "x")
    other.call("append", "x", 2)
    holder.continues()
    holder.result()
    other.call("sync", "x")
    check_units(path, holder.acknowledged + other.acknowledged)


def test_a_sync_takes_over_from_one_that_was_killed(spawn, tmp_path):
    holder, other, path = spawn(), spawn(), tmp_path / "j"
    for child, name in ((holder, "w"), (other, "x")):
        child.call("open_writer", name, str(path), {})
        child.call("append", name, 3)
    holder.call("arm", "file.sync=kill@1")
    holder.dies("sync", "w")
    assert lock_word(path, "sync") != 0
    other.call("sync", "x")
    other.call("append", "x", 2)
    check_units(path, holder.acknowledged + other.acknowledged)


CALLS = {
    "write": jlog.Writer,
    "repair": jlog.Journal.repair_at,
    "delete": jlog.Journal.delete,
    "renumber": lambda path: continue_at(str(path), 1 << 40),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_removed_file_lock_hides_no_living_writer(spawn, tmp_path, monkeypatch, call):
    """A cleaner of old files removes it, and somebody creates it anew: the directory's own lock tells the truth."""
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    child.call("append", "w", 5)
    (path / "lock").unlink()
    (path / "lock").touch()
    monkeypatch.setattr("jlog._core.system.lock.DYING_SECONDS", 0)
    with pytest.raises(jlog.JournalLocked, match="`lock` was removed or replaced"):
        call(path)
    child.call("append", "w", 5)
    child.call("close", "w")
    check_units(path, child.acknowledged)
    with jlog.Writer(path) as writer:
        assert writer.append(b"after") == 10

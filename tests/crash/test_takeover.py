"""A process that takes over a dead owner's lock is killed too: the next one finds both deaths and goes on."""

import errno
import struct

import pytest

import jlog
from crash.copies import check_killed
from jlog._core.append.operations import sealed_bytes
from jlog._core.buffer.precommit import read_counters
from jlog.storage.meta import read_meta
from processes.units import check_units

pytestmark = pytest.mark.usefixtures("failpoints")

FIRST = [
    "append.encoded",
    "append.published",
    "close.before_write",
    "close.written",
    "rotate.emptied",
    "rotate.filled",
    "rotate.turned",
    "direct.intent",
    "direct.written",
    "roll.completed",
    "roll.renamed",
]
EVERY_TAKEOVER = ["takeover.proved", "takeover.taken", "takeover.derived"]
# What only some takeovers come past: publishing a direct block, removing the file of a roll.
SOME_TAKEOVERS = [
    ("direct.written", "rotate.before"),
    ("direct.written", "rotate.emptied"),
    ("direct.written", "rotate.filled"),
    ("direct.written", "rotate.turned"),
    ("roll.renamed", "takeover.unlinked"),
    ("roll.renamed", "file.unlink"),
    ("roll.renamed", "file.sync_directory"),
]
CHAINS = [(first, second, "") for first in FIRST for second in EVERY_TAKEOVER]
CHAINS += [(first, second, "") for first, second in SOME_TAKEOVERS]
# On a file system that cannot reserve space.
REFUSED = "file.fallocate=95@0"
CHAINS += [(first, "takeover.derived", REFUSED) for first in FIRST]
SEALED_BYTES = 272  # where that lies in the control page


def is_killed_at(child, name, point):
    child.call("arm", f"{point}=kill@1")
    child.dies("work", name, 10, "direct")


@pytest.mark.parametrize(("first", "second", "failing"), CHAINS)
def test_a_taker_over_that_is_killed_is_taken_over_from(victim, spawn, tmp_path, first, second, failing):
    path, taker, third = tmp_path / "j", spawn(), spawn(failing)
    for child, name in ((taker, "taker"), (third, "third")):
        child.call("open_writer", name, str(path), {})
        child.call("open_writer", "direct", str(path), {"precommit": 0})
    is_killed_at(victim, "victim", first)
    taker.call("arm", f"{second}=kill@1,{failing}")
    taker.dies("append", "taker")
    check_units(path, victim.acknowledged + taker.acknowledged)
    third.call("work", "third", 4, "direct")
    check_units(path, victim.acknowledged + taker.acknowledged + third.acknowledged)


@pytest.mark.parametrize(("first", "second"), [(first, "takeover.derived") for first in FIRST] + SOME_TAKEOVERS)
def test_an_opener_killed_in_a_takeover_is_followed_by_the_next(victim, spawn, tmp_path, first, second):
    """Nobody is left: each opens alone."""
    path, opener, third = tmp_path / "j", spawn(), spawn()
    is_killed_at(victim, "victim", first)
    opener.call("arm", f"{second}=kill@1")
    opener.dies("open_writer", "opener", str(path), {})
    check_killed(path, victim.acknowledged)
    third.call("open_writer", "third", str(path), {})
    third.call("work", "third", 4)
    check_units(path, victim.acknowledged + third.acknowledged)
    assert not jlog.Journal(path).gaps()


@pytest.mark.parametrize("first", FIRST)
def test_a_chain_of_dead_owners_ends_with_a_living_one(victim, spawn, tmp_path, first):
    """Each opens beside an idle writer, takes the dead one's slot, and is killed at the same point."""
    path, idle = tmp_path / "j", spawn()
    idle.call("open_writer", "idle", str(path), {})
    is_killed_at(victim, "victim", first)
    units = list(victim.acknowledged)
    for turn in range(3):
        child = spawn()
        child.call("open_writer", f"next{turn}", str(path), {})
        child.call("open_writer", "direct", str(path), {"precommit": 0})
        is_killed_at(child, f"next{turn}", first)
        units += child.acknowledged
    idle.call("work", "idle", 4)
    check_units(path, units + idle.acknowledged)


@pytest.mark.parametrize("second", ["takeover.proved", "takeover.taken"])
def test_a_taker_over_of_the_sync_lock_is_itself_taken_over_from(victim, spawn, tmp_path, second):
    path, taker, third = tmp_path / "j", spawn(), spawn()
    for child, name in ((taker, "taker"), (third, "third")):
        child.call("open_writer", name, str(path), {})
    victim.call("arm", "file.sync=kill@1")
    victim.dies("sync", "victim")
    taker.call("append", "taker")
    taker.call("arm", f"{second}=kill@1")
    taker.dies("sync", "taker")
    third.call("append", "third")
    third.call("sync", "third")
    check_units(path, victim.acknowledged + taker.acknowledged + third.acknowledged)


# --- A takeover that cannot be completed -------------------------------------------------------------------------

# The point at which the owner is killed, and the system call that fails in the takeover.
FAILING = {
    "no descriptor is left": ("direct.written", "file.open", errno.EMFILE),
    "no memory is left": ("direct.written", "file.read", errno.ENOMEM),
    "the block cannot be read": ("direct.written", "file.read", errno.EIO),
    "the file cannot be removed": ("roll.renamed", "file.unlink", errno.EINTR),
}


@pytest.mark.parametrize(("first", "point", "error"), FAILING.values(), ids=FAILING)
def test_an_obstacle_to_one_takeover_is_none_to_another(victim, spawn, tmp_path, raised_by, first, point, error):
    path, taker, third = tmp_path / "j", spawn(), spawn()
    for child, name in ((taker, "taker"), (third, "third")):
        child.call("open_writer", name, str(path), {})
        child.call("open_writer", "direct", str(path), {"precommit": 0})
    is_killed_at(victim, "victim", first)
    taker.call("arm", f"{point}={error}@0")
    for _ in range(2):
        assert raised_by(taker, "append", "failing", 1, 0, "taker").errno == error
        check_units(path, victim.acknowledged)
    third.call("work", "third", 4, "direct")
    taker.call("arm", "")
    taker.call("work", "taker", 4, "direct")
    check_units(path, victim.acknowledged + third.acknowledged + taker.acknowledged)
    assert read_counters(str(path), read_meta(path).uuid)["takeovers"] == 1


@pytest.mark.parametrize(("first", "point", "error"), FAILING.values(), ids=FAILING)
def test_a_takeover_goes_on_once_what_it_lacked_is_there(victim, spawn, tmp_path, raised_by, first, point, error):
    """Nobody else appends meanwhile."""
    path, taker = tmp_path / "j", spawn()
    taker.call("open_writer", "taker", str(path), {})
    is_killed_at(victim, "victim", first)
    taker.call("arm", f"{point}={error}@0")
    assert raised_by(taker, "append", "failing", 1, 0, "taker").errno == error
    taker.call("arm", "")
    taker.call("work", "taker", 4)
    check_units(path, victim.acknowledged + taker.acknowledged)


def test_a_takeover_that_a_newcomer_cannot_complete_stops_nobody(victim, spawn, tmp_path, raised_by):
    path, idle, newcomer = tmp_path / "j", spawn(), spawn()
    idle.call("open_writer", "idle", str(path), {})
    is_killed_at(victim, "victim", "roll.renamed")
    newcomer.call("arm", f"file.unlink={errno.ENOMEM}@0")
    assert raised_by(newcomer, "open_writer", "newcomer", str(path), {}).errno == errno.ENOMEM
    newcomer.call("arm", "")
    idle.call("work", "idle", 4)
    newcomer.call("open_writer", "newcomer", str(path), {})
    newcomer.call("work", "newcomer", 4)
    check_units(path, victim.acknowledged + idle.acknowledged + newcomer.acknowledged)


# --- What is derived ---------------------------------------------------------------------------------------------


def check_sealed_bytes(path):
    """The page's count is exact."""
    (counted,) = struct.unpack_from("<Q", (path / "precommit").read_bytes(), SEALED_BYTES)
    newest = max(int(file.stem) for file in path.glob("*.seg"))
    assert counted == sealed_bytes(str(path), read_meta(path).uuid, newest)


@pytest.mark.parametrize("call", [("roll", "victim"), ("append", "victim", 1, 6000)], ids=["roll", "own file"])
@pytest.mark.parametrize("point", ["roll.renamed", "rotate.before", "rotate.turned"])
def test_a_segment_that_a_killed_writer_rolled_is_counted_once(victim, spawn, tmp_path, point, call):
    """Towards limit_bytes."""
    path, taker = tmp_path / "j", spawn()
    taker.call("open_writer", "taker", str(path), {})
    jlog.Writer(path, retention=jlog.Retention(limit_bytes=1 << 30)).close()
    check_sealed_bytes(path)
    victim.call("flush", "victim")
    victim.call("arm", f"{point}=kill@1")
    victim.dies(*call)
    taker.call("append", "taker", 1)
    check_sealed_bytes(path)
    for _ in range(2):
        taker.call("roll", "taker")
        check_sealed_bytes(path)
        taker.call("append", "taker", 1, 6000)
        check_sealed_bytes(path)
    check_units(path, victim.acknowledged + taker.acknowledged)

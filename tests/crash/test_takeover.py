"""Who takes a dead owner's lock over is killed too: the next one finds both and goes on."""

import pytest

import jlog
from processes.units import check_units

pytestmark = pytest.mark.usefixtures("failpoints")

OPTIONS = {"precommit": 4 << 10, "segment_bytes": 8 << 10}
FIRST = [
    "append.encoded",
    "append.published",
    "close.before_write",
    "close.written",
    "switch.emptied",
    "switch.filled",
    "switch.turned",
    "direct.noted",
    "direct.written",
    "roll.completed",
    "roll.renamed",
]
EVERY_TAKEOVER = ["takeover.proved", "takeover.taken", "repair.derived"]
# What only some takeovers come past: publishing a direct block, removing the file of a roll.
SOME_TAKEOVERS = [
    ("direct.written", "switch.before"),
    ("direct.written", "switch.emptied"),
    ("direct.written", "switch.filled"),
    ("direct.written", "switch.turned"),
    ("roll.renamed", "repair.unlinked"),
    ("roll.renamed", "file.unlink"),
    ("roll.renamed", "file.sync_directory"),
]
CHAINS = [(first, second) for first in FIRST for second in EVERY_TAKEOVER] + SOME_TAKEOVERS


@pytest.fixture
def victim(spawn, tmp_path):
    child = spawn()
    child.call("open_writer", "victim", str(tmp_path / "j"), OPTIONS)
    child.call("open_writer", "direct", str(tmp_path / "j"), {"precommit": 0})
    child.call("append", "victim", 3)
    return child


def is_killed_at(child, name, point):
    child.call("arm", f"{point}=kill@1")
    child.dies("work", name, 10, "direct")


@pytest.mark.parametrize(("first", "second"), CHAINS)
def test_a_taker_over_that_is_killed_is_taken_over_from(victim, spawn, tmp_path, first, second):
    path, taker, third = tmp_path / "j", spawn(), spawn()
    for child, name in ((taker, "taker"), (third, "third")):
        child.call("open_writer", name, str(path), {})
        child.call("open_writer", "direct", str(path), {"precommit": 0})
    is_killed_at(victim, "victim", first)
    taker.call("arm", f"{second}=kill@1")
    taker.dies("append", "taker")
    check_units(path, victim.acknowledged + taker.acknowledged)
    third.call("work", "third", 4, "direct")
    check_units(path, victim.acknowledged + taker.acknowledged + third.acknowledged)


@pytest.mark.parametrize(("first", "second"), [(first, "repair.derived") for first in FIRST] + SOME_TAKEOVERS)
def test_an_opener_killed_while_it_makes_good_a_dead_one_is_followed_by_the_next(
    victim, spawn, tmp_path, first, second
):
    """Nobody is left: each opens alone."""
    path, opener, third = tmp_path / "j", spawn(), spawn()
    is_killed_at(victim, "victim", first)
    opener.call("arm", f"{second}=kill@1")
    opener.dies("open_writer", "opener", str(path), {})
    check_units(path, victim.acknowledged)
    third.call("open_writer", "third", str(path), {})
    third.call("work", "third", 4)
    check_units(path, victim.acknowledged + third.acknowledged)
    assert not jlog.Journal(path).holes()


@pytest.mark.parametrize("first", FIRST)
def test_a_chain_of_dead_ones_in_one_slot_ends_with_the_one_that_lives(victim, spawn, tmp_path, first):
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
def test_a_taker_over_of_the_sync_word_that_is_killed_is_taken_over_from(victim, spawn, tmp_path, second):
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

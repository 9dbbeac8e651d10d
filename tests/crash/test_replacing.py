"""A segment that holds only state is replaced under its name, and the process that does it is killed at every step."""

import errno
import os
import shutil

import pytest

import jlog
from processes.units import check_units, values_of

pytestmark = pytest.mark.usefixtures("failpoints")

END = values_of("end", 0)[0]
MANY = 300  # of 60 kB: some 4 MiB are replaced by one that holds the newest
POINTS = [
    "replace.intent",
    "file.rename",
    "replace.renamed",
    "rotate.filled",
    "rotate.turned",
    "replace.rotated",
]
VISITS = {"rotate.filled": 200, "rotate.turned": 200}  # each block switches; these many pass two replacements


@pytest.fixture(params=[False, True], ids=["first segment", "later segment"])
def victim(request, spawn, tmp_path):
    """A writer in a journal whose open segment has no record."""
    child = spawn()
    child.call("open_writer", "victim", str(tmp_path / "j"), {"precommit": 4 << 10, "segment_bytes": 64 << 10})
    if request.param:
        child.call("append", "victim", 3)
        child.call("roll", "victim")
    return child


def is_killed_at(child, name, point):
    child.call("arm", f"{point}=kill@{VISITS.get(point, 1)}")
    child.dies("store", name, MANY)


def stored(child):
    """The newest number that was acknowledged, -1 without."""
    return child.told.get("stored", [-1])[0]


def check_state(path, **children):
    """The acknowledged records are there, perhaps with those of the call that was under way."""
    state = jlog.Journal(path).state()
    for name, child in children.items():
        assert 0 <= int(state[b"alone/" + name.encode()]) - stored(child) <= 1
    assert jlog.Journal(path).verify().ok


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_killed_beside_a_living_one_loses_nothing(victim, spawn, tmp_path, point):
    """It holds nobody up."""
    path, other, reader = tmp_path / "j", spawn(), spawn()
    other.call("open_writer", "other", str(path), {})
    reader.start("follow", str(path), END.decode())
    reader.wait_for("following")
    is_killed_at(victim, "victim", point)
    other.call("store", "other", 100)
    check_state(path, victim=victim, other=other)
    other.call("sync", "other")
    other.call("work", "other", 3)
    records = check_units(path, victim.acknowledged + other.acknowledged)
    with jlog.Writer(path) as writer:
        writer.append(END)
    reader.result()
    assert reader.records[: len(records)] == records
    assert not jlog.Journal(path).gaps()


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_killed_alone_loses_nothing(victim, spawn, tmp_path, point):
    """The next one goes on where it stopped."""
    path, successor = tmp_path / "j", spawn()
    is_killed_at(victim, "victim", point)
    check_state(path, victim=victim)  # by readers, with nobody there
    check_units(path, victim.acknowledged)
    successor.call("open_writer", "successor", str(path), {})
    check_state(path, victim=victim)
    successor.call("store", "successor", 100)
    successor.call("work", "successor", 3)
    check_state(path, victim=victim)
    check_units(path, victim.acknowledged + successor.acknowledged)
    assert not jlog.Journal(path).gaps()


@pytest.mark.parametrize(
    ("point", "second"),
    [
        *((point, "takeover.derived") for point in POINTS if point != "rotate.turned"),
        ("replace.renamed", "file.stat"),
    ],
)
def test_the_next_owner_is_killed_in_its_takeover_too(victim, spawn, tmp_path, point, second):
    path, opener, third = tmp_path / "j", spawn(), spawn()
    is_killed_at(victim, "victim", point)
    opener.call("arm", f"{second}=kill@1")
    opener.dies("open_writer", "opener", str(path), {})
    check_state(path, victim=victim)
    third.call("open_writer", "third", str(path), {})
    third.call("store", "third", 100)
    third.call("work", "third", 3)
    check_state(path, victim=victim)
    check_units(path, victim.acknowledged + third.acknowledged)


def test_a_replacement_of_unknown_outcome_is_left_to_the_next(victim, spawn, tmp_path, raised_by):
    path, taker, third = tmp_path / "j", spawn(), spawn()
    for child, name in ((taker, "taker"), (third, "third")):
        child.call("open_writer", name, str(path), {})
    is_killed_at(victim, "victim", "replace.renamed")
    taker.call("arm", "file.stat=12@1")
    assert raised_by(taker, "append", "taker").errno == errno.ENOMEM
    third.call("store", "third", 2)
    third.call("work", "third", 3)
    check_state(path, victim=victim, third=third)
    check_units(path, victim.acknowledged + third.acknowledged)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kept", ["old", "new"])
def test_after_a_power_loss_either_file_holds_what_was_synced(victim, spawn, tmp_path, point, kept):
    """The name may be that of the old file or of the new one, and the control page is gone."""
    path = tmp_path / "j"
    victim.call("store", "victim", 40)
    victim.call("sync", "victim")
    synced, name = stored(victim), max(path.glob("*.seg"))
    os.link(name, tmp_path / "old")
    is_killed_at(victim, "victim", point)
    (path / "precommit").unlink()
    if kept == "old" and not name.samefile(tmp_path / "old"):
        shutil.copyfile(tmp_path / "old", name)
    successor = spawn()
    successor.call("open_writer", "successor", str(path), {})
    assert int(jlog.Journal(path).state()[b"alone/victim"]) >= synced
    successor.call("store", "successor", 100)
    successor.call("work", "successor", 3)
    assert jlog.Journal(path).verify().ok


def test_long_storing_takes_no_more_room_than_a_segment(spawn, tmp_path):
    path, writers = tmp_path / "j", {"one": spawn(), "two": spawn(), "three": spawn()}
    for name, child in writers.items():
        child.call("open_writer", name, str(path), {"precommit": 4 << 10, "segment_bytes": 64 << 10})
    for name, child in writers.items():
        child.start("store", name, MANY)
    for child in writers.values():
        child.result()
    check_state(path, **writers)
    assert max(path.glob("*.seg")).stat().st_size < 6 << 20
    assert [entry.name for entry in path.glob("next.*")] == []

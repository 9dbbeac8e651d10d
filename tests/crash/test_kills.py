"""A writer is killed at every point that has a name, with another one alive that takes over, and with none, so that
the next to open recovers. What it has acknowledged is there once; the call that was under way as a whole or not."""

import re
from pathlib import Path

import pytest

import jlog
from crash.copies import check_killed
from processes.units import check_units, read_all, values_of

pytestmark = pytest.mark.usefixtures("failpoints")

SOURCES = Path(__file__).parents[2] / "pyx"
OPTIONS = {"precommit": 4 << 10, "segment_bytes": 8 << 10}
END = values_of("end", 0)[0]

# Points that a writer passes while it works, and the visits at which it is killed: `work` opens nothing.
WRITING = {
    "append.encoded": (1, 2, 30),
    "append.published": (1, 2, 30),
    "close.deferred": (1,),
    "close.before_write": (1, 2, 9),
    "close.written": (1, 2, 9),
    "rotate.before": (1, 2, 9),
    "rotate.emptied": (1, 2, 9),
    "rotate.filled": (1, 2, 9),
    "rotate.turned": (1, 2, 9),
    "direct.intent": (1, 2, 3),
    "direct.written": (1, 2, 3),
    "sync.begun": (1, 2, 4),
    "sync.done": (1, 2, 4),
    "sync.told": (1, 2, 4),
    "roll.completed": (1, 2, 3),
    "roll.renamed": (1, 2, 3),
    "file.read": (1, 2, 20),
    "file.write": (1, 2, 5),
    "file.write_block": (1, 2, 9),
    "file.allocate": (1, 2, 3),
    "file.fallocate": (1, 2, 3),
    "file.sync": (1, 2, 4),
    "file.sync_directory": (1, 2),
    "file.rename": (1, 2),
}
# The same with compressed blocks, where that makes a difference.
COMPRESSING = {
    "close.intent": (1, 2, 9),
    "compress.copied": (1, 2, 9),
    "close.before_write": (3,),
    "close.written": (1, 5),
    "rotate.filled": (4,),
    "direct.written": (2,),
    "roll.renamed": (2,),
    "file.write_block": (6,),
}
# Where the newest segment is another process's.
FOLLOWING_A_ROLL = {"file.open"}
# Where the open segment holds state alone, and another file takes its name: tests/crash/test_replacing.py.
REPLACING = {"replace.intent", "replace.renamed", "replace.rotated", "takeover.replaced", "file.stat"}
# Where a file of records becomes a segment: tests/crash/test_ingest.py.
INGESTING = {"ingest.linked", "ingest.completed"}
# Points of who takes a dead owner's lock over, and what the owner was killed at: tests/crash/test_takeover.py.
TAKING_OVER = {"takeover.proved", "takeover.taken", "takeover.derived", "takeover.unlinked", "file.unlink"}
# Points of who opens a journal that a power loss has left: tests/crash/test_recovery.py.
RECOVERING = {
    "recovery.begun",
    "recovery.written_again",
    "recovery.quarantined",
    "recovery.cut",
    "recovery.segment_written",
    "recovery.segment_created",
    "recovery.marked",
    "recovery.copied",
}
# Of readers: tests/behaviour/test_follow_async.py, tests/crash/test_recovery.py, tests/crash/test_open_block.py.
READING = {"wake.wait_for_any", "end.listed", "page.read"}

# Of workers: tests/processes/test_workers.py.
SHARING = {"window.passing", "window.passed", "window.finishing", "window.finished", "window.returning"}


def test_every_point_that_is_compiled_in_kills_somebody_here():
    text = "".join(path.read_text() for path in sorted(SOURCES.rglob("*")) if path.suffix in (".pyx", ".h"))
    compiled_in = set(re.findall(r"""(?:JLOG_FAILPOINT|_visit)\(b?"([a-z_.]+)"\)""", text))
    killing = {
        *WRITING,
        *COMPRESSING,
        *FOLLOWING_A_ROLL,
        *REPLACING,
        *INGESTING,
        *TAKING_OVER,
        *RECOVERING,
        *READING,
        *SHARING,
    }
    assert compiled_in == {*killing, "clock"}


REFUSED = "file.fallocate=95@0"  # as file systems do that cannot reserve space: zeros are written instead
# Where that could make a difference.
WITHOUT_FALLOCATE = {
    "append.published": 30,
    "close.deferred": 1,
    "close.written": 2,
    "rotate.turned": 2,
    "direct.written": 1,
    "roll.completed": 1,
    "roll.renamed": 2,
    "file.write": 5,
}
ALL = [
    *(
        (compression, point, visit, "")
        for compression, points in (("none", WRITING), ("lz4", COMPRESSING))
        for point, visits in points.items()
        for visit in visits
    ),
    *(("none", point, visit, REFUSED) for point, visit in WITHOUT_FALLOCATE.items()),
]


@pytest.mark.parametrize(("compression", "point", "visit", "failing"), ALL)
def test_a_writer_killed_beside_a_living_one_loses_nothing(victim, spawn, tmp_path, compression, point, visit, failing):
    """It holds nobody up."""
    path, other, reader = tmp_path / "j", spawn(failing), spawn()
    victim.call("open_writer", "changing", str(path), {"compression": compression})
    other.call("open_writer", "other", str(path), {})
    reader.start("follow", str(path), END.decode())
    reader.wait_for("following")
    victim.call("arm", f"{point}=kill@{visit},{failing}")
    victim.dies("work", "victim", 30, "direct")
    other.call("work", "other", 6)
    check_units(path, victim.acknowledged + other.acknowledged)
    with jlog.Writer(path) as writer:
        writer.append(END)
    reader.result()
    assert reader.records == check_units(path, victim.acknowledged + other.acknowledged)


@pytest.mark.parametrize(("compression", "point", "visit", "failing"), ALL)
def test_a_writer_killed_alone_loses_nothing(victim, spawn, tmp_path, compression, point, visit, failing):
    """The next one goes on where it stopped."""
    path, successor, reader = tmp_path / "j", spawn(failing), spawn()
    victim.call("open_writer", "changing", str(path), {"compression": compression})
    reader.start("follow", str(path), END.decode())
    reader.wait_for("following")
    victim.call("arm", f"{point}=kill@{visit},{failing}")
    victim.dies("work", "victim", 30, "direct")
    before = check_killed(path, victim.acknowledged)
    successor.call("open_writer", "successor", str(path), {})
    successor.call("work", "successor", 6)
    successor.call("close", "successor")
    with jlog.Writer(path) as writer:
        writer.append(END)
    reader.result()
    records = check_units(path, victim.acknowledged + successor.acknowledged)
    assert records[: len(before)] == before
    assert reader.records == records


def test_a_kill_at_opening_anothers_new_segment_loses_nothing(victim, spawn, tmp_path):
    path, other = tmp_path / "j", spawn()
    other.call("open_writer", "other", str(path), {})
    victim.call("append", "victim", 3)
    other.call("roll", "other")
    victim.call("append", "victim", 3)
    victim.call("arm", "file.open=kill@1")
    victim.dies("flush", "victim")
    other.call("work", "other", 6)
    check_units(path, victim.acknowledged + other.acknowledged)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "taken over"])
@pytest.mark.parametrize("point", ["direct.intent", "direct.written"])
@pytest.mark.parametrize("call", [("roll", "other"), ("extend", "other", 1, 2, 0, True)])
def test_a_writer_killed_while_it_stores_state_holds_nobody_up(victim, spawn, tmp_path, point, call, alone):
    path, other = tmp_path / "j", spawn()
    if not alone:
        other.call("open_writer", "other", str(path), {})
    victim.call("arm", f"{point}=kill@1")
    victim.dies("extend", "victim", 1, 2, 100, True)
    if alone:
        other.call("open_writer", "other", str(path), {})
    other.call(*call)
    other.call("extend", "other", 2, 2, 0, True)
    other.call("roll", "other")
    other.call("append", "other", 2)
    check_units(path, victim.acknowledged + other.acknowledged)


@pytest.mark.parametrize("point", ["append.encoded", "close.written", "rotate.filled", "direct.written", "roll.renamed"])
def test_the_next_owner_of_a_slot_completes_the_dead_ones_steps(victim, spawn, tmp_path, point):
    """Nobody waits for the lock: a third process opens, and gets the slot that the lock word names."""
    path, idle, third = tmp_path / "j", spawn(), spawn()
    idle.call("open_writer", "idle", str(path), {})
    victim.call("arm", f"{point}=kill@2")
    victim.dies("work", "victim", 30, "direct")
    third.call("open_writer", "third", str(path), {})
    third.call("work", "third", 6)
    idle.call("work", "idle", 6)
    check_units(path, victim.acknowledged + third.acknowledged + idle.acknowledged)


def test_the_next_owner_of_a_slot_removes_a_killed_rolls_files(victim, spawn, tmp_path):
    path, idle, third = tmp_path / "j", spawn(), spawn()
    idle.call("open_writer", "idle", str(path), {})
    victim.call("arm", "roll.completed=kill@1")
    victim.dies("work", "victim", 30, "direct")
    assert list(path.glob("next.*"))
    third.call("open_writer", "third", str(path), {})
    assert not list(path.glob("next.*"))


def test_the_next_lone_opener_removes_a_killed_rolls_files(victim, spawn, tmp_path):
    """Its slot is not the lowest one, and perhaps never taken again."""
    path, second = tmp_path / "j", spawn()
    second.call("open_writer", "second", str(path), {})
    second.call("arm", "roll.completed=kill@1")
    second.dies("work", "second", 30)
    victim.call("close", "direct")
    victim.call("close", "victim")
    assert list(path.glob("next.1.*"))
    with jlog.Writer(path):
        assert not list(path.glob("next.*"))


@pytest.mark.parametrize("point", ["file.allocate", "roll.completed", "file.rename", "roll.renamed"])
def test_a_roll_killed_between_its_steps_leaves_nothing_behind(spawn, tmp_path, point):
    """The segments are as small as they can be."""
    path, victim = tmp_path / "j", spawn()
    victim.call("open_writer", "victim", str(path), {"precommit": 4 << 10, "segment_bytes": 4 << 10})
    victim.call("append", "victim", 60, 100)
    victim.call("arm", f"{point}=kill@1")
    victim.dies("append", "victim", 200, 100)
    check_units(path, victim.acknowledged)
    with jlog.Writer(path):
        assert not list(path.glob("next.*"))
    check_units(path, victim.acknowledged)
    segments = {segment.first_sequence for segment in jlog.Journal(path).segments()}
    assert segments == {int(file.stem) for file in path.glob("*.seg")}


@pytest.mark.parametrize("point", ["file.allocate", "file.write", "file.sync", "file.read", "file.sync_directory"])
@pytest.mark.parametrize("visit", [1, 2, 3, 4])
def test_a_creation_killed_half_way_is_made_again(spawn, tmp_path, point, visit):
    path, victim = tmp_path / "j", spawn(f"{point}=kill@{visit}")
    calls = [("open_writer", "victim", str(path), OPTIONS), ("append", "victim", 3), ("close", "victim")]
    any(victim.may_die(*call) for call in calls)
    with jlog.Writer(path) as writer:
        writer.append(values_of("w", 0)[0])
    check_units(path, victim.acknowledged)


@pytest.mark.parametrize("point", ["close.before_write", "close.written", "rotate.filled", "file.write", "file.write_block"])
@pytest.mark.parametrize("visit", [1, 2])
def test_a_close_killed_half_way_loses_nothing(victim, tmp_path, point, visit):
    path = tmp_path / "j"
    victim.call("close", "direct")
    victim.call("arm", f"{point}=kill@{visit}")
    victim.may_die("close", "victim")
    before = check_units(path, victim.acknowledged)
    assert len(before) == 3
    with jlog.Writer(path) as writer:
        assert writer.append(values_of("w", 0)[0]) == 3
    assert not jlog.Journal(path).gaps()


@pytest.mark.parametrize("unlinked", [0, 1, 2, 3])
def test_a_cleaning_killed_half_way_is_finished_by_the_next(victim, spawn, tmp_path, unlinked):
    """Retention removes what the subscriber has passed, killed before one more of its files is unlinked."""
    path = tmp_path / "j"
    victim.call("work", "victim", 20)
    with jlog.Reader(path, "billing") as reader:
        end = len(list(reader)) - 5
    victim.call("clean_and_die_prepared", str(path), "billing", end)
    victim.dies("clean_and_die", str(path), unlinked)
    journal = jlog.Journal(path)
    first = journal.first_sequence
    assert 0 < first <= end
    check_units(path, victim.acknowledged, first_sequence=first)
    with pytest.raises(jlog.PositionLost):
        jlog.Reader(path, start=0)
    journal.clean()
    assert min(int(file.stem) for file in path.glob("*.seg")) == first
    check_units(path, victim.acknowledged, first_sequence=first)
    assert read_all(path)[0][0] == first


@pytest.mark.parametrize("point", ["file.write", "file.sync"])
@pytest.mark.parametrize("visit", [1, 2])
def test_a_killed_cleaning_has_removed_nothing_or_says_so(victim, tmp_path, point, visit):
    path = tmp_path / "j"
    victim.call("work", "victim", 20)
    with jlog.Reader(path, "billing") as reader:
        end = len(list(reader)) - 5
    victim.call("clean_and_die_prepared", str(path), "billing", end)
    victim.call("arm", f"{point}=kill@{visit}")
    victim.may_die("clean", str(path))
    first = jlog.Journal(path).first_sequence
    check_units(path, victim.acknowledged, first_sequence=first)
    jlog.Journal(path).clean()
    assert jlog.Journal(path).first_sequence > 0


def test_an_append_works_once_the_kernel_has_ended_a_lock_holder(victim, spawn, tmp_path):
    path, others = tmp_path / "j", [spawn() for _ in range(3)]
    for i, other in enumerate(others):
        other.call("open_writer", f"o{i}", str(path), {})
    victim.call("arm", "append.encoded=kill@1")
    for i, other in enumerate(others):
        other.start("append", f"o{i}", 200, 100)
    victim.dies("append", "victim", 1, 100)
    for other in others:
        other.result()
    check_units(path, victim.acknowledged + [unit for other in others for unit in other.acknowledged])

"""A file of records becomes a segment: the process that ingests it is killed at every step."""

import errno
import os
from pathlib import Path

import pytest

import jlog
from processes.units import check_units, values_of

pytestmark = pytest.mark.usefixtures("failpoints")

END = values_of("end", 0)[0]
OPTIONS = {"precommit": 4 << 10, "segment_bytes": 256 << 10}
POINTS = [
    ("ingest.linked", 1),
    ("ingest.completed", 1),
    ("file.write", 1),
    ("file.write", 3),
    ("file.sync", 1),
    ("file.rename", 1),
    ("roll.completed", 1),
    ("roll.renamed", 1),
    ("rotate.before", 1),
    ("rotate.emptied", 1),
    ("rotate.filled", 1),
    ("rotate.turned", 1),
]
FAILING = [("file.write", 1), ("file.sync", 1), ("file.rename", 1), ("roll.renamed", 1)]


@pytest.fixture
def victim(spawn, tmp_path):
    child = spawn()
    child.call("open_writer", "victim", str(tmp_path / "j"), OPTIONS)
    child.call("append", "victim", 3)
    child.call("build", "victim")
    child.call("flush", "victim")
    return child


@pytest.mark.parametrize(("point", "visit"), POINTS)
def test_killed_beside_another_all_of_the_file_is_in_or_nothing(victim, spawn, tmp_path, point, visit):
    path, other, reader = tmp_path / "j", spawn(), spawn()
    other.call("open_writer", "other", str(path), {})
    reader.start("follow", str(path), END.decode())
    reader.wait_for("following")
    victim.call("arm", f"{point}=kill@{visit}")
    victim.dies("ingest", "victim")
    other.call("append", "other", 3)
    check_units(path, victim.acknowledged + other.acknowledged)
    other.call("build", "other")
    other.call("ingest", "other")
    other.call("append", "other", 3)
    with jlog.Writer(path) as writer:
        writer.append(END)
    reader.result()
    assert reader.records == check_units(path, victim.acknowledged + other.acknowledged)


@pytest.mark.parametrize(("point", "visit"), POINTS)
def test_killed_alone_all_of_the_file_is_in_or_nothing(victim, spawn, tmp_path, point, visit):
    path, successor = tmp_path / "j", spawn()
    victim.call("arm", f"{point}=kill@{visit}")
    victim.dies("ingest", "victim")
    before = check_units(path, victim.acknowledged)
    successor.call("open_writer", "successor", str(path), {})
    successor.call("append", "successor", 3)
    successor.call("build", "successor")
    successor.call("ingest", "successor")
    successor.call("close", "successor")
    records = check_units(path, victim.acknowledged + successor.acknowledged)
    assert records[: len(before)] == before
    assert not [name for name in os.listdir(path) if name.startswith("next.")]


@pytest.mark.parametrize("second", ["takeover.taken", "takeover.derived", "takeover.unlinked"])
def test_a_killed_takeover_is_taken_over(victim, spawn, tmp_path, second):
    path, taker, third = tmp_path / "j", spawn(), spawn()
    taker.call("open_writer", "taker", str(path), {})
    third.call("open_writer", "third", str(path), {})
    victim.call("arm", "roll.renamed=kill@1")
    victim.dies("ingest", "victim")
    taker.call("arm", f"{second}=kill@1")
    taker.dies("append", "taker")
    third.call("append", "third", 3)
    check_units(path, victim.acknowledged + taker.acknowledged + third.acknowledged)


@pytest.mark.parametrize(("point", "visit"), FAILING)
def test_an_ingestion_with_a_failed_call_has_added_nothing(victim, tmp_path, point, visit):
    """The file can be ingested again."""
    path = tmp_path / "j"
    victim.call("arm", f"{point}=5@{visit}")
    with pytest.raises(Exception, match=os.strerror(errno.EIO)):
        victim.call("ingest", "victim")
    check_units(path, victim.acknowledged)
    victim.call("arm", "")
    victim.call("ingest", "victim")
    victim.call("append", "victim", 3)
    check_units(path, victim.acknowledged)
    assert Path(f"{path}.victim").exists()

"""After a failed fdatasync no record counts as synced because it can be read: the kernel marks pages as clean that it could
not write. The disk has what was synced before, and what has been written and synced again."""

from __future__ import annotations

import os

import pytest

from crash.tampering import SegmentFile, newest_segment, synced_mark_of, zero, zero_bodies
from faults import shim
from faults.disk import Disk
from faults.recording import read_log
from jlog import Journal, Reader, Writer
from processes.units import read_all

pytestmark = pytest.mark.usefixtures("failpoints")

BLOCKS = 4


@pytest.fixture
def root(spawn, tmp_path, raised_by):
    """A journal with a synced block, and blocks after it that an fdatasync has failed to write; all processes are dead."""
    child, path = spawn(), tmp_path / "root" / "j"
    path.parent.mkdir()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    child.call("append", "w", 5, 100)
    child.call("sync", "w")
    for _ in range(BLOCKS):
        child.call("append", "w", 5, 100)
        child.call("flush", "w")
    child.call("arm", "file.sync=5@1")
    assert raised_by(child, "sync", "w").errno == 5
    child.kill()
    return path.parent


def content_of(root):
    found = {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}
    return dict(sorted(found.items()))


def never_written(root, after=None):
    """The disk: of the newest segment it has what lies before this offset, by default the mark's."""
    path = root / "j"
    newest = newest_segment(path)
    offset = synced_mark_of(path)[1] if after is None else after
    content = content_of(root)
    name = str(newest.relative_to(root))
    content[name] = content[name][:offset].ljust(len(content[name]), b"\0")
    disk = Disk(content)
    disk.identify({name: os.stat(root / name).st_ino for name in content})
    return disk


def drop(path, block):
    """The kernel cannot read it any more."""
    file = SegmentFile(str(path), int(newest_segment(path).stem), bytes.fromhex(Journal(path).uuid))
    found = [b for b in file.blocks() if b.first_sequence >= synced_mark_of(path)[2]][block]
    zero(newest_segment(path), found.offset, 72 + found.stored_bytes)
    zero_bodies(path)


def under_shim(root, log):
    """Returns the command that starts a process whose writes below `root` are recorded."""
    under = {"LD_PRELOAD": shim.compiled(), "JLOG_SHIM_BELOW": os.path.realpath(root), "JLOG_SHIM_LOG": log}
    return ("env", *(f"{name}={value}" for name, value in under.items()))


def after_power_loss(disk, lost):
    """The directory, made of what the disk has for certain."""
    for name, content in disk.state("nothing").items():
        (lost / name).mkdir(parents=True) if content is None else (lost / name).write_bytes(content)
    return lost


@pytest.mark.parametrize("killed_at", ["", "begun", "written_again", "quarantined", "cut", "segment_created", "marked"])
@pytest.mark.parametrize("gone", [2, BLOCKS - 1])
def test_recovery_syncs_what_it_keeps_before_the_mark_moves(spawn, root, tmp_path, gone, killed_at):
    path, log = root / "j", tmp_path / "log"
    disk = never_written(root)
    drop(path, gone)
    within = under_shim(root, log)
    if killed_at:
        victim = spawn(f"recovery.{killed_at}=kill@1", within)
        victim.dies("open_writer", "x", str(path), {})
    opener = spawn("", within)
    opener.call("open_writer", "x", str(path), {})
    opener.kill()
    kept = read_all(path)
    assert len(kept) == 5 + 5 * gone
    assert synced_mark_of(path)[2] >= len(kept)
    for event in read_log(log, root):
        disk.follow(event)
    assert read_all(after_power_loss(disk, tmp_path / "lost") / "j") == kept


def without_bounds(path):
    zero(path / "bounds")


def with_a_damaged_block(path):
    drop(path, 1)
    zero(path / "precommit")


@pytest.mark.parametrize("damage", [without_bounds, with_a_damaged_block])
def test_repair_syncs_what_it_keeps_before_the_mark_moves(spawn, root, tmp_path, damage):
    path, log = root / "j", tmp_path / "log"
    disk = never_written(root)
    damage(path)
    repairer = spawn("", under_shim(root, log))
    assert repairer.call("repair", str(path))
    kept = read_all(path)
    for event in read_log(log, root):
        disk.follow(event)
    assert read_all(after_power_loss(disk, tmp_path / "lost") / "j") == kept


def test_cleaning_syncs_the_state_it_keeps_before_it_removes(spawn, tmp_path):
    root, log = tmp_path / "root", tmp_path / "log"
    path, child = root / "j", spawn()
    root.mkdir()
    with Writer(path) as writer, Reader(path, "billing"):
        writer.extend([b"first"], state={b"key": b"kept"})
        writer.roll()
    child.call("clean_and_die_prepared", str(path), "billing", 1)
    disk = never_written(root, after=0)
    assert spawn("", under_shim(root, log)).call("clean", str(path)) == [0]
    for event in read_log(log, root):
        disk.follow(event)
    assert Journal(after_power_loss(disk, tmp_path / "lost") / "j").state() == {b"key": b"kept"}

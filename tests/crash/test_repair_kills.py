"""A repair that is killed at any step has lost no record that could be read, and the next one does it all."""

from __future__ import annotations

import os
import shutil
from itertools import count

import pytest

import jlog
from crash.ruins import Whole, check, check_goes_on, closed, left_open
from crash.tampering import copy, copy_of_killed, flip, zero

pytestmark = pytest.mark.damage


def blocks_of(path, segment):
    return [block for file, block in jlog.Journal(path).blocks() if file.endswith(f"{segment:020d}.seg")]


def in_the_middle_of_a_segment(path):
    flip(path / "00000000000000000008.seg", blocks_of(path, 8)[2].offset + 80, 3)


def in_the_first_segment(path):
    flip(path / "00000000000000000000.seg", 400, 0)


def where_segments_begin(path):
    """A header, and the state of another segment."""
    flip(path / "00000000000000000000.seg", 50, 3)
    flip(path / "00000000000000000008.seg", 96 + 20, 3)
    flip(path / "00000000000000000016.seg", blocks_of(path, 16)[1].offset + 72, 0)


def a_segment_and_both_copies_of_all(path):
    os.unlink(path / "00000000000000000008.seg")
    for name in ("bounds", "subscribers/billing"):
        zero(path / name)


def the_end_and_whose_it_is(path):
    os.unlink(path / "journal.meta")
    flip(path / "00000000000000000008.seg", blocks_of_source(path)[-1], 0)


def blocks_of_source(path):
    """Offsets of the whole blocks in the last segment."""
    found, at, content = [], 0, (path / "00000000000000000008.seg").read_bytes()
    while (at := content.find(b"JBLK", at)) >= 0:
        found.append(at)
        at += 4
    return found


RUINS = {
    "the middle of a segment, synced": (closed, copy, in_the_middle_of_a_segment),
    "beginnings of segments": (closed, copy_of_killed, where_segments_begin),
    "a missing segment, bounds and a position": (closed, copy, a_segment_and_both_copies_of_all),
    "with records in the buffer": (left_open, copy_of_killed, in_the_first_segment),
    "with records in the buffer, after a power loss": (left_open, copy, in_the_first_segment),
    "the last segment and journal.meta": (left_open, copy_of_killed, the_end_and_whose_it_is),
}  # fmt: skip


@pytest.fixture(name="ruin", params=RUINS.values(), ids=RUINS)
def each_ruin(request, in_memory):
    make, copying, damage = request.param
    writer = make(in_memory / "j")
    whole = Whole(in_memory / "j", copying, in_memory / "scratch")

    def again(path=in_memory / "ruin"):
        whole.ruin(path)
        damage(path)
        return path

    yield whole, again
    if writer is not None:
        writer.close()


def test_a_repair_that_is_killed_at_any_step_is_done_by_the_next(spawn, ruin):
    whole, again = ruin
    child = spawn()
    for step in count():
        path = again()
        survivors = whole.survivors(path)
        killed = child.call("repair_and_die", str(path), step)
        assert jlog.Journal.repair_at(path).ok
        found = check(whole, path, survivors)
        if not killed:
            break
    assert step > 10
    check_goes_on(whole, path, found)


def test_two_repairs_that_are_killed_are_done_by_the_third(spawn, ruin):
    whole, again = ruin
    child = spawn()
    for step in (3, 6, 9, 12, 15, 18):
        path = again()
        survivors = whole.survivors(path)
        child.call("repair_and_die", str(path), step)
        child.call("repair_and_die", str(path), step // 2 + 1)
        assert jlog.Journal.repair_at(path).ok
        check(whole, path, survivors)


def test_a_writer_after_a_killed_repair_loses_nothing_synced(spawn, in_memory):
    closed(in_memory / "j")
    whole = Whole(in_memory / "j", copy, in_memory / "scratch")
    child = spawn()
    for step in count():
        path = whole.ruin(in_memory / "ruin")
        in_the_middle_of_a_segment(path)
        survivors = whole.survivors(path)
        killed = child.call("repair_and_die", str(path), step)
        with jlog.Writer(path) as writer:
            sequence = writer.append(b"in between")
        assert jlog.Journal.repair_at(path).ok
        whole.records[sequence] = b"in between"
        assert sequence in check(whole, path, survivors)
        del whole.records[sequence]
        shutil.rmtree(path)
        if not killed:
            break

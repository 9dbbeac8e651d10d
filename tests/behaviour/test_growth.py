"""A commit and a roll do as little in a large journal as in a small one. System calls are counted, since times are noise."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import jlog
from jlog.positions.position_files import FEW
from patience import HUNG_SECONDS

SEGMENTS = 100
COMMITS = 200

COMMITS_PROGRAM = """
import sys
import jlog

listed = 0

def count(event, _):
    global listed
    listed += event in ("open", "os.listdir", "os.scandir")

def calls():
    fields = dict(line.split(": ") for line in open("/proc/thread-self/io"))
    return int(fields["syscr"]), int(fields["syscw"])

path, commits = sys.argv[1], int(sys.argv[2])
with jlog.Writer(path) as writer, jlog.Reader(path, "fast") as reader:
    first = writer.extend([b"x"] * commits)
    for _ in reader:
        pass
    reader.commit(first)
    sys.addaudithook(count)
    before, listed = calls(), 0
    for sequence in range(first, first + commits):
        reader.commit(sequence)
    found, after = listed, calls()
    print(found, after[0] - before[0], after[1] - before[1])
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A journal with many segments, all of which are held back by a subscriber that stands still."""
    path = tmp_path / "large"
    with jlog.Writer(path, segment_bytes=4096) as writer:
        jlog.Journal(path).add_subscriber("slow")
        for _ in range(SEGMENTS):
            writer.append(bytes(3000))
    return path


def test_a_commit_that_frees_nothing_is_one_write(large: Path) -> None:
    """It lists no directory, and reads no other position, though another subscriber holds all segments back."""
    program = [sys.executable, "-c", COMMITS_PROGRAM, str(large), str(COMMITS)]
    done = subprocess.run(program, capture_output=True, text=True)
    listed, reads, writes = map(int, done.stdout.split())
    assert listed == 0
    assert writes == COMMITS
    assert reads < 20  # those of /proc itself


def test_the_slow_subscriber_frees_what_it_has_held(large: Path) -> None:
    with jlog.Reader(large, "fast") as fast, jlog.Reader(large, "slow") as slow:
        for reader in (fast, slow):
            for _ in reader:
                pass
        fast.commit()
        assert len(jlog.Journal(large).segments()) == SEGMENTS
        slow.commit()
        assert len(jlog.Journal(large).segments()) == 1


def test_a_commit_sees_that_the_slow_subscriber_has_moved_or_gone(large: Path) -> None:
    with jlog.Reader(large, "fast") as fast:
        for _ in fast:
            pass
        fast.commit()
        jlog.Journal(large).set_subscriber("slow", 50)
        fast.commit()
        assert jlog.Journal(large).first_sequence == 50
        jlog.Journal(large).remove_subscriber("slow")
        fast.commit()
        assert len(jlog.Journal(large).segments()) == 1


def reads_of_this_thread() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())
    return int(fields["syscr"])


def test_a_roll_beside_many_subscribers_reads_none_of_them(tmp_path: Path) -> None:
    """Another thread looks for what may be removed, and removes it."""
    path = tmp_path / "j"
    with jlog.Writer(path) as writer:
        journal = jlog.Journal(path)
        for number in range(4 * FEW):
            journal.add_subscriber(f"s{number}", start="end")
        writer.append(b"x")
        writer.roll()
        writer.append(b"x")
        before = reads_of_this_thread()
        writer.roll()
        assert reads_of_this_thread() - before < FEW
        for number in range(4 * FEW):
            journal.set_subscriber(f"s{number}", 2)
        writer.append(b"x")
        writer.roll()
        end = time.monotonic() + HUNG_SECONDS
        while journal.first_sequence != 2:
            assert time.monotonic() < end
            writer.append(b"x")  # gives way to the thread that cleans

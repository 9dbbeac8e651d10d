"""A record was appended while the clock was years ahead. Then the clock is right again."""

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

import jlog
from behaviour.journals import records
from elsewhere import python

YEARS = 12 * 365 * 86_400  # seconds
MINUTE_US = 60_000_000

# Appends with the clock as it is, years ahead, and right again, and keeps the journal open until the log has said it. The core
# reads the clock by the processor's counter, and looks at the kernel's clock again after a moment: each step waits for that.
PROGRAM = """
import logging, os, sys, threading, time, jlog

class Said(logging.Handler):
    event = threading.Event()

    def emit(self, record):
        print(record.getMessage(), file=sys.stderr)
        if "ahead of the clock" in record.getMessage():
            self.event.set()

def append_at(seconds):
    with open(os.environ["CLOCK_STEP"], "w") as file:
        file.write(str(seconds))
    last = None
    while last is None or abs(last - time.time()) > 60:
        with jlog.Writer(sys.argv[1] + ".other") as other:
            other.append(b"")
        last = list(jlog.Reader(sys.argv[1] + ".other"))[-1].timestamp_us / 1e6
        jlog.Journal.delete(sys.argv[1] + ".other")
    writer.append(b"value")

logging.getLogger("jlog").addHandler(Said())
with jlog.Writer(sys.argv[1]) as writer:
    append_at(0)
    append_at(int(sys.argv[2]))
    append_at(0)
    assert Said.event.wait(60)
"""


@pytest.fixture
def wrong(path: str, tmp_path: Path) -> str:
    """A journal of three records, and what the log said about it."""
    library = tmp_path / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source], check=True)
    done = python(PROGRAM, path, YEARS, LD_PRELOAD=str(library), CLOCK_STEP=str(tmp_path / "step"))
    assert done.returncode == 0, done.stderr
    return done.stderr


def ahead_us(path: str) -> list[int]:
    now_us = time.time_ns() // 1000
    return [record.timestamp_us - now_us for record in records(path)]


def test_the_log_info_and_verify_say_it(wrong: str, path: str) -> None:
    assert "ahead of the clock" in wrong
    assert "jlogtool roll" in wrong
    assert wrong.count("\n") == 1
    assert jlog.Journal(path).info()["ahead_seconds"] > YEARS - 3600
    assert jlog.Journal(path).verify().ahead_seconds > YEARS - 3600
    for command in ("info", "verify"):
        done = subprocess.run([sys.executable, "-m", "jlog.cli", command, path], capture_output=True, text=True, check=True)
        assert "ahead of the clock: the clock was or is wrong" in done.stdout
    found = subprocess.run(
        [sys.executable, "-m", "jlog.cli", "doctor", path], capture_output=True, text=True, check=False
    ).stdout
    assert "ahead of the clock" in found
    assert "jlogtool roll" in found
    done = subprocess.run(
        [sys.executable, "-m", "jlog.cli", "verify", "--json", path], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["ahead_seconds"] > YEARS - 3600


@pytest.mark.usefixtures("wrong")
def test_a_copy_says_it_too(path: str, tmp_path: Path) -> None:
    """It has no pre-commit buffer of a boot."""
    copy = jlog.Journal(path).backup(str(tmp_path / "copy"))
    assert copy.info()["ahead_seconds"] > YEARS - 3600


@pytest.mark.usefixtures("wrong")
def test_after_a_roll_times_are_the_clocks(path: str) -> None:
    with jlog.Writer(path) as writer:
        writer.append(b"not yet")
        writer.roll()
        writer.append(b"right")
        writer.extend([b"right"] * 2)
    with jlog.Writer(path, precommit=0) as writer:
        writer.append(b"right")
    found = ahead_us(path)
    assert [at > MINUTE_US for at in found] == [False, True, True, True, False, False, False, False]
    assert jlog.Journal(path).info()["ahead_seconds"] == jlog.Journal(path).verify().ahead_seconds == 0
    assert jlog.Journal(path).verify().ok


@pytest.mark.usefixtures("wrong")
def test_a_segment_of_the_future_goes_by_age_as_if_written_when_the_next_one_was_begun(path: str) -> None:
    with jlog.Writer(path, retention=jlog.Retention(max_age=timedelta(microseconds=1))) as writer:
        writer.roll()
        writer.append(b"right")
        jlog.Journal(path).clean()
    assert jlog.Journal(path).first_sequence == 3


@pytest.mark.usefixtures("wrong")
def test_the_first_record_at_a_time_is_found_in_segments_that_go_back_in_time(path: str) -> None:
    """It is the one with the wrong time, or comes before it."""
    with jlog.Writer(path) as writer:
        writer.roll()
        writer.append(b"right")
    journal, found = jlog.Journal(path), records(path)
    for record in found:
        first = next(at.sequence for at in found if at.timestamp_us >= record.timestamp_us)
        assert journal.find(record.timestamp) == first


def test_records_that_only_the_buffer_holds_stop_neither_info_nor_verify(path: str, tmp_path: Path) -> None:
    """The page of another journal's place does not count, and no block has them yet."""
    copy = str(tmp_path / "copy")
    with jlog.Writer(path) as writer:
        writer.append(b"in the buffer")
        shutil.copytree(path, copy)
    assert jlog.Journal(copy).info()["ahead_seconds"] == 0
    assert jlog.Journal(copy).verify().ahead_seconds == 0

"""System calls that fail below the public ones: an error with errno and path, nothing half done, and on it goes.
faults/calls.py, by hand, lets every one of them fail."""

from __future__ import annotations

import json
import subprocess

import pytest

from faults import shim
from faults.public import CALLS

pytestmark = pytest.mark.usefixtures("failpoints")
NAMES = sorted(CALLS)
FULL_DISK = (
    "append",
    "append once",
    "append that rolls",
    "close",
    "commit durably",
    "extend large",
    "finish durably",
    "open",
    "open after a power loss",
    "reject",
    "work",
)

CUT_OFF = (
    "append once",
    "append that rolls",
    "clean",
    "clean ids",
    "close",
    "commit",
    "extend with state",
    "open",
    "finish durably",
    "read on",
    "reject",
    "rewind",
    "set a shared subscriber",
    "work",
)


def sweep(calls: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return shim.run("faults.calls", *(part for call in calls for part in ("--call", call)), *options)


@pytest.mark.parametrize("turn", [0, 1])
def test_a_call_with_a_failing_system_call_can_be_made_again(turn):
    done = sweep(NAMES[turn::2], "--faults", "3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["faults"] > 40


def test_a_file_read_in_pieces_is_read_as_a_whole():
    """A short read of a header would copy a part of it, one of the buffer would lose what is in there."""
    calls = ["open after a failed sync", "open after a power loss", "back up", "repair"]
    done = sweep(calls, "--kind", "read", "--error", "SHORT", "--faults", "15")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("call", "kind", "at"),
    [("close", "truncate", "1"), ("checkpoint", "sync", "1"), ("rewind", "sync", "1"), ("open", "read", "1"),
     ("extend large", "open", "1"), ("ingest", "open", "2")],
)  # fmt: skip
def test_an_error_names_the_file(call, kind, at):
    done = sweep([call], "--fault", kind, at, "EIO")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["tmpfs", "ext2", "ext3", "ext4"])
def test_a_call_on_a_full_disk_raises_and_can_be_made_again(mount, kind):
    done = sweep(list(FULL_DISK), "--full-disk", "--folder", str(mount(kind, 3)))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["faults"] == len(FULL_DISK)


@pytest.mark.parametrize("kind", ["moment", "memory"])
def test_a_call_that_is_cut_off_anywhere_can_be_made_again(kind):
    """By a signal's handler that raises, or for want of memory: nothing is lost, and the process does not stay a writer."""
    done = sweep(list(CUT_OFF), "--kind", kind, "--faults", "3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["faults"] > 15

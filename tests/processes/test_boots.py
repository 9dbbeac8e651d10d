"""Processes of one kernel that are told different boot ids, as containers are, or none: they share a journal, and what they
see of it is the same. And a boot that is over is never taken for this one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import jlog
from crash.tampering import another_boot, copy, copy_of_killed
from processes.units import check_units, read_all, values_of

SMALL = {"precommit": 4 << 10, "segment_bytes": 64 << 10, "sync": "none"}
# In a mount namespace of its own; `exec` makes it the same process.
ANOTHER_BOOT = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"')
NO_BOOT = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs "$0" /proc && exec "$@"')


def tried(command: tuple[str, ...]) -> tuple[str, ...]:
    if os.geteuid() != 0 or subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to make mount namespaces: run it as root, in a container that may")
    return command


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[str, ...]:
    """The command that runs a process in a container with another boot id."""
    name = tmp_path / "boot_id"
    name.write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    return tried((*ANOTHER_BOOT, str(name)))


@pytest.fixture
def nowhere() -> tuple[str, ...]:
    """The same, with no boot id at all."""
    return tried((*NO_BOOT, "none"))


@pytest.fixture(params=["another boot id", "no boot id"])
def other(request: pytest.FixtureRequest) -> tuple[str, ...]:
    name = "elsewhere" if request.param == "another boot id" else "nowhere"
    found: tuple[str, ...] = request.getfixturevalue(name)
    return found


@pytest.fixture
def writer(spawn, path):
    """One that lives: five records are synced, five are flushed, five are in the buffer."""
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("append", "w", 5, 100)
    child.call("sync", "w")
    child.call("append", "w", 5, 100)
    child.call("flush", "w")
    child.call("append", "w", 5, 100)
    return child


def test_writers_of_two_boot_ids_write_beside_each_other(writer, spawn, path, other):
    second = spawn(within=other)
    second.call("open_writer", "x", str(path), {})
    for _ in range(3):
        second.call("append", "x", 20, 100)
        writer.call("append", "w", 20, 100)
    second.call("work", "x", 3)
    check_units(path, writer.acknowledged + second.acknowledged)
    writer.kill()
    second.call("work", "x", 3)
    third = spawn()
    third.call("open_writer", "y", str(path), {})
    third.call("work", "y", 3)
    check_units(path, writer.acknowledged + second.acknowledged + third.acknowledged)
    assert jlog.Journal(path).gaps() == []


def test_a_reader_of_another_boot_id_sees_living_writers_records(writer, spawn, path, other):
    """It sees what they publish, and what they sync."""
    reader = spawn(within=other)
    reader.call("open_reader", "all", str(path))
    reader.call("open_reader", "durable", str(path), True)
    assert reader.call("look_again", "all") == list(range(15))
    assert reader.call("look_again", "durable") == list(range(5))
    writer.call("sync", "w")
    writer.call("append", "w", 2)
    assert reader.call("look_again", "all") == [15, 16]
    assert reader.call("look_again", "durable") == list(range(5, 15))
    assert reader.call("sequences", str(path), True) == list(range(15))
    writer.kill()
    assert reader.call("look_again", "durable") == []  # no process outlives its boot: it knows what the page is
    assert reader.call("sequences", str(path)) == list(range(17))


def test_under_another_boot_id_only_known_syncs_are_durable(writer, spawn, path, other):
    """No writer is left; records are durable then if they are known to be synced."""
    reader = spawn(within=other)
    writer.kill()
    assert reader.call("sequences", str(path)) == list(range(15))
    assert reader.call("sequences", str(path), True) == list(range(5))
    second = spawn(within=other)
    second.call("open_writer", "x", str(path), {})  # which syncs what it finds
    assert reader.call("sequences", str(path), True) == list(range(15))
    check_units(path, writer.acknowledged)


@pytest.mark.parametrize("made", [copy, copy_of_killed])
def test_with_an_outdated_page_only_known_syncs_are_durable(writer, path, tmp_path, made):
    """Holds also on a machine that allows no other container."""
    found = made(path, tmp_path / "copy")
    another_boot(found)
    with jlog.Reader(found) as reader:
        assert len(list(reader)) == 15
    with jlog.Reader(found, durable_only=True) as reader:
        assert [record.sequence for record in reader] == list(range(5))
    assert jlog.Journal(found).stats().durable_end == 5


def test_an_opener_under_another_boot_id_gives_no_number_twice(writer, spawn, path, other):
    """It opens alone, and loses nothing."""
    before = read_all(path)
    writer.kill()
    for turn in range(3):
        second = spawn(within=other)
        second.call("open_writer", f"x{turn}", str(path), {})
        second.call("append", f"x{turn}", 5)
        assert second.acknowledged[0].sequence > before[-1][0]
        second.kill()
        before = check_units(path, [*writer.acknowledged, *second.acknowledged])
    with jlog.Writer(path) as last:
        assert last.append(values_of("y", 0)[0]) > before[-1][0]
    assert check_units(path, writer.acknowledged)[:-1] == before


def test_a_power_loss_without_a_boot_id_gives_no_number_twice(spawn, path, nowhere):
    """The disk has the journal as it was some records ago."""
    child = spawn(within=nowhere)
    child.call("open_writer", "w", str(path), SMALL)
    child.call("append", "w", 5, 100)
    on_disk = {file: file.read_bytes() for file in path.iterdir() if file.is_file()}
    child.call("append", "w", 5, 100)
    child.kill()
    for file, content in on_disk.items():
        file.write_bytes(content)  # the same inodes
    second = spawn(within=nowhere)
    second.call("open_writer", "x", str(path), {})
    second.call("append", "x", 3)
    assert second.acknowledged[0].sequence > child.acknowledged[-1].sequence
    check_units(path, [*child.acknowledged, *second.acknowledged], lost=5)


def test_a_process_without_a_boot_id_knows_its_page_again(spawn, path, nowhere):
    child = spawn(within=nowhere)
    for turn in range(3):
        child.call("open_writer", f"w{turn}", str(path), SMALL)
        child.call("append", f"w{turn}", 5)
        child.call("close", f"w{turn}")
    check_units(path, child.acknowledged)
    assert jlog.Journal(path).gaps() == []

"""`jlogtool doctor` finds what is wrong or will be, names what to do, and has an exit code for monitoring."""

from __future__ import annotations

import os
import resource
import shutil
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

import jlog
from cli.command import run
from crash.tampering import another_boot, change, copy_of_killed
from filesystems import CannotMount, mounted
from jlog.cli.commands.doctor import examine, examine_machine

DAY = 24 * 3600


@pytest.fixture
def later(monkeypatch):
    """Sets the clock of this process's Python code, by which idle times are counted; the core's goes on as it is."""
    real = time.time_ns
    return lambda seconds: monkeypatch.setattr(time, "time_ns", lambda: real() + seconds * 10**9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with a sealed segment, and a record in the open one."""
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b"tea"] * 100)
        writer.roll()
        writer.append(b"coffee")
    return tmp_path / "journal"


def checks(path: Path) -> list[str]:
    return [finding.check for finding in examine(str(path)) if finding.check != "disk-space"]  # of the machine of the test


def test_of_a_sound_journal_nothing_is_found(path):
    jlog.Journal(path).add_subscriber("billing")
    assert checks(path) == []


@pytest.mark.parametrize("timestamp_us", [-(1 << 63), (1 << 63) - 1])
def test_a_time_of_no_calendar_is_examined(path, timestamp_us):
    with jlog.Writer(path.with_name("other")) as writer:
        writer.append(b"tea", timestamp_us=timestamp_us)
    assert checks(path.with_name("other")) == (["clock"] if timestamp_us > 0 else [])


def test_a_subscriber_that_does_not_come_back_pins_the_disk(path, later):
    jlog.Journal(path).add_subscriber("billing", start=50)
    later(2 * DAY)
    (finding,) = [found for found in examine(str(path)) if found.check != "disk-space"]
    assert finding.check == "position-pins-disk"
    assert finding.found.startswith("subscriber 'billing' has not moved for 2d00h, and holds back ")
    assert f"jlogtool subscriber rm {path} billing" in finding.advice


def test_a_forgotten_checkpoint_pins_the_disk_too(path, later):
    jlog.Journal(path).set_checkpoint("before release", 50)
    later(2 * DAY)
    (finding,) = [found for found in examine(str(path)) if found.check != "disk-space"]
    assert f"jlogtool checkpoint rm {path} 'before release'" in finding.advice


def test_a_reader_that_does_not_commit_is_stuck(path, later):
    with jlog.Reader(path, "billing"):
        later(700)
        assert checks(path) == ["position-stuck"]


def test_a_record_that_has_held_the_position_of_workers_for_an_hour_is_told(path, later):
    with jlog.Worker(path, "resize") as worker:
        held, *others = worker.take(3)
        worker.ack(others)
        later(3599)
        assert checks(path) == []
        later(3700)
        (finding,) = [found for found in examine(str(path)) if found.check != "disk-space"]
        assert finding.check == "record-holds-position"
        assert finding.found.startswith(f"record {held.sequence} has held the position of subscriber 'resize' for 1h")
        assert f"jlogtool work-ls {path} resize" in finding.advice


def test_an_expired_subscriber_is_told(path, later):
    jlog.Writer(path, retention=jlog.Retention(subscriber_max_age=timedelta(days=1))).close()
    jlog.Journal(path).add_subscriber("billing", start=50)
    later(2 * DAY)
    assert checks(path) == ["subscriber-expired"]


@pytest.mark.damage
def test_a_position_that_cannot_be_read_is_told(path):
    jlog.Journal(path).add_subscriber("billing")
    (path / "subscribers" / "billing").write_bytes(b"\xff" * 128)
    assert checks(path) == ["position-damaged"]


def test_a_clock_that_was_set_back_is_told(path):
    with jlog.Writer(path) as writer:
        writer.append(b"tomorrow", timestamp_us=time.time_ns() // 1000 + DAY * 10**6)
    assert checks(path) == ["clock"]


def test_records_that_a_subscriber_has_committed_and_no_sync_covers_are_told(path):
    with jlog.Writer(path, sync="none") as writer, jlog.Reader(path, "billing") as reader:
        writer.append(b"cake")
        reader.read()
        reader.commit()
        assert checks(path) == ["not-synced"]
        writer.sync()
        assert checks(path) == []


def test_a_limit_that_is_nearly_reached_is_told(path):
    with jlog.Writer(path, segment_bytes=64 << 10, retention=jlog.Retention(limit_bytes=1 << 20)) as writer:
        for _ in range(30):
            writer.append(bytes(32 << 10))
            writer.flush()
    assert checks(path) == ["limit"]


def test_a_copy_is_told(path):
    shutil.copytree(path, path.with_name("copy"))
    assert checks(path.with_name("copy")) == ["copy"]


def test_an_earlier_boot_whose_records_were_not_synced_is_told(path):
    with jlog.Writer(path, sync="none") as writer:
        writer.append(b"cake")
        found = copy_of_killed(path, path.with_name("after a power loss"))
    another_boot(found)
    assert "another-boot" in checks(found)


@pytest.mark.damage
def test_damage_at_an_end_of_a_segment_is_found_without_reading_all(path):
    sealed = jlog.Journal(path).segments()[0]
    change(sealed.path, sealed.size_bytes - 2, b"\xff\xff")
    result = run("doctor", path, "--json")
    assert (result.code, [found["check"] for found in result.json if found["check"] != "disk-space"]) == (3, ["damage"])


def test_space_that_lasts_less_than_a_day_is_told_with_the_time():
    try:
        with mounted("tmpfs", 4) as small:
            with jlog.Writer(small / "journal", precommit=0) as writer:
                writer.append(bytes(1 << 20), timestamp_us=time.time_ns() // 1000 - 7200 * 10**6)
            (finding,) = examine(str(small / "journal"))
    except CannotMount as error:
        pytest.skip(str(error))
    assert finding.check == "disk-space"
    assert " are free on its disk, enough for " in finding.found


def test_a_process_that_may_open_few_files_is_told():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        assert [finding.check for finding in examine_machine()] == ["descriptors"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_writer_that_has_nearly_all_its_files_open_is_named(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with jlog.Writer(path), ExitStack() as files:
        for _ in range(400):
            files.enter_context(open("/dev/null"))
        limit = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            (finding,) = [found for found in examine(str(path)) if found.check == "descriptors"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert finding.found.startswith(f"process {os.getpid()}, which writes to it, has ")


def test_the_command_says_what_to_do_and_ends_with_4(path):
    assert run("doctor", path.with_name("nothing")).code == 1
    with jlog.Writer(path) as writer:
        writer.append(b"tomorrow", timestamp_us=time.time_ns() // 1000 + DAY * 10**6)
    result = run("doctor", path)
    assert (result.code, result.err) == (4, "")
    assert b"clock: the newest record is 23h59m in the future" in result.out

"""A repair that finds no space says so and has lost nothing that could be read; with space, the next one does it all."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from itertools import count

import pytest

import jlog
import oracle
from crash.ruins import check, check_goes_on
from crash.test_repair_kills import each_ruin  # noqa: F401

pytestmark = pytest.mark.damage

CALLS = ("pwrite", "copy_file_range", "mkdir", "fsync", "fdatasync", "rename")
POINTS = ("file.write", "file.sync", "file.sync_directory")


def refused(path):
    """Returns whether the repair raised an error that says that there is no space, and where."""
    try:
        assert jlog.Journal.repair_at(path).ok
    except OSError as error:
        if error.errno != errno.ENOSPC or str(path) not in str(error):
            raise
        return True
    return False


def fill(ballast, left):
    """All of the disk but so many bytes."""
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
        os.ftruncate(file.fileno(), max(0, os.fstat(file.fileno()).st_size - left))


def test_a_repair_on_a_full_disk_goes_on_when_there_is_space(ruin, mount):
    """It loses nothing."""
    whole, again = ruin
    disk = mount("tmpfs", 1)
    for pages in count():
        path, ballast = again(disk / "j"), disk / "ballast"
        survivors = whole.survivors(path)
        fill(ballast, pages << 12)
        failed = refused(path)
        ballast.unlink()
        if failed:
            assert jlog.Journal.repair_at(path).ok
        check(whole, path, survivors)
        shutil.rmtree(path)
        if not failed:
            break
    assert pages > 0


@pytest.mark.parametrize("name", CALLS)
def test_a_repair_loses_nothing_whichever_call_finds_no_space(ruin, in_memory, monkeypatch, name):
    whole, again = ruin
    call = getattr(os, name)
    for number in count():
        path = again()
        survivors = whole.survivors(path)
        calls = count()

        def fails(*arguments, number=number, calls=calls, **named):
            if next(calls) < number:
                return call(*arguments, **named)
            if name == "pwrite":  # half of it is in the file
                call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], arguments[2])
            said = arguments[:1] if name in ("mkdir", "rename") else ()  # the others know a descriptor alone
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *said)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            failed = refused(path)
        if not failed:
            break
        assert jlog.Journal.repair_at(path).ok
        check(whole, path, survivors)
    check_goes_on(whole, path, check(whole, path, survivors))


@pytest.mark.parametrize("name", POINTS)
def test_a_repair_loses_nothing_where_the_core_finds_no_space(ruin, in_memory, spawn, name):
    whole, again = ruin
    child = spawn()
    for number in count(1):
        path = again()
        survivors = whole.survivors(path)
        if not child.call("repair_fails", str(path), f"{name}={errno.EDQUOT}@{number}"):
            break
        assert jlog.Journal.repair_at(path).ok
        check(whole, path, survivors)
    check(whole, path, survivors)


def test_writes_that_are_short_are_gone_on_with(ruin, in_memory, monkeypatch):
    whole, again = ruin
    path = again()
    survivors = whole.survivors(path)
    write, share = os.pwrite, os.copy_file_range
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda fd, content, at: write(fd, bytes(content)[:7], at))
        patched.setattr(os, "copy_file_range", lambda source, target, size, *at: share(source, target, min(size, 11), *at))
        assert jlog.Journal.repair_at(path).ok
    check_goes_on(whole, path, check(whole, path, survivors))
    oracle.check_journal(path)

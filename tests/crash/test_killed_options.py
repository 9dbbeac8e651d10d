"""A process is killed while it changes a journal's options: they are the old ones or the new ones, for everybody."""

import itertools
import multiprocessing
import os
import shutil
import signal

import pytest

import jlog
from crash.tampering import another_boot, copy
from jlog.system import files
from processes.units import read_all

OLD = {
    "compression": "none",
    "segment_bytes": 8 << 10,
    "sync": "none",
    "retention": jlog.Retention(delete_read=False),
}
NEW = {
    "compression": "lz4",
    "segment_bytes": 1 << 20,
    "sync": "append",
    "sync_interval": 7.0,
    "roll": "weekly",
    "retention": jlog.Retention(max_bytes=1 << 30),
}
CALLS = ("open", "pwrite", "write", "fsync", "fchmod", "ftruncate", "rename", "unlink", "close")


def die_at(number, calls=CALLS):
    """Kills at the call with this number of those that the library makes from Python; a write is half done by then."""
    numbers = itertools.count(1)

    def dying(name, call):
        def do(*arguments, **options):
            if next(numbers) == number:
                if name in ("write", "pwrite"):
                    fd, content, *place = arguments
                    call(fd, bytes(content)[: len(content) // 2], *place)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return do

    for name in calls:
        setattr(os, name, dying(name, getattr(os, name)))
    if "open" in calls:
        files.OpenFile = dying("open", files.OpenFile)


def change_options(path, number):
    die_at(number)
    jlog.Writer(path, **NEW).close()


def is_killed(function, path, number):
    """False where the function makes fewer calls."""
    process = multiprocessing.get_context("fork").Process(target=function, args=(path, number))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def check_goes_on(path, either):
    """Appends with the options that are there now, which are all of one sort."""
    found = jlog.Journal(path).options
    assert found in either
    with jlog.Writer(path, lock_timeout=100) as writer:
        writer.flush()
        writer.append(b"compressed if that is so. " * 200)
        writer.flush()
    assert jlog.Journal(path).options == found
    *_, (_, block) = jlog.Journal(path).blocks()
    assert block.codec == ("none", "lz4").index(found.compression)
    return found


@pytest.mark.parametrize("alive", [False, True], ids=["alone", "beside a writer"])
def test_a_killed_change_of_options_is_made_wholly_or_not_at_all(tmp_path, alive):
    path = tmp_path / "j"
    either = []
    for options in (OLD, {**OLD, **NEW}):
        jlog.Writer(path, **options).close()
        either.append(jlog.Journal(path).options)
        shutil.rmtree(path)
    seen = []
    for number in itertools.count(1):
        writer = jlog.Writer(path, **OLD)
        writer.append(b"before")
        if not alive:
            writer.close()
        if not is_killed(change_options, path, number):
            break
        lost = copy(path, tmp_path / "lost")
        another_boot(lost)
        for journal in (path, lost):
            seen.append(check_goes_on(journal, either))
            assert [value[:6] for _, value in read_all(journal)] == [b"before", b"compre"]
            assert jlog.Journal(journal).verify().ok
        if alive:
            writer.append(b"after")
            writer.close()
        shutil.rmtree(path)
    writer.close()
    assert number > 10
    assert all(options in seen for options in either)
    assert jlog.Journal(path).options == either[1]

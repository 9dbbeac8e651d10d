"""Moments at which a call meets another one: of a signal's handler, of another thread, of a program with greenlets."""

from __future__ import annotations

import errno
import logging
import os
import random
import threading
from pathlib import Path

import pytest

import jlog
from behaviour.journals import fill, values
from elsewhere import run_python
from jlog.system import filesystem
from patience import HUNG_SECONDS, wait_until

# A handler makes calls that need the locks of the call that it has interrupted.
HANDLER = """
import random, signal
import jlog

path, chance = {path!r}, random.Random(1)
reader, journal, ran = jlog.Reader(path, "billing"), jlog.Journal(path), [0]
journal.set_checkpoint("start", 0)

def handler(*_):
    ran[0] += 1
    for call in (lambda: reader.checkpoint("here"), lambda: jlog.Writer(path).close(), lambda: journal.clean()):
        try:
            call()
        except jlog.JournalError:
            pass

signal.signal(signal.SIGALRM, handler)
for number in range(300):
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 5e-4))
    try:
        (lambda: reader.rewind("start"), journal.clean, lambda: jlog.Writer(path).close())[number % 3]()
    except jlog.JournalError:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
assert ran[0]
"""


def test_a_handler_that_calls_the_journal_never_waits_for_the_call_that_it_interrupts(path: Path) -> None:
    with jlog.Writer(path) as writer:
        fill(writer, 10)
    run_python(HANDLER.format(path=str(path)))


def read_backward_for_ever(reader: jlog.Reader) -> None:
    while True:
        if not reader.read_backward(100):
            reader.seek("end")


def test_reading_backward_in_a_reader_that_is_closed_meanwhile_is_no_damage(path: Path) -> None:
    with jlog.Writer(path, precommit=4096, segment_bytes=16 << 10) as writer:
        fill(writer, 2000)
    chance = random.Random(1)
    for _ in range(30):
        reader = jlog.Reader(path, start="end")
        closing = threading.Timer(chance.uniform(0, 0.004), reader.close)
        closing.start()
        with pytest.raises(jlog.JournalClosed):
            read_backward_for_ever(reader)
        closing.join()


def test_a_handler_of_logging_that_raises_does_not_end_the_threads_of_a_writer(path: Path, monkeypatch) -> None:
    """Records that come after it are still synced."""
    calls = []

    def emit(_: logging.LogRecord) -> None:
        calls.append(None)
        raise RuntimeError("the log server is away")

    handler = logging.Handler()
    handler.emit = emit  # type: ignore[method-assign]
    logging.getLogger("jlog").addHandler(handler)
    try:
        with jlog.Writer(path, sync="interval", sync_interval=0.01, segment_bytes=4096) as writer:
            (path / "subscribers").rename(path / "away")
            (path / "subscribers").touch()
            for _ in range(10):
                writer.append(b"x" * 1500)
            wait_until(lambda: calls)
            (path / "subscribers").unlink()
            (path / "away").rename(path / "subscribers")
            end = writer.append(b"last") + 1
            wait_until(lambda: jlog.Journal(path).stats().durable_end == end)
    finally:
        logging.getLogger("jlog").removeHandler(handler)


def test_deleting_by_a_link_deletes_the_journal_or_nothing(path: Path, tmp_path: Path) -> None:
    with jlog.Writer(path) as writer:
        fill(writer, 3)
    link = tmp_path / "link"
    link.symlink_to(path)
    try:
        jlog.Journal.delete(link)
    except (jlog.JournalError, OSError):
        assert len(values(path)) == 3
    else:
        assert not path.exists()


def test_a_journal_that_is_deleted_while_others_create_it_is_there_or_not(path: Path) -> None:
    """Nothing is left that nobody can open, create or delete."""
    ends = threading.Event()
    wrong: list[BaseException] = []

    def create() -> None:
        while not ends.is_set():
            try:
                with jlog.Writer(path, lock_timeout=HUNG_SECONDS) as writer:
                    writer.append(b"x")
            except jlog.JournalError:
                continue
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)
                return

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    deleted = 0
    for _ in range(300):
        try:
            jlog.Journal.delete(path)
            deleted += 1
        except jlog.JournalError:
            continue
    ends.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert deleted
    with jlog.Writer(path) as writer:
        writer.append(b"last")
    assert values(path)[-1] == b"last"
    jlog.Journal.delete(path)
    assert not path.exists()


@pytest.mark.parametrize("is_created", [False, True])
def test_a_writer_creates_a_journal_that_is_deleted_while_it_opens_it(path: Path, monkeypatch, is_created) -> None:
    """If another process has created a new journal meanwhile, the writer opens that one."""
    check = filesystem.check_local

    def delete(given: str) -> None:
        monkeypatch.setattr(filesystem, "check_local", check)
        jlog.Journal.delete(path)
        if is_created:
            jlog.Journal.create(path)
        check(given)

    jlog.Journal.create(path)
    monkeypatch.setattr(filesystem, "check_local", delete)
    with jlog.Writer(path) as writer:
        writer.append(b"x")
    assert values(path) == [b"x"]


def test_a_directory_that_is_deleted_while_it_is_created_is_created_again(path: Path, monkeypatch) -> None:
    makedirs, calls = os.makedirs, []

    def make(given: str, **more: bool) -> None:
        calls.append(given)
        if len(calls) == 1:  # as makedirs() does it where the directory goes between its two steps
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), given)
        makedirs(given, **more)

    monkeypatch.setattr(os, "makedirs", make)
    with jlog.Writer(path) as writer:
        writer.append(b"x")
    assert len(calls) == 2

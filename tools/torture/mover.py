"""A mover: renames, removes, replaces, restores and links the directory of a journal of its own while others use it.

The thread must be told, every acknowledged record must be in the journal at its new place, and the other journal that has the
path then must keep every byte.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import jlog
from torture.errands import run_errands
from torture.records import EXPECTED, Wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.gate import Gate
    from torture.log import Log

TOLD_SECONDS = 60.0  # guards against a writer that is never told; it may be stopped meanwhile
KEEP = jlog.Retention(delete_read=False)


def _rename(path: Path, other: Path) -> Path | None:
    path.rename(path.with_name("away"))
    other.rename(path)
    return path.with_name("away")


def _relink(path: Path, other: Path) -> Path | None:
    path.rename(path.with_name("away"))
    path.symlink_to(other)
    return path.with_name("away")


def _remove_whole(path: Path) -> None:
    """Begins again where the writer below removes a file first, or creates one: of a journal that is half removed, and whose
    directory and buffer are in place, a writer need not be told."""
    while path.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(path)


def _restore(path: Path, other: Path) -> Path | None:
    _remove_whole(path)
    shutil.copytree(other, path)
    return None


def _restore_in_place(path: Path, other: Path) -> Path | None:
    (path / "precommit").unlink()  # first, as a restore should: whatever comes later, the writer stays away
    for file in list(path.iterdir()):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copytree(other, path, dirs_exist_ok=True)
    return None


def _remove(path: Path, _other: Path) -> Path | None:
    _remove_whole(path)
    return None


MOVES: tuple[Callable[[Path, Path], Path | None], ...] = (_rename, _relink, _restore, _restore_in_place, _remove)


def move(spec: dict[str, Any], gate: Gate, log: Log) -> None:
    chance = Random(f"{spec['seed']} {spec['name']}")

    def run(work: Path) -> None:
        work.mkdir()
        errand = chance.random()
        if errand < 0.2:
            _link(work)
        elif errand < 0.4:
            _reject_and_restore(work, chance)
        else:
            _move_once(work, chance)
        log("m")

    run_errands(spec, gate, log, chance, 0.2, run)


def _move_once(work: Path, chance: Random) -> None:
    path, other = work / "j", work / "other"
    sizes = {"precommit": chance.choice((4 << 10, 64 << 10)), "segment_bytes": chance.choice((4 << 10, 64 << 10))}
    with jlog.Writer(other, retention=KEEP, **sizes) as there:
        there.extend([b"there" * 20] * 200)
    before = _content(other)
    writer = jlog.Writer(path, retention=KEEP, sync=chance.choice(("none", "append")), **sizes)
    appended = Appender(writer, chance.choice((0, 50, 300)))
    try:
        time.sleep(chance.random() * 0.05)
        try:
            moved_to = chance.choice(MOVES)(path, other)
        except OSError as error:  # a file came or went meanwhile: the writer is at work
            if error.errno not in EXPECTED and not isinstance(error, FileNotFoundError) and "not empty" not in str(error):
                raise
            return
    finally:
        appended.finish(writer)
    if path.exists() and _content(path) != before:
        raise Wrong(f"{path} is another journal by now, and was written to")
    if moved_to is not None:
        with jlog.Reader(moved_to) as reader:
            found = list(reader.values())
        if len(found) < appended.count:
            raise Wrong(f"{moved_to} has {len(found)} records, and {appended.count} were acknowledged")


def _reject_and_restore(work: Path, chance: Random) -> None:
    """Rejects records of a journal that is restored from backups meanwhile, which gives their numbers out again."""
    path, dead = work / "worked", work / "dead"
    rejected: set[bytes] = set()
    backups: list[Path] = []
    for turn in range(chance.randrange(2, 7)):
        with jlog.Writer(path) as writer, jlog.Worker(path, "work", dead_letters=dead) as worker:
            writer.extend([b"%d of turn %d" % (number, turn) for number in range(chance.randrange(1, 20))])
            while tasks := worker.take(chance.randrange(1, 9), timeout=0):
                for task in tasks:
                    if chance.random() < 0.5:
                        task.ack(durable=chance.random() < 0.2)
                        continue
                    task.reject("torture")
                    rejected.add(task.value or b"")
            writer.sync()
        if chance.random() < 0.5:
            backups.append(work / f"backup {turn}")
            jlog.Journal(path).backup(backups[-1])
        elif backups:
            shutil.rmtree(path)
            shutil.copytree(chance.choice(backups), path)
    if not rejected:
        return  # the first dead letter creates their journal
    with jlog.Reader(dead) as reader:
        missing = rejected.difference(reader.values())
    if missing:
        raise Wrong(f"{dead} lacks letters of {sorted(missing)[:5]}, which were rejected")


class Appender:
    """A thread that appends until it is told that the journal was moved."""

    def __init__(self, writer: jlog.Writer, size: int) -> None:
        self.count = 0
        self._ends = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(writer, b"x" * size), daemon=True)
        self._thread.start()

    def _run(self, writer: jlog.Writer, value: bytes) -> None:
        try:
            while True:
                try:
                    writer.append(value)
                    self.count += 1
                except FileNotFoundError:
                    pass  # a file is gone, and the buffer not yet: the next call tells
                except OSError as error:
                    if error.errno not in EXPECTED or self._ends:
                        raise
        except BaseException as error:  # noqa: BLE001 - looked at by finish()
            self._error = error

    def finish(self, writer: jlog.Writer) -> None:
        self._ends = True
        self._thread.join(TOLD_SECONDS)
        told = self._error
        try:
            writer.close()
        except (jlog.JournalMoved, OSError) as error:
            told = told or error
        if isinstance(told, OSError) and told.errno in EXPECTED:
            raise told
        if not isinstance(told, jlog.JournalMoved):
            raise Wrong(f"a journal was moved below its writer, which was told {told!r}")


def _link(work: Path) -> None:
    """A copy by hard links takes no writer, and the original goes on once the copy is gone."""
    path, copy = work / "j", work / "copy"
    with jlog.Writer(path) as writer:
        writer.append(b"before")
    shutil.copytree(path, copy, copy_function=os.link)
    for either in (path, copy):
        try:
            jlog.Writer(either).close()
        except jlog.JournalError as error:
            if "by hard links" not in str(error):
                raise
        else:
            raise Wrong(f"{either} shares its files with a copy, and took a writer")
    shutil.rmtree(copy)
    with jlog.Writer(path) as writer:
        writer.append(b"after")
    with jlog.Reader(path) as reader:
        if list(reader.values()) != [b"before", b"after"]:
            raise Wrong(f"{path} lost records to a copy by hard links")


def _content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}

"""A deletion beside calls that open the journal or create something in it, in whatever order their steps come."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import jlog
from behaviour.journals import fill, values
from jlog.care import deletion
from jlog.positions import position_files
from jlog.reading import journal_records
from jlog.storage.meta import read_meta

DELETE = """
import sys, jlog
try:
    jlog.Journal.delete(sys.argv[1], lock_timeout=0)
except (jlog.JournalLocked, jlog.SubscriberBusy):
    print("in use")
else:
    print("deleted")
"""


def delete_elsewhere(path: Path) -> str:
    return subprocess.run([sys.executable, "-c", DELETE, str(path)], capture_output=True, text=True, check=True).stdout.strip()


def first_before(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], object]) -> None:
    """Has the first call of this function act first."""
    call = getattr(owner, name)

    def acting(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, call)
        act()
        return call(*arguments, **options)

    monkeypatch.setattr(owner, name, acting)


def test_a_subscriber_that_is_created_beside_a_deletion_leaves_no_half_journal(path: Path, monkeypatch) -> None:
    jlog.Journal.create(path)
    said: list[str] = []
    first_before(monkeypatch, position_files, "create", lambda: said.append(delete_elsewhere(path)))
    with suppress(jlog.JournalNotFound), jlog.Worker(path, "name"):
        assert said == ["in use"]
    with suppress(jlog.JournalNotFound):
        jlog.Journal.delete(path)
    with jlog.Writer(path) as writer:
        writer.append(b"new")
    assert values(path) == [b"new"]


def test_a_worker_that_waits_for_a_deletion_creates_nothing_in_it(path: Path) -> None:
    """It has the lock file of the journal that is gone."""
    jlog.Journal.create(path)
    meta = read_meta(str(path))
    lock = position_files.table_locked(str(path))
    assert delete_elsewhere(path) == "deleted"
    with lock, pytest.raises(jlog.JournalNotFound):
        position_files.create(str(path), meta, "subscriber", "name", 0)


def test_of_two_deletions_one_finds_no_journal(path: Path, monkeypatch) -> None:
    jlog.Journal.create(path)
    first_before(monkeypatch, deletion, "opened_alone", lambda: delete_elsewhere(path))
    with pytest.raises(jlog.JournalNotFound):
        jlog.Journal.delete(path)


@pytest.mark.parametrize("step", ["Cursor", "find_start"])
def test_a_reader_that_opens_beside_a_deletion_finds_no_journal(path: Path, monkeypatch, step) -> None:
    with jlog.Writer(path) as writer:
        fill(writer, 3)
    first_before(monkeypatch, journal_records, step, lambda: delete_elsewhere(path))
    with pytest.raises(jlog.JournalNotFound):
        jlog.Reader(path)


def test_a_journal_that_was_deleted_says_so(path: Path) -> None:
    journal = jlog.Journal.create(path)
    looks = [lambda: len(journal), journal.segments, journal.subscribers, journal.checkpoints, journal.state]
    jlog.Journal.delete(path)
    for look in looks:
        with pytest.raises(jlog.JournalNotFound):
            look()
    jlog.Journal.create(path)
    for look in looks[:3]:
        with pytest.raises(jlog.JournalMoved):
            look()

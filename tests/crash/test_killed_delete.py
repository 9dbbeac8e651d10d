"""A deletion that is killed at any step leaves the journal, or a place where one can be deleted, or created, at once."""

import itertools
import os
import shutil

import pytest

import jlog
from crash.test_killed_options import die_at, is_killed

CALLS = ("open", "rename", "unlink", "rmdir", "listdir", "close")


def delete_and_die(path, number):
    die_at(number, CALLS)
    jlog.Journal.delete(path)


def journal_at(path):
    retention = jlog.Retention(delete_read=False)
    with jlog.Writer(path, segment_bytes=4096, precommit=4096, retention=retention) as writer:
        for _ in range(6):
            writer.append(b"old" * 1000)
    journal = jlog.Journal(path)
    journal.add_subscriber("billing")
    journal.set_checkpoint("before", 3)
    (path / "spark" / "query").mkdir(parents=True)
    (path / "spark" / "query" / "rows").touch()
    return path


@pytest.mark.parametrize("mine", [False, True], ids=["", "with a file of the user"])
def test_a_killed_delete_can_be_done_again_and_a_journal_be_created_there(tmp_path, mine):
    before = journal_at(tmp_path / "before")
    if mine:
        (before / "notes").write_bytes(b"mine")
    for number in itertools.count(1):
        path = tmp_path / "j"
        shutil.copytree(before, path)
        killed = is_killed(delete_and_die, path, number)
        assert not mine or (path / "notes").read_bytes() == b"mine"
        again = tmp_path / "again"
        if path.exists():
            shutil.copytree(path, again)
        check_created(path, mine)
        check_deleted(again, mine)
        if not killed:
            break
    assert number > 20


def check_created(path, mine):
    """The journal is there as it was; or a new one can be created, unless the user's file is in its place."""
    try:
        found = jlog.Journal(path)
    except jlog.JournalNotFound:
        if mine:
            with pytest.raises(jlog.JournalExists):
                jlog.Writer(path)
            (path / "notes").unlink()
        with jlog.Writer(path) as writer:
            assert writer.append(b"new") == 0
        assert list(jlog.Reader(path).values()) == [b"new"]
        assert jlog.Journal(path).subscribers() == {}
    else:
        assert (len(found), len(found.subscribers()), len(found.checkpoints())) == (6, 1, 1)
        assert found.verify().ok
    shutil.rmtree(path)


def check_deleted(path, mine):
    if not path.exists():
        return
    try:
        jlog.Journal.delete(path)
    except jlog.JournalNotFound:
        assert {"lock", "notes"} >= set(os.listdir(path))
        shutil.rmtree(path)
        return
    assert (os.listdir(path) if path.exists() else []) == (["notes"] if mine else [])
    shutil.rmtree(path, ignore_errors=True)


def test_a_repair_does_not_bring_back_what_a_killed_delete_has_left(tmp_path):
    path = journal_at(tmp_path / "j")
    number = next(n for n in itertools.count(1) if is_killed(delete_and_die, path, n) and not (path / "journal.meta").exists())
    assert number
    for call in (jlog.Journal, jlog.Journal.repair_at):
        with pytest.raises(jlog.JournalNotFound, match="deletion was cut short: delete it again"):
            call(path)
    jlog.Journal.delete(path)
    assert not path.exists()

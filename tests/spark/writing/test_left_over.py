"""Staged rows of writes that died are removed, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from behaviour.journals import values
from jlog.spark import clean
from jlog.spark.writing.ledger import BATCH, NAMELESS, STREAM
from jlog.spark.writing.left_over import BEGUN, STALE_SECONDS
from jlog.spark.writing.sink import BatchSink, StagingSink
from spark.writing.rows import ALL, LARGE, VALUE, cut_short, ends, stage


def backdate(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in ["", *names]:
            at = os.path.join(folder, name)
            os.utime(at, (0, os.stat(at).st_mtime - STALE_SECONDS - 60))


def test_staging_that_a_resumed_commit_needs_is_never_removed(sink: StagingSink) -> None:
    """Neither an abort nor its age removes it."""
    staged = stage(sink, "q", 0, LARGE)
    cut_short(sink, staged, ends(staged)[0])
    sink.abort("q")
    backdate(Path(sink.path, "spark", "q"))
    sink.commit(STREAM, "other", 0, stage(sink, "other", 0, [[b"other"]]))
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert sorted(values(sink.path)) == sorted([*ALL, b"other"])


def test_an_abort_after_the_commit_removes_no_record(sink: StagingSink) -> None:
    sink.commit(BATCH, "q", 0, stage(sink, "q", 0, [[b"a"]]))
    sink.abort("q")
    assert values(sink.path) == [b"a"]


def test_an_abort_removes_what_was_staged(sink: StagingSink) -> None:
    stage(sink, "q", 0, [[b"a"]])
    sink.abort("q")
    assert "spark" not in os.listdir(sink.path)


def test_leftovers_of_others_are_removed_after_a_day(sink: StagingSink) -> None:
    stage(sink, "dead", 0, [[b"a"]])
    stage(sink, "slow", 0, [[b"b"]])
    backdate(Path(sink.path, "spark", "dead"))
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[b"c"]]))
    assert os.listdir(os.path.join(sink.path, "spark")) == ["slow"]


@pytest.mark.usefixtures("failpoints")
def test_the_next_commit_removes_a_dead_nameless_writes_staging(
    sink: StagingSink, nameless_commit: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    assert nameless_commit("direct.written=kill@2").wait() == -signal.SIGKILL
    assert os.listdir(os.path.join(sink.path, "spark")) == [NAMELESS + "1"]
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[b"a"]]))
    assert "spark" not in os.listdir(sink.path)


@pytest.mark.usefixtures("failpoints")
def test_staging_of_a_nameless_write_in_its_commit_stays(
    sink: StagingSink, nameless_commit: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    committing = nameless_commit("direct.written=stop@2")
    os.waitid(os.P_PID, committing.pid, os.WSTOPPED | os.WNOWAIT)
    stage(sink, "q", 0, [[b"a"]])
    backdate(Path(sink.path, "spark", NAMELESS + "1"))
    assert clean(sink.path) == []
    committing.send_signal(signal.SIGCONT)
    assert committing.wait() == 0
    assert values(sink.path) == ALL


def test_no_file_leads_a_clean_up_to_files_of_others(sink: StagingSink, tmp_path: Path) -> None:
    """Another user of the journal may write it."""
    name = NAMELESS + "1"
    victim = tmp_path / "documents" / name
    victim.mkdir(parents=True)
    home = Path(sink.path, "spark", name)
    for content in (os.fsencode(victim), b"", bytes(1 << 17)):
        home.mkdir(parents=True, exist_ok=True)
        (home / BEGUN).write_bytes(content)
        clean(sink.path)
        assert victim.is_dir()
    (home / BEGUN).unlink(missing_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / BEGUN).symlink_to(victim)
    clean(sink.path)
    assert victim.is_dir()


def test_staging_of_a_nameless_write_before_its_commit_stays(sink: StagingSink) -> None:
    staged = stage(sink, NAMELESS + "1", 0, [[b"a"]])
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[b"b"]]))
    sink.commit(BATCH, NAMELESS + "1", 0, staged)
    assert values(sink.path) == [b"b", b"a"]


@pytest.mark.parametrize("name", ["stray", NAMELESS + "stray"])
@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_files_among_the_staged_queries_stay(tmp_path: Path, name: str, is_link: bool, elsewhere: bool) -> None:
    options = {"stagingdirectory": str(tmp_path / "staging")} if elsewhere else {}
    sink = StagingSink(VALUE, {"path": str(tmp_path / "journal"), **options}, False)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "begun").touch()
    with sink.staging("q").held():  # makes the directory
        staged = stage(sink, "q", 0, [[b"a"]])
    stray = Path(sink.path, "spark", name)
    if is_link:
        stray.symlink_to(victim)
    else:
        stray.touch()
    if elsewhere:  # what the query with this name has staged there
        Path(sink.staging(name).batch(0)).mkdir(parents=True)
        backdate(Path(sink.staging(name).batch(0)).parent)
    for path in (victim / "begun", victim, stray):
        os.utime(path, (0, 0))
    sink.commit(STREAM, "q", 0, staged)
    assert values(sink.path) == [b"a"]
    assert stray.is_symlink() if is_link else stray.is_file()
    assert os.listdir(victim) == ["begun"]


def test_the_abort_of_a_nameless_write_removes_its_staging(sink: StagingSink) -> None:
    staged = stage(sink, NAMELESS + "1", 0, LARGE)
    cut_short(sink, staged, ends(staged)[0], NAMELESS + "1")
    sink.abort(NAMELESS + "1")
    assert "spark" not in os.listdir(sink.path)


def test_a_write_without_a_transaction_has_an_id_of_its_own(sink: StagingSink) -> None:
    write = BatchSink(VALUE, {"path": sink.path}, False)
    assert write.query.startswith(NAMELESS)
    with pytest.raises(ValueError, match="a transaction's name"):
        BatchSink(VALUE, {"path": sink.path, "transaction": write.query}, False)

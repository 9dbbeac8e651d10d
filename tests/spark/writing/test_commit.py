"""A commit, without Spark around it: cut short, resumed, and with large files."""

from __future__ import annotations

import os
import pickle
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import jlog
from behaviour.journals import values
from elsewhere import python
from jlog.spark import forget
from jlog.spark.writing.ledger import NAMELESS, STREAM
from jlog.spark.writing.sink import StagingSink, repeated_in_background
from spark.writing.rows import ALL, LARGE, VALUE, cut_short, ends, stage

SMALL_FILES = "jlog.spark.writing.staging.FIRST_FILE_BYTES, jlog.spark.writing.staging.SEGMENT_BYTES_MIN = 1 << 20, 1 << 20"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 2 of 10 MB are a file that is copied, the others one that becomes a segment."""
    monkeypatch.setattr("jlog.spark.writing.staging.FIRST_FILE_BYTES", 1 << 20)
    monkeypatch.setattr("jlog.spark.writing.staging.SEGMENT_BYTES_MIN", 1 << 20)


@pytest.mark.parametrize("parts", [[[b"a"], [b"b", b"c"]], LARGE], ids=["small", "large"])
def test_a_commit_that_is_repeated_adds_nothing(sink: StagingSink, parts: list[list[bytes]]) -> None:
    staged = stage(sink, "q", 0, parts)
    sink.commit(STREAM, "q", 0, staged)
    sink.commit(STREAM, "q", 0, staged)
    assert values(sink.path) == [value for part in parts for value in part]


@pytest.mark.parametrize("which", [0, 4, 5, -2])
def test_a_commit_cut_short_is_completed_with_the_same_rows(sink: StagingSink, which: int) -> None:
    """They are in their order."""
    staged = stage(sink, "q", 0, LARGE)
    cut_short(sink, staged, ends(staged)[which])
    again = stage(sink, "q", 0, [part[::-1] for part in reversed(LARGE)])
    sink.commit(STREAM, "q", 0, again)
    assert values(sink.path) == ALL
    assert "spark" not in os.listdir(sink.path)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_large_files_become_segments(tmp_path: Path, compression: str) -> None:
    options = {"path": str(tmp_path / "journal"), "compression": compression, "segmentBytes": str(16 << 20)}
    sink = StagingSink(VALUE, options, False)
    noise = random.Random(0)
    parts = [[noise.randbytes(1_000) for _ in range(10_000)] for _ in range(2)]
    staged = stage(sink, "q", 0, parts)
    assert [len(part.files) for part in staged] == [2, 2]
    large = {os.stat(path).st_ino for path in Path(sink.staging("q").batch(0)).glob("*-00001")}
    sink.commit(STREAM, "q", 0, staged)
    segments = {path.stat().st_ino for path in Path(sink.path).glob("*.seg")}
    assert len(large) == 2
    assert large < segments
    assert values(sink.path) == [value for part in parts for value in part]
    sink.commit(STREAM, "q", 0, staged)
    assert jlog.Journal(sink.path).next_sequence == 20_000
    assert jlog.Journal(sink.path).verify().ok


@pytest.mark.usefixtures("small_files")
def test_files_that_cannot_become_segments_are_copied(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "journal"), "segmentBytes": str(16 << 20)}
    sink = StagingSink(VALUE, options, False)
    with jlog.Writer(sink.path) as writer:  # which leaves no room in front for a larger one
        writer.extend([], state={b"large": random.Random(0).randbytes(64_800)})
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert values(sink.path) == ALL


@pytest.mark.usefixtures("small_files", "failpoints")
@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("point", ["ingest.linked", "ingest.completed", "roll.renamed", "rotate.turned"])
def test_the_next_driver_ends_the_ingestion_of_a_killed_one(tmp_path: Path, point: str, visit: int) -> None:
    options = {"path": str(tmp_path / "journal"), "segmentBytes": str(16 << 20)}
    sink = StagingSink(VALUE, options, False)
    staged = stage(sink, "q", 0, LARGE)
    (tmp_path / "commit").write_bytes(pickle.dumps((sink, staged)))
    program = (
        f"import pickle, sys, jlog.spark.writing.sink; {SMALL_FILES}\n"
        "sink, staged = pickle.load(open(sys.argv[1], 'rb')); sink.commit('stream', 'q', 0, staged)"
    )
    killed = python(program, tmp_path / "commit", JLOG_FAILPOINTS=f"{point}=kill@{visit}")
    assert killed.returncode == -signal.SIGKILL
    assert len(values(sink.path)) < len(ALL)
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert values(sink.path) == ALL
    assert "spark" not in os.listdir(sink.path)


@pytest.mark.parametrize("query", ["q", NAMELESS + "1"])
def test_rows_of_a_query_are_synced_before_a_part_of_them_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """No later run completes a nameless write, so its rows need no sync."""
    synced: list[str] = []

    def note(fd: int, sync: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    sink = StagingSink(VALUE, {"path": str(tmp_path / "journal")}, False)
    staged = stage(sink, query, 0, LARGE)
    sink.commit(STREAM, query, 0, staged)
    files = {file.name for part in staged for file in part.files}
    assert (files <= {Path(path).name for path in synced}) == (query == "q")
    assert values(sink.path) == ALL


def test_an_error_in_the_background_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"), repeated_in_background(lambda: os.fdatasync(1_000_000)) as sync:
        sync()


def test_a_commit_without_its_staged_rows_says_what_is_in(sink: StagingSink) -> None:
    """The error also says what to do."""
    staged = stage(sink, "q", 0, LARGE)
    cut_short(sink, staged, 5)
    sink.staging("q").remove()
    with pytest.raises(jlog.JournalError, match=r"5 records .* are in .*jlog\.spark\.forget"):
        sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    forget(sink.path, "q")
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert len(values(sink.path)) == 20_005


def test_a_staged_file_that_is_cut_is_an_error_and_adds_nothing(sink: StagingSink) -> None:
    (part,) = stage(sink, "q", 0, [[b"a" * 1_000]])
    os.truncate(os.path.join(sink.staging("q").batch(0), part.files[0].name), 66_000)
    with pytest.raises(jlog.JournalError, match="fails its checksum"):
        sink.commit(STREAM, "q", 0, [part])
    assert values(sink.path) == []

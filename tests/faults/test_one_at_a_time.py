"""A second thread, or a signal's handler, at any moment of a reading call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import exhaustive
import jlog
from faults.moments import Moments
from faults.test_interrupted_reading import WAYS, journal, open_reader  # noqa: F401

APART = exhaustive.count(29, 7)  # moments, of the many of a way to read that is long
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.parametrize("where", ["handler", "thread"])
def test_a_commit_beside_a_read_commits_what_was_handed_out_before(tmp_path, where):
    path = tmp_path / "j"
    with jlog.Writer(path, segment_bytes=4096) as writer:
        for number in range(20):
            writer.append(b"%d" % number + b"." * 600)
    at, struck = 1, True
    while struck:
        with jlog.Reader(path, "s") as reader:
            reader.seek("begin")
            reader.commit(0)
            reader.read(5)
            refused: list[Exception] = []

            def commit(reader=reader, refused=refused) -> None:
                reader.commit()
                try:
                    reader.read(1)
                except jlog.JournalError as error:
                    refused.append(error)

            moments = Moments(at, commit if where == "handler" else lambda commit=commit: in_thread(commit))
            batch = moments.during(lambda reader=reader: reader.read(10))
            struck = moments.struck is not None
            if struck:
                assert reader.committed == 5, moments.struck
                assert len(refused) == 1, moments.struck
            assert [record.sequence for record in batch] == list(range(5, 15))
            at += 1
    assert at > 5


@pytest.mark.parametrize("kind", ["journal", "archive", "both"])
@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_is_closed_at_any_moment_stays_closed(journal, tmp_path, monkeypatch, way, kind):  # noqa: F811
    if "follow" in way and kind == "archive":
        return  # an archive cannot be followed
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    at, struck = 1, True
    while struck:
        reader = open_reader(journal, kind)
        moments = Moments(at, reader.close)
        try:
            for step in WAYS[way](reader):
                if moments.during(step) is None or moments.struck:
                    break
        except jlog.JournalClosed:
            assert moments.struck
        struck = moments.struck is not None
        if struck:
            with pytest.raises(jlog.JournalClosed):
                reader.position  # noqa: B018
            with pytest.raises(jlog.JournalClosed):
                reader.read()
        reader.close()
        assert not list(tmp_path.iterdir()), moments.struck
        at += 1 if kind == "journal" and way != "read_backward" else APART


def test_a_cancelled_step_ends_with_what_it_has_started(journal: Path):  # noqa: F811
    """The next step meets no thread of the one before at work."""

    async def follow() -> list[int]:
        found: list[int] = []
        with open_reader(journal, "both") as reader:
            records = reader.follow_async(timeout=0)
            while True:
                threads = threading.active_count()
                step = asyncio.ensure_future(anext(records, None))
                while not step.done() and threading.active_count() == threads:
                    await asyncio.sleep(0)
                step.cancel()
                record = None
                try:
                    record = await step
                except asyncio.CancelledError:
                    record = await anext(records, None)
                if record is None:
                    return found
                found.append(record.sequence)

    with open_reader(journal, "both") as reader:
        wanted = [record.sequence for record in reader]
    assert asyncio.run(follow()) == wanted

"""A signal's handler that raises at any moment of a reading call: no record is passed over, and none is committed unseen."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import exhaustive
import jlog
from faults.moments import Moments, Stopped

# What was interrupted leaves files to the finalizers of their objects.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
RECORDS = 16
APART = exhaustive.count(23, 1)  # moments, of the many at which an archive is read


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Frees the interrupted objects within their own test, whose warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its first segments are in the archive alone, and the last records in the buffer."""
    root = tmp_path_factory.mktemp("interrupted")
    path = root / "j"
    with jlog.Writer(path, segment_bytes=4096, retention=jlog.Retention(archive=f"file://{root}/archive")) as writer:
        for number in range(RECORDS):
            if number == 2 * RECORDS // 3:
                with jlog.Reader(path, "s") as reader:
                    list(reader)
                    reader.commit()
                jlog.Journal(path).clean()
            writer.append(b"%d " % number + b"." * 600)
    return path


def open_reader(journal: Path, kind: str) -> jlog.Reader:
    if kind == "archive":
        return jlog.Reader(f"file://{journal.parent}/archive")
    return jlog.Reader(journal, archive=kind == "both")


def by_read(reader: jlog.Reader) -> Iterator[Callable[[], list[int] | None]]:
    while True:
        yield lambda: [record.sequence for record in reader.read(3)] or None


def by_backward(reader: jlog.Reader) -> Iterator[Callable[[], list[int] | None]]:
    reader.seek("end")
    while True:
        yield lambda: [record.sequence for record in reader.read_backward(3)] or None


def by_iterator(iterator: Iterator[Any]) -> Iterator[Callable[[], Any]]:
    while True:
        yield lambda: next(iterator, None)


def by_loop(reader: jlog.Reader) -> Iterator[Callable[[], Any]]:
    loop, records = asyncio.new_event_loop(), reader.follow_async(timeout=0)

    async def step() -> Any:
        return await anext(records, None)

    try:
        while True:
            yield lambda: loop.run_until_complete(step())
    finally:
        loop.close()


WAYS: dict[str, Callable[[jlog.Reader], Iterator[Callable[[], Any]]]] = {
    "read": by_read,
    "for": lambda reader: by_iterator(iter(reader)),
    "values": lambda reader: by_iterator(reader.values()),
    "follow": lambda reader: by_iterator(reader.follow(timeout=0)),
    "record_batches": lambda reader: by_iterator(reader.record_batches(max_records=3)),
    "read_backward": by_backward,
    "follow_async": by_loop,
}


def sequences(found: Any) -> list[int]:
    """Those of what one step has returned."""
    if isinstance(found, list):
        return found
    if isinstance(found, bytes):
        return [int(found.split()[0])]
    if isinstance(found, jlog.Record):
        return [found.sequence]
    return found.column("sequence").to_pylist()


def interrupted(step: Callable[[], Any], reader: jlog.Reader, apart: int) -> Any:
    """Makes the step, which is interrupted at its first moment, then at a later one, until it gets through."""
    at, moments = reader.position, Moments(1)
    while True:
        try:
            return moments.during(step)
        except Stopped:
            assert reader.position == at, f"{moments.struck}: it is at {reader.position} instead of {at}"
            moments = Moments(moments.at + apart)


@pytest.mark.parametrize("kind", ["journal", "archive", "both"])
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_at_any_moment_passes_over_no_record(journal, way, kind):
    if "follow" in way and kind == "archive":
        return  # an archive cannot be followed
    found: list[int] = []
    with open_reader(journal, kind) as reader:
        wanted = [record.sequence for record in open_reader(journal, kind)]
        for step in WAYS[way](reader):
            item = interrupted(step, reader, 1 if kind == "journal" else APART)
            if item is None:
                break
            found += sequences(item)
    assert found == (wanted[::-1] if way == "read_backward" else wanted)
    assert len(found) > RECORDS // 3

"""The entries of queries and named writes in the journal's state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import jlog
from behaviour.journals import values
from jlog.spark import forget, queries
from jlog.spark.writing.ledger import BATCH, NAMELESS, STREAM
from jlog.spark.writing.sink import StagingSink
from spark.writing.rows import ALL, LARGE, cut_short, ends, numbered, numbers, save, stage


def names(count: int) -> Iterator[str]:
    return (f"{number:03}-" + "x" * 96 for number in range(count))


def test_nameless_writes_leave_no_entry(sink: StagingSink) -> None:
    sink.commit(BATCH, "load", 0, stage(sink, "load", 0, [[b"a"]]))
    for number in range(150):
        query = f"{NAMELESS}{number}"
        sink.commit(BATCH, query, 0, stage(sink, query, 0, [[b"b"]]))
    sink.commit(BATCH, NAMELESS + "large", 0, stage(sink, NAMELESS + "large", 0, LARGE))
    sink.commit(BATCH, "load", 0, stage(sink, "load", 0, [[b"a"]]))
    assert list(queries(sink.path)) == ["load"]
    assert values(sink.path) == [b"a"] + [b"b"] * 150 + ALL


@pytest.mark.parametrize("kind", [BATCH, STREAM])
def test_no_named_query_is_pushed_out_by_others(sink: StagingSink, kind: str) -> None:
    staged = stage(sink, "begun", 0, LARGE)
    cut_short(sink, staged, ends(staged)[0], "begun")
    for query in names(150):
        sink.commit(kind, query, 0, stage(sink, query, 0, [[b"a"]]))
    assert {"begun", *names(150)} == set(queries(sink.path))
    for query in names(150):
        sink.commit(kind, query, 0, stage(sink, query, 0, [[b"a"]]))
    sink.commit(STREAM, "begun", 0, stage(sink, "begun", 0, LARGE))
    found = values(sink.path)
    assert [value for value in found if value != b"a"] == ALL
    assert found.count(b"a") == 150


@pytest.mark.exhaustive
def test_a_write_that_the_journal_cannot_remember_is_refused(sink: StagingSink) -> None:
    """The error says how to make room, and nothing is appended."""

    def fill() -> None:
        for query in names(1_000):
            sink.commit(BATCH, query, 0, stage(sink, query, 0, [[b"a"]]))

    with pytest.raises(jlog.JournalError, match=r"no room .* jlog\.spark\.queries\(.*jlog\.spark\.forget\("):
        fill()
    known = len(queries(sink.path))
    assert len(values(sink.path)) == known > 300
    with pytest.raises(jlog.JournalError, match="no room"):
        sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    sink.abort("q")
    assert len(values(sink.path)) == known
    for name in list(names(5)):
        forget(sink.path, name)
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert values(sink.path)[known:] == ALL
    with pytest.raises(LookupError, match="does not know the query"):
        forget(sink.path, next(names(1)))


def test_a_commit_that_has_begun_has_room_to_its_end(sink: StagingSink) -> None:
    """However narrow the room is, all of its records go in, or none."""
    rows, room = numbered(9_000, 1_000), 150
    while True:
        with jlog.Writer(sink.path) as writer:
            writer.extend([], state={b"others": bytes((64 << 10) - len("others") - room)})
        before = len(values(sink.path))
        try:
            sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [rows]))
        except jlog.JournalError:
            assert len(values(sink.path)) == before > 0
            return
        assert len(values(sink.path)) == before + len(rows)
        forget(sink.path, "q")
        room -= 1


def test_loads_with_growing_versions_need_one_entry(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for version in (1, 2, 2, 7, 7):
        save(numbers(spark, version), path, txnAppId="daily", txnVersion=version)
    assert values(path) == numbered(1) + numbered(2) + numbered(7)
    ((name, entry),) = queries(path).items()
    assert (name, entry.batch, entry.records) == ("daily", 7, 7)

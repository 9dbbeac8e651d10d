"""The calls of Spark to a stream's reader, without Spark: the ends, the partitions between them, and commits."""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows
from pyspark.sql.types import LongType, StructField, StructType

import jlog
from behaviour import hostile
from behaviour.journals import SMALL, fill, read_away
from crash.tampering import another_boot, copy, lose_unsynced
from elsewhere import mounted_by, read_only, run_python
from jlog.errors import JournalError, PositionLost
from jlog.pipeline.inputs import check_source
from jlog.spark.reading import stream_reader
from jlog.spark.reading.batch_reader import BatchReader
from jlog.spark.reading.limits import sequence_after, shares
from jlog.spark.reading.options import parse
from jlog.spark.reading.sources import sources_of
from jlog.spark.reading.spark_journal import SparkJournal
from jlog.spark.reading.stream_reader import StreamReader
from jlog.storage import meta
from jlog.storage.gaps import Gaps
from jlog.storage.meta import read_meta
from patience import HUNG_SECONDS

SCHEMA = StructType([StructField("sequence", LongType())])


def stream(path: str | Path, **options: Any) -> StreamReader:
    return StreamReader(SCHEMA, {"path": str(path), **{name.lower(): str(given) for name, given in options.items()}})


def reached(marks: dict[str, Any]) -> dict[str, int]:
    return {Path(name).name: mark["sequence"] for name, mark in marks.items()}


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        sequence
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for sequence in batch.column("sequence").to_pylist()
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Journals of 100, 10 and no records below a root."""
    for name, records in (("large", 100), ("little", 10), ("empty", 0)):
        (tmp_path / "root").mkdir(exist_ok=True)
        with jlog.Writer(tmp_path / "root" / name, **SMALL) as writer:
            fill(writer, records)
    return tmp_path / "root"


def test_a_stream_keeps_its_initial_offset(root: Path) -> None:
    reader = stream(root / "large", startingSequence="latest")
    first = reader.initialOffset()
    with jlog.Writer(root / "large") as writer:
        fill(writer, 5)
    assert reader.initialOffset() == first
    assert reached(first) == {"large": 100}


def test_without_news_the_end_is_the_start(root: Path) -> None:
    reader = stream(root, journalPattern=".*")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reached(end) == {"large": 100, "little": 10, "empty": 0}
    assert list(end) == sorted(end)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []


def test_new_records_of_many_journals_are_synced_side_by_side(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync waits for the disk."""
    both, sync = threading.Barrier(2, timeout=HUNG_SECONDS), SparkJournal.synced_end

    def together(source: SparkJournal) -> int:
        both.wait()
        return sync(source)

    reader = stream(root, journalPattern="large|little")
    start = reader.initialOffset()
    for name in ("large", "little"):
        with jlog.Writer(root / name) as writer:
            fill(writer, 5)
    monkeypatch.setattr(SparkJournal, "synced_end", together)
    assert reached(reader.latestOffset(start, ReadAllAvailable())) == {"large": 105, "little": 15}
    for name, end in (("large", 105), ("little", 15)):
        with jlog.Reader(root / name, start="end", durable_only=True) as durable:
            assert durable.position == end


def test_an_idle_look_parses_no_journals_file_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = stream(root, journalPattern=".*", subscriber="lake")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.commit(end)
    monkeypatch.setattr(stream_reader, "LOOK_SECONDS", math.inf)  # which finds out whether a journal has an archive
    monkeypatch.setattr(meta, "parse_meta", None)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_limit_is_shared_by_the_journals_and_starves_none(root: Path) -> None:
    reader = stream(root, journals="large,little", maxRecordsPerTrigger=11)
    marks = reader.initialOffset()
    found = []
    while (end := reader.latestOffset(marks, reader.getDefaultReadLimit())) != marks:
        found.append(sum(reached(end).values()) - sum(reached(marks).values()))
        marks = end
    assert found == [11] * 10
    assert reached(marks) == {"large": 100, "little": 10}


def test_shares_add_up_and_none_is_larger_than_its_backlog() -> None:
    assert shares(10, {"a": 3, "b": 4}) == {"a": 3, "b": 4}
    assert shares(2, {"a": 1, "b": 1, "c": 8}) == {"a": 1, "b": 1, "c": 0}
    assert shares(3, {"a": 1, "b": 1, "c": 1, "d": 1}) == {"a": 1, "b": 1, "c": 1, "d": 0}
    assert shares(3, {"a": 1, "b": 1, "c": 1, "d": 1}, {"a": 7, "b": 6, "c": 7}) == {"a": 1, "b": 1, "c": 0, "d": 1}
    assert shares(100, {"a": 1, "b": 2, "c": 1000, "d": 0}) == {"a": 1, "b": 1, "c": 98, "d": 0}


def test_each_journal_with_a_backlog_is_in_every_batch(root: Path) -> None:
    with jlog.Writer(root / "large") as writer:
        fill(writer, 10_000)
    reader = stream(root, journalPattern=".*", maxRecordsPerTrigger=100)
    found = reached(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))
    assert found["little"] >= 1
    assert found["large"] + found["little"] == 100


def test_journals_take_turns_where_the_limit_is_too_small(root: Path) -> None:
    for name in ("little", "empty"):
        with jlog.Writer(root / name) as writer:
            fill(writer, 90)
    reader = stream(root, journalPattern=".*", maxRecordsPerTrigger=1)
    marks = reader.initialOffset()
    for records in (1, 2, 3):
        for _ in range(3):
            marks = reader.latestOffset(marks, reader.getDefaultReadLimit())
        assert reached(marks) == {"large": records, "little": records, "empty": records}


def test_an_available_now_run_stops_at_the_end_it_began_with(root: Path) -> None:
    reader = stream(root / "little")
    reader.prepareForTriggerAvailableNow()
    with jlog.Writer(root / "little") as writer:
        fill(writer, 5)
    assert reached(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())) == {"little": 10}


def test_an_available_now_run_leaves_new_journals_to_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "LOOK_SECONDS", 0)
    reader = stream(root, journalPattern=".*")
    reader.prepareForTriggerAvailableNow()
    with jlog.Writer(root / "new") as writer:
        fill(writer, 5)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert len(rows(reader, begin, end)) == 110
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader = stream(root, journalPattern=".*")
    reader.prepareForTriggerAvailableNow()
    assert reached(reader.latestOffset(end, ReadAllAvailable()))["new"] == 5


def test_an_available_now_run_goes_on_from_a_newer_offset(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second driver of the same query, or an earlier run, has read a journal that this run did not find at its start."""
    monkeypatch.setattr(stream_reader, "LOOK_SECONDS", 0)
    reader = stream(root, journalPattern=".*")
    reader.prepareForTriggerAvailableNow()
    for name in ("large", "new"):
        with jlog.Writer(root / name) as writer:
            fill(writer, 5)
    other = stream(root, journalPattern=".*")
    newer = other.latestOffset(other.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(newer, ReadAllAvailable()) == newer


def test_a_new_query_creates_its_subscriber_before_it_reads(root: Path) -> None:
    stream(root / "large", subscriber="lake").initialOffset()
    read_away(root / "large", "billing")
    journal = jlog.Journal(root / "large")
    assert (journal.first_sequence, journal.subscribers()["lake"].sequence) == (0, 0)


def test_a_first_subscriber_is_logged_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Retention begins to remove what is read, which a journal without a subscriber never does."""
    jlog.Journal(root / "empty").add_subscriber("billing")
    reader = stream(root, journalPattern=".*", subscriber="lake")
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    stream(root, journalPattern=".*", subscriber="lake").initialOffset()
    (line,) = caplog.messages
    assert line.startswith("large, little: lake is the first subscriber, created for this query. ")
    assert "retention removes segments that all subscribers and checkpoints have passed" in line


def test_a_subscriber_that_an_old_query_gets_is_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    marks = stream(root / "little").latestOffset()
    stream(root / "little", subscriber="lake").latestOffset(marks, ReadAllAvailable())
    assert len(caplog.messages) == 1
    assert jlog.Journal(root / "little").subscribers()["lake"].sequence == 10


def test_a_subscriber_that_removes_nothing_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jlog.Journal.create(tmp_path / "orders", retention=jlog.Retention(delete_read=False))
    stream(tmp_path / "orders", subscriber="lake").initialOffset()
    assert not caplog.messages


def test_the_subscriber_moves_with_commits_and_never_backward(root: Path) -> None:
    reader = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30)
    begin = reader.initialOffset()
    first = reader.latestOffset(begin, reader.getDefaultReadLimit())
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    journal = jlog.Journal(root / "large")
    for marks, expected in ((first, 30), (second, 60), (first, 60), (begin, 60)):
        reader.commit(marks)
        assert journal.subscribers()["lake"].sequence == expected
    assert not journal.subscribers()["lake"].busy


def test_the_subscriber_moves_after_a_synced_checkpoint(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss Spark could otherwise repeat a batch whose records are removed."""
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/1"):
        (tmp_path / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / name).write_text("v1")
    synced, sync = {}, os.fsync

    def note(fd: int) -> None:
        synced[os.readlink(f"/proc/self/fd/{fd}")] = jlog.Journal(root / "large").subscribers()["lake"].sequence
        sync(fd)

    reader = stream(root / "large", subscriber="lake", checkpointLocation=tmp_path / "checkpoint")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    monkeypatch.setattr(os, "fsync", note)
    reader.latestOffset(end, ReadAllAvailable())
    assert jlog.Journal(root / "large").subscribers()["lake"].sequence == 100
    for name in ("offsets/1", "commits/1", "offsets", "commits"):
        assert synced[str(tmp_path / "checkpoint" / name)] == 0


def test_the_subscribers_of_many_journals_move_after_one_sync_of_the_checkpoint(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("offsets/0", "commits/0"):
        (tmp_path / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / name).write_text("v1")
    synced, sync = [], os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    reader = stream(root, journalPattern="large|little", subscriber="lake", checkpointLocation=tmp_path / "checkpoint")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    synced.clear()
    monkeypatch.setattr(os, "fsync", note)
    reader.commit(end)
    assert synced.count(str(tmp_path / "checkpoint" / "offsets" / "0")) == 1
    for name in ("large", "little"):
        assert jlog.Journal(root / name).subscribers()["lake"].lag == 0


def test_a_subscriber_that_something_else_has_moved_ends_the_query_or_is_logged(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = r"lake stands at 50, ahead of this query at 0\. Another query, pipeline or program moves a subscriber of this name"
    for is_fatal in (True, False):
        reader = stream(root / "large", subscriber="lake", failOnDataLoss=str(is_fatal).lower(), startingSequence="earliest")
        begin = reader.initialOffset()
        jlog.Journal(root / "large").set_subscriber("lake", 50)
        if is_fatal:
            with pytest.raises(JournalError, match=rf"{told}.*jlogtool subscriber set .*large lake 0"):
                reader.latestOffset(begin, ReadAllAvailable())
        else:
            assert reached(reader.latestOffset(begin, ReadAllAvailable())) == {"large": 100}
    assert re.search(told, caplog.text)


def test_a_second_query_with_the_same_subscriber_is_refused(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30, checkpointLocation="/checkpoints/first")
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    first.commit(end)
    told = r"the subscriber lake belongs to the query \w{8}, whose checkpoint is /checkpoints/first \(on .*, since .*\), and"
    second = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30)
    with pytest.raises(JournalError, match=rf"{told}.* jlogtool subscriber set {root}/large lake 30"):
        second.latestOffset(second.initialOffset(), second.getDefaultReadLimit())
    assert jlog.Journal(root / "large").subscribers()["lake"].sequence == 30
    lenient = stream(root / "large", subscriber="lake", failOnDataLoss="false")
    lenient.latestOffset(lenient.initialOffset(), ReadAllAvailable())
    assert re.search(told, caplog.text)


def test_a_query_gets_its_subscriber_where_spark_asks_for_the_next_batch(root: Path) -> None:
    """As at the end of a run, before the commit of the last batch."""
    first, second = (stream(root / "large", subscriber="lake") for _ in range(2))
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.latestOffset(end, ReadAllAvailable())
    first.stop()
    with pytest.raises(JournalError, match="belongs to the query"):
        second.latestOffset(second.initialOffset(), ReadAllAvailable())


def test_of_two_queries_that_begin_at_once_one_gets_the_subscriber(root: Path) -> None:
    first, second = (stream(root / "large", subscriber="lake") for _ in range(2))
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    with pytest.raises(JournalError, match="another query has begun with the subscriber lake"):
        second.initialOffset()
    first.commit(end)
    with pytest.raises(JournalError, match="belongs to the query"):
        second.initialOffset()


def test_a_query_that_starts_again_keeps_its_subscriber(root: Path) -> None:
    """The checkpoint keeps its id, also where the first run ended before a commit."""
    first = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30)
    one = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    first.stop()
    again = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30)
    assert rows(again, again.initialOffset(), one) == list(range(30))
    again.commit(one)
    two = again.latestOffset(one, again.getDefaultReadLimit())
    third = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30)
    assert reached(third.latestOffset(two, third.getDefaultReadLimit())) == {"large": 90}
    assert jlog.Journal(root / "large").subscribers()["lake"].sequence == 60


def test_a_checkpoint_from_before_owners_gets_its_subscriber(root: Path) -> None:
    jlog.Journal(root / "large").add_subscriber("lake", 10)
    old = {name: {**at, "sequence": 10} for name, at in stream(root / "large").initialOffset().items()}
    reader = stream(root / "large", subscriber="lake")
    end = reader.latestOffset(old, ReadAllAvailable())
    reader.commit(end)
    other = stream(root / "large", subscriber="lake")
    with pytest.raises(JournalError, match="belongs to the query"):
        other.latestOffset(old, ReadAllAvailable())


def test_a_subscriber_that_was_set_or_created_anew_is_free(root: Path) -> None:
    journal = jlog.Journal(root / "large")
    for release in (lambda: journal.set_subscriber("lake", 30), lambda: journal.remove_subscriber("lake")):
        reader = stream(root / "large", subscriber="lake", maxRecordsPerTrigger=30)
        reader.commit(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))
        release()
    reader = stream(root / "large", subscriber="lake")
    reader.commit(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert journal.subscribers()["lake"].sequence == 100


def test_removed_records_are_not_blamed_on_the_subscriber_that_did_its_work(tmp_path: Path) -> None:
    """A second query of the same name has passed them."""
    with jlog.Writer(tmp_path / "orders", segment_bytes=4096) as writer:
        for _ in range(20):
            writer.extend([b"x" * 100] * 10)
    reader = stream(tmp_path / "orders", subscriber="lake", maxRecordsPerTrigger=10)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    with jlog.Reader(tmp_path / "orders", "lake") as other:
        other.commit(150)
    jlog.Journal(tmp_path / "orders").clean()
    with pytest.raises(JournalError, match="lake stands at 150, ahead of this query at 0"):
        reader.partitions(begin, end)


def test_removed_records_that_the_subscriber_has_not_passed_are_explained(tmp_path: Path) -> None:
    retention = jlog.Retention(max_bytes=8192, keep_for_subscribers=False)
    with jlog.Writer(tmp_path / "orders", segment_bytes=4096, retention=retention) as writer:
        writer.extend([b"x" * 100] * 10)
        reader = stream(tmp_path / "orders", subscriber="lake")
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        for _ in range(20):
            writer.extend([b"x" * 100] * 10)
    first = jlog.Journal(tmp_path / "orders").first_sequence
    with pytest.raises(PositionLost, match=rf"from 0 to {first - 1} are gone, though the subscriber lake .* \(drop_unread\)"):
        reader.partitions(begin, end)


def test_a_busy_subscriber_does_not_stop_the_query(root: Path) -> None:
    reader = stream(root / "large", subscriber="lake")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    with jlog.Reader(root / "large", "lake"):
        reader.commit(end)
    assert jlog.Journal(root / "large").subscribers()["lake"].sequence == 0
    reader.commit(end)
    assert jlog.Journal(root / "large").subscribers()["lake"].sequence == 100


def test_a_batch_that_is_planned_again_is_the_same(root: Path) -> None:
    reader = stream(root / "large")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    with jlog.Writer(root / "large") as writer:
        fill(writer, 50)
    for again in (reader, stream(root / "large")):
        assert rows(again, begin, end) == list(range(100))


def test_a_removed_segment_fails_the_plan(root: Path) -> None:
    reader = stream(root / "large")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    with jlog.Writer(root / "large") as writer:
        writer.roll()
    read_away(root / "large", "billing", 60)
    with pytest.raises(PositionLost, match="the records from 0 to"):
        reader.partitions(begin, end)


def test_a_gap_before_the_first_record_is_not_a_loss(root: Path, tmp_path: Path) -> None:
    """A power loss leaves a gap in the sequences, and retention removes all that was before it."""
    with jlog.Writer(root / "little") as writer:
        writer.sync()
        left = lose_unsynced(root / "little", tmp_path / "left")
    marks = stream(left).latestOffset()
    with jlog.Writer(left) as writer:
        first = writer.next_sequence
        fill(writer, 5)
        writer.roll()
        fill(writer, 5)
    read_away(left, "billing", first)
    assert jlog.Journal(left).first_sequence == first > 10
    end = stream(left).latestOffset(marks, ReadAllAvailable())
    assert rows(stream(left), marks, end) == list(range(first, first + 10))


@pytest.fixture
def broken(root: Path, tmp_path: Path) -> Path:
    """A journal of 10 records, the gap of millions of sequences that a power loss leaves, and 50 records."""
    with jlog.Writer(root / "little") as writer:
        writer.sync()
        left = lose_unsynced(root / "little", tmp_path / "left")
    with jlog.Writer(left) as writer:
        fill(writer, 50)
    assert jlog.Journal(left).next_sequence > 1_000_000
    return left


@pytest.mark.parametrize("limit", [{"maxRecordsPerTrigger": 20}, {"maxBytesPerTrigger": 1_000}])
def test_a_gap_does_not_count_against_a_limit(broken: Path, limit: dict[str, Any]) -> None:
    reader = stream(broken, **limit)
    marks, found = reader.initialOffset(), []
    while (end := reader.latestOffset(marks, reader.getDefaultReadLimit())) != marks:
        found.append(len(rows(stream(broken), marks, end)))
        marks = end
    assert sum(found) == 60
    assert min(found) > 0
    if "maxRecordsPerTrigger" in limit:
        assert found == [20, 20, 20]


def test_a_gap_is_not_enough_for_a_batch(broken: Path) -> None:
    reader = stream(broken, minRecordsPerTrigger=60, maxTriggerDelay="1h")
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())  # the very first batch does not wait
    start = stream(broken, startingSequence=10).initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start


def test_the_end_of_so_many_records_is_never_in_a_gap() -> None:
    gaps = [(10, 100), (110, 1_000)]
    ends = [sequence_after(5, records, gaps) for records in (0, 1, 5, 6, 15, 16)]
    assert ends == [5, 6, 10, 101, 110, 1_001]
    assert sequence_after(50, 3, gaps) == 103


def test_sequences_without_reading_leave_out_gaps(root: Path, tmp_path: Path) -> None:
    with jlog.Writer(root / "little") as writer:
        writer.sync()
        left = lose_unsynced(root / "little", tmp_path / "left")
    with jlog.Writer(left) as writer:
        first = writer.next_sequence
        fill(writer, 50)
    expected = [*range(10), *range(first, first + 50)]
    assert first > 10
    for start in (0, 5, 10, 11, first, first + 7):
        reader = BatchReader(SCHEMA, parse({"path": str(left), "startingsequence": str(start), "maxrecordsperpartition": "7"}))
        partitions = reader.partitions()
        assert len(partitions) <= 10  # the gap of millions of sequences makes none
        assert all(one.gaps is not None for part in partitions for one in part.ranges)
        found = [at for part in partitions for batch in reader.read(part) for at in batch.column("sequence").to_pylist()]
        assert found == [sequence for sequence in expected if sequence >= start]


def test_a_missing_segment_is_not_a_gap(root: Path) -> None:
    """Its records are planned, so that reading reports them as missing."""
    with jlog.Writer(root / "large", **SMALL) as writer:
        fill(writer, 500)
    segments = sorted((root / "large").glob("*.seg"))
    segments[2].rename(root / "away")
    reader = BatchReader(SCHEMA, parse({"path": str(root / "large")}))
    (part,) = reader.partitions()
    with pytest.raises(JournalError):
        list(reader.read(part))
    (root / "away").rename(segments[2])


def test_a_removed_journal_fails_the_query_or_is_left_out(root: Path) -> None:
    marks = stream(root, journalPattern=".*").initialOffset()
    jlog.Journal.delete(root / "little")
    with pytest.raises(JournalError, match="the query has read little, which is missing now"):
        stream(root, journalPattern=".*").latestOffset(marks, ReadAllAvailable())
    tolerant = stream(root, journalPattern=".*", failOnDataLoss="false")
    end = tolerant.latestOffset(marks, ReadAllAvailable())
    assert reached(end) == {"large": 100, "little": 0, "empty": 0}
    assert rows(tolerant, marks, end) == list(range(100))


def test_a_journal_goes_on_under_another_path(root: Path) -> None:
    reader = stream(root / "large")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    (root / "large").rename(root / "moved")
    with jlog.Writer(root / "moved") as writer:
        fill(writer, 5)
    end = stream(root / "moved").latestOffset(before, ReadAllAvailable())
    assert reached(end) == {"moved": 105}
    assert rows(stream(root / "moved"), before, end) == list(range(100, 105))
    assert rows(stream(root / "moved"), end, stream(root / "moved").latestOffset(end, ReadAllAvailable())) == []


def test_an_older_copy_in_place_of_the_journal_fails_the_query(root: Path, tmp_path: Path) -> None:
    backup = jlog.Journal(root / "large").backup(tmp_path / "backup")
    with jlog.Writer(root / "large") as writer:
        fill(writer, 50)
    marks = stream(root / "large").latestOffset()
    jlog.Journal.delete(root / "large")
    (tmp_path / "backup").rename(root / "large")
    assert backup.uuid == jlog.Journal(root / "large").uuid
    with pytest.raises(JournalError, match="it has lost its tail, or is another copy"):
        stream(root / "large").latestOffset(marks, ReadAllAvailable())
    with jlog.Writer(root / "large") as writer:
        fill(writer, 100)  # other records under the same numbers
    with pytest.raises(JournalError, match="it has lost its tail, or is another copy"):
        stream(root / "large").latestOffset(marks, ReadAllAvailable())


def test_an_available_now_run_ends_where_it_was_said_and_the_next_goes_on_there(root: Path) -> None:
    begin = stream(root / "large").initialOffset()
    read = []
    for wanted, end in (
        ({"endingSequence": 30}, 30),
        ({"endingSequence": 20}, 30),
        ({"endingTimestamp": "2999-01-01T00:00:00Z"}, 100),
    ):
        reader = stream(root / "large", **wanted)
        reader.prepareForTriggerAvailableNow()
        marks = reader.latestOffset(begin, ReadAllAvailable())
        read += rows(reader, begin, marks)
        assert reached(marks) == {"large": end}
        begin = marks
    assert read == list(range(100))


def test_each_journal_has_an_end_of_its_own(root: Path) -> None:
    reader = stream(root, journalPattern=".*", endingSequence=json.dumps({"large": 7}))
    reader.prepareForTriggerAvailableNow()
    assert reached(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())) == {"large": 7, "little": 10, "empty": 0}
    with pytest.raises(ValueError, match="a position is given for other, which is not read"):
        stream(root, journalPattern=".*", endingSequence=json.dumps({"other": 7})).prepareForTriggerAvailableNow()


def test_a_stream_that_follows_has_no_end(root: Path) -> None:
    reader = stream(root / "large", endingSequence=5)
    with pytest.raises(ValueError, match=r"for a stream that ends: give it trigger\(availableNow=True\)"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_partition_of_nothing_has_no_rows(root: Path) -> None:
    """Spark creates one if a reader plans none."""
    assert list(stream(root / "large").read(InputPartition(None))) == []


def test_segments_that_a_range_does_not_touch_are_not_listed(root: Path) -> None:
    whole = jlog.Journal(root / "large").segments()
    (source,) = sources_of(parse({"path": str(root / "large")})).values()
    for start in range(0, 100, 3):
        for end in range(start + 1, 101, 3):
            touched = [one for one in whole if one.first_sequence < end and one.end_sequence > start]
            assert source.segments_between(start, end) == touched


def test_gaps_that_a_range_does_not_touch_are_not_read(root: Path) -> None:
    with jlog.Writer(root / "large", **SMALL) as writer:
        fill(writer, 500)
    files = hostile.segments(root / "large")
    (source,) = sources_of(parse({"path": str(root / "large")})).values()
    contents = {file: file.read_bytes() for file in (files[2], files[3], files[-1])}
    for file in contents:
        hostile.set_segment_header(file, previous_end_sequence=int(file.stem) - 1)
    whole = Gaps(source.path, read_meta(source.path).uuid).all()
    assert len(whole) == 3
    for start in range(0, 600, 9):
        for end in range(start + 1, 601, 9):
            assert source.gaps(start, end) == {gap for gap in whole if gap[0] < end and gap[1] > start}
    for file, content in contents.items():
        file.write_bytes(content)


@pytest.mark.parametrize("written", ["file:{}", "file://{}", "FILE://localhost{}"])
def test_a_file_url_names_the_same_journal_as_everywhere(tmp_path: Path, written: str) -> None:
    path = tmp_path / "50% of # it?"
    jlog.Journal.create(path)
    url = written.format(str(path).replace("%", "%25").replace("#", "%23").replace("?", "%3F").replace(" ", "%20"))
    (source,) = sources_of(parse({"path": url})).values()
    assert source.path == check_source(url) == str(path)


# --- A driver that may only read --------------------------------------------------------------------------------------

ELSEWHERE = """
    import logging, sys
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import LongType, StructField, StructType
    from jlog.errors import JournalError
    from jlog.spark.reading.batch_reader import BatchReader
    from jlog.spark.reading.options import parse
    from jlog.spark.reading.stream_reader import StreamReader

    schema = StructType([StructField("sequence", LongType())])
    lines, reported = [], {{}}
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("jlog.spark").addHandler(handler)
    given = {{"path": {path!r}}}

    def sequences(reader, partitions):
        return [s for one in partitions for batch in reader.read(one) for s in batch.column("sequence").to_pylist()]

    def followed(times=1):
        reader = StreamReader(schema, given)
        begin = reader.initialOffset()
        for _ in range(times):
            end = reader.latestOffset(begin, ReadAllAvailable())
        for name, found in reader.reportLatestOffset().items():
            reported[os.path.basename(name)] = found
        return sequences(reader, reader.partitions(begin, end))

    def read():
        reader = BatchReader(schema, parse({{**given, "durable": "true"}}))
        return sequences(reader, reader.partitions())
"""


def elsewhere(path: Path, code: str) -> None:
    """Runs the code on a host of another name, where the journal is mounted read-only."""
    code = textwrap.dedent(ELSEWHERE.format(path=str(path))) + textwrap.dedent(code)
    run_python(code, within=mounted_by(read_only(path), host="another-host"))


@pytest.mark.parametrize("boot", ["this", "another"])
def test_a_read_only_driver_reads_what_is_synced(root: Path, boot: str) -> None:
    path = root / "little"
    with jlog.Writer(path) as writer:
        writer.sync()
        fill(writer, 7)
        if boot == "another":
            path = copy(path, root / "copy")
            another_boot(path)
        elsewhere(path, "assert followed() == read() == list(range(10))")


def test_a_read_only_driver_says_what_is_not_durable(root: Path) -> None:
    """The ten records that were there before were synced by the last close."""
    with jlog.Writer(root / "little", sync="none") as writer:
        fill(writer, 7)
        elsewhere(
            root / "little",
            """
            assert followed(times=5) == list(range(10))
            (line,) = lines
            assert "on another-host it is mounted read-only. So only durable records are read, and none of the 7" in line
            assert read() == list(range(10))
            assert len(lines) == 2
            assert reported["little"]["recordsNotDurable"] == 7
            """,
        )


def test_a_subscriber_that_cannot_be_moved_is_refused_at_once(root: Path) -> None:
    elsewhere(
        root / "little",
        """
        reader = StreamReader(schema, {**given, "subscriber": "lake"})
        try:
            reader.initialOffset()
        except JournalError as error:
            assert "lake cannot follow this query: on another-host it is mounted read-only. Run the driver on" in str(error)
        else:
            sys.exit("it was allowed")
        """,
    )
    (source,) = sources_of(parse({"path": str(root / "little")})).values()
    assert source.reason_against_writing is None


# --- Progress, and how long a batch waits -----------------------------------------------------------------------------


def test_the_report_has_the_distance_to_the_latest_record(root: Path) -> None:
    reader = stream(root, journals="large,little", maxRecordsPerTrigger=55)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    latest = reader.reportLatestOffset()
    for name, size in (("large", 100), ("little", 10)):
        lag = size - end[name]["sequence"]
        assert latest[name]["recordsBehindLatest"] == lag > 0
        assert abs(latest[name]["bytesBehindLatest"] - lag * 100) < lag * 20 + 200
        assert set(end[name]) == {"sequence", "uuid", "epoch"}  # what Spark stores and compares is the position alone
    reader.latestOffset(end, ReadAllAvailable())
    found = reader.reportLatestOffset()
    assert {name: (at["recordsBehindLatest"], at["bytesBehindLatest"]) for name, at in found.items()} == {
        "large": (0, 0),
        "little": (0, 0),
    }


def test_a_batch_waits_for_the_least_number_of_records(root: Path) -> None:
    reader = stream(root / "little", minRecordsPerTrigger=20, maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(20)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert reached(first) == {"little": 10}  # the very first batch does not wait
    for records, expected in ((15, 10), (5, 30)):
        with jlog.Writer(root / "little") as writer:
            fill(writer, records)
        assert reached(reader.latestOffset(first, limit)) == {"little": expected}


def test_a_batch_waits_no_longer_than_the_delay(root: Path) -> None:
    reader = stream(root / "little", minRecordsPerTrigger=20, maxTriggerDelay="1us")
    for records in (10, 15):
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        assert reached(end) == {"little": records}
        with jlog.Writer(root / "little") as writer:
            fill(writer, 5)


def test_an_available_now_run_waits_for_no_number_of_records(root: Path) -> None:
    reader = stream(root / "little", minRecordsPerTrigger=20, maxTriggerDelay="1h", maxRecordsPerTrigger=30)
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    for _ in range(2):
        assert reached(reader.latestOffset(begin, reader.getDefaultReadLimit())) == {"little": 10}

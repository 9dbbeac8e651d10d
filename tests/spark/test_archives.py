"""spark.readStream.format("jlog").load("s3://…"): streams follow archives, without a process on the journal's host."""

from __future__ import annotations

import json
import os
import pickle
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import jlog
from behaviour.journals import SMALL, fill, read_away
from counting import Counting
from jlog.errors import JournalError, PositionLost
from jlog.spark.reading import ends, spark_archive
from jlog.spark.reading.batch_reader import BatchReader
from jlog.spark.reading.options import parse
from jlog.spark.reading.stream_reader import StreamReader
from spark.running import Driver
from spark.test_offsets import rows, stream
from spark.test_stream import Lake

SCHEMA = StructType([StructField("sequence", LongType())])
SCHEMA_WITH_VALUES = StructType([*SCHEMA.fields, StructField("value", BinaryType())])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists an archive at every look, without a pause."""
    monkeypatch.setattr(ends, "ARCHIVE_SECONDS", 0)
    monkeypatch.setattr(ends, "PAUSE", -1)
    monkeypatch.setattr(spark_archive, "LISTING_SECONDS", 0)
    monkeypatch.setattr(spark_archive, "LISTING_PAUSE", 0)


class Archiving:
    """A journal whose sealed segments go to an archive."""

    def __init__(self, path: Path, url: str) -> None:
        self.path, self.url = path, url
        jlog.Journal.create(path, **SMALL, retention=jlog.Retention(archive=url))

    def archive(self, records: int) -> int:
        """Appends and archives. Returns the archive's end."""
        with jlog.Writer(self.path) as writer:
            fill(writer, records)
            writer.roll()
        read_away(self.path, "billing")
        jlog.Journal(self.path).clean()
        return jlog.Journal(self.path).first_sequence


@pytest.fixture
def orders(tmp_path: Path) -> Archiving:
    return Archiving(tmp_path / "orders", (tmp_path / "archive").as_uri())


def sequence_of(marks: dict[str, Any]) -> int:
    (mark,) = marks.values()
    return int(mark["sequence"])


def test_a_stream_follows_an_archive(orders: Archiving) -> None:
    orders.archive(100)
    reader = stream(orders.url)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert rows(reader, begin, end) == list(range(100))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    orders.archive(50)
    for again in (reader, stream(orders.url)):
        newer = again.latestOffset(end, ReadAllAvailable())
        assert rows(again, end, newer) == list(range(100, 150))
        assert rows(again, begin, end) == list(range(100))  # a batch that is planned again is the same


@pytest.mark.parametrize(("start", "first"), [({}, 0), ({"startingSequence": 120}, 120), ({"startingSequence": "latest"}, 0)])
def test_a_stream_waits_for_an_empty_archive(
    orders: Archiving, start: dict[str, Any], first: int, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(orders.url, **start)
    begin = reader.initialOffset()
    for _ in range(2):
        assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    assert [line for line in caplog.messages if "nothing is archived there yet" in line] == caplog.messages[:1] != []
    for records in (100, 50):
        orders.archive(records)
    for again in (reader, stream(orders.url, **start)):
        end = again.latestOffset(begin, ReadAllAvailable())
        assert rows(again, begin, end) == list(range(first, 150))
    with pytest.raises(JournalError, match="contains no archived"):
        BatchReader(SCHEMA, parse({"path": orders.url + "-of-none"})).partitions()


def test_a_stream_waits_for_the_sequence_that_it_begins_with(orders: Archiving) -> None:
    reader = stream(orders.url, startingSequence=120)
    begin = reader.initialOffset()
    orders.archive(100)
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    orders.archive(50)
    assert rows(reader, begin, reader.latestOffset(begin, ReadAllAvailable())) == list(range(120, 150))


def test_an_available_now_run_of_an_archive_ends_where_it_was(orders: Archiving) -> None:
    reader = stream(orders.url)
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    orders.archive(100)
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    reader = stream(orders.url)
    reader.prepareForTriggerAvailableNow()
    orders.archive(50)
    assert sequence_of(reader.latestOffset(begin, ReadAllAvailable())) == 100


def test_tasks_do_not_list_the_archive(orders: Archiving, tmp_path: Path) -> None:
    """A task has what it needs from the plan, and reads nothing but the segments."""
    orders.archive(300)
    reader = BatchReader(SCHEMA_WITH_VALUES, parse({"path": orders.url, "maxrecordsperpartition": "70"}))
    partitions = reader.partitions()
    for described in (tmp_path / "archive").rglob("*.json"):
        described.unlink()
    planned = pickle.loads(pickle.dumps(partitions))
    found = [at for part in planned for batch in reader.read(part) for at in batch.column("sequence").to_pylist()]
    assert found == list(range(300))


def test_a_plan_lists_the_archive_once(orders: Archiving, tmp_path: Path, counting: type[Counting]) -> None:
    orders.archive(300)
    (folder,) = (tmp_path / "archive").iterdir()
    given = {"path": f"counting://{folder}", "maxrecordsperpartition": "70"}
    reader = BatchReader(SCHEMA_WITH_VALUES, parse(given))
    found = [at for part in reader.partitions() for batch in reader.read(part) for at in batch.column("sequence").to_pylist()]
    assert found == list(range(300))
    assert counting.listings == 1
    following = StreamReader(SCHEMA_WITH_VALUES, {"path": given["path"]})
    begin = following.initialOffset()
    assert rows(following, begin, following.latestOffset(begin, ReadAllAvailable())) == found
    assert counting.listings <= 4  # one whenever Spark asks for the end


def test_new_segments_are_found_without_a_listing(
    orders: Archiving, tmp_path: Path, counting: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_archive, "LISTING_SECONDS", 1e6)
    orders.archive(100)
    reader = stream(f"counting://{next((tmp_path / 'archive').iterdir())}")
    marks = reader.initialOffset()
    listings, found = counting.listings, []
    for records in (0, 50, 0, 1, 200):
        end = orders.archive(records) if records else sequence_of(marks) or 100
        newer = reader.latestOffset(marks, ReadAllAvailable())
        assert sequence_of(newer) == end
        found += rows(reader, marks, newer)
        marks = newer
    assert found == list(range(351))
    assert counting.listings == listings


def test_a_segment_after_a_gap_is_found_by_a_listing(orders: Archiving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_archive, "LISTING_SECONDS", 0.1)
    orders.archive(100)
    reader = stream(orders.url)
    marks = reader.initialOffset()
    child = os.fork()
    if child == 0:
        writer = jlog.Writer(orders.path)
        writer.append(b"lost")
        os._exit(0)
    os.waitpid(child, 0)
    (orders.path / "precommit").unlink()  # as a power loss leaves it: the page is not of this boot
    end = orders.archive(10)
    assert end > 110
    while sequence_of(newer := reader.latestOffset(marks, ReadAllAvailable())) < end:
        pass
    assert rows(reader, marks, newer) == [*range(100), *range(end - 10, end)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an archive of two segments of 16 MB."""
    path = tmp_path_factory.mktemp("large")
    with jlog.Writer(path / "j", retention=jlog.Retention(archive=(path / "archive").as_uri())) as writer:
        for _ in range(2):
            for _ in range(160):
                writer.extend([bytes(1000)] * 100)
            writer.roll()
    read_away(path / "j", "billing")
    jlog.Journal(path / "j").clean()
    return next((path / "archive").iterdir())


def read_all(url: str, **options: str) -> list[list[int]]:
    """Returns the sequences that each task reads."""
    reader = BatchReader(SCHEMA_WITH_VALUES, parse({"path": url, **options}))
    return [
        [at for batch in reader.read(pickle.loads(pickle.dumps(part))) for at in batch.column("sequence").to_pylist()]
        for part in reader.partitions()
    ]


def test_small_partitions_cost_the_bytes_once(large: Path, counting: type[Counting]) -> None:
    tasks = read_all(f"counting://{large}", maxbytesperpartition="4m")
    assert [at for task in tasks for at in task] == list(range(32_000))
    assert len(tasks) == 8
    assert all(task[0] // 16_000 == task[-1] // 16_000 for task in tasks)  # each ends at its segment's border or before
    size = sum(file.stat().st_size for file in large.glob("*.seg"))
    assert size <= counting.bytes_read <= 1.1 * size
    assert counting.listings == 1


def test_ten_records_cost_kilobytes(large: Path, counting: type[Counting]) -> None:
    (task,) = read_all(f"counting://{large}", startingsequence="8000", endingsequence="8010")
    assert task == list(range(8000, 8010))
    assert counting.bytes_read < 300_000


def test_limits_hold_for_archives(orders: Archiving) -> None:
    orders.archive(100)
    reader = stream(orders.url, maxRecordsPerTrigger=30)
    marks, found = reader.initialOffset(), []
    while (end := reader.latestOffset(marks, reader.getDefaultReadLimit())) != marks:
        found += rows(reader, marks, end)
        assert len(found) <= sequence_of(marks) + 30
        marks = end
    assert found == list(range(100))


def test_several_archives_are_streamed_as_one(tmp_path: Path) -> None:
    both = [Archiving(tmp_path / name, (tmp_path / f"archive-of-{name}").as_uri()) for name in ("orders", "clicks")]
    both[0].archive(100)
    reader = StreamReader(SCHEMA, {"paths": f'["{both[0].url}", "{both[1].url}"]'})
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert rows(reader, begin, end) == list(range(100))
    both[1].archive(10)
    newer = reader.latestOffset(end, ReadAllAvailable())
    assert rows(reader, end, newer) == list(range(10))
    for found in reader.reportLatestOffset().values():
        assert found["recordsBehindLatest"] == found["bytesBehindLatest"] == 0
        assert 0 <= found["newestRecordAgeSeconds"] < 1000


def test_a_stream_of_an_archive_has_no_subscriber(orders: Archiving) -> None:
    with pytest.raises(JournalError, match="is an archive, which has no subscribers: leave out the option subscriber"):
        stream(orders.url, subscriber="lake").initialOffset()
    with pytest.raises(ValueError, match="journalPattern looks for journals below a directory"):
        stream(orders.url, journalPattern=".*").initialOffset()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_waits_for_an_archive_that_is_behind(
    orders: Archiving, tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """The query has read the journal itself before."""
    orders.archive(100)
    (folder,) = (tmp_path / "archive").iterdir()
    last = max(folder.glob("*.json"))
    last.rename(tmp_path / "last")
    journal = StreamReader(SCHEMA, {"path": str(orders.path)})
    end = journal.latestOffset(journal.initialOffset(), ReadAllAvailable())
    position = {orders.url: end[str(orders.path)]}
    reader = stream(orders.url, failOnDataLoss=fails)
    for _ in range(2):
        assert reader.latestOffset(position, ReadAllAvailable()) == position
    assert caplog.text.count("the query waits for newer segments") == 1
    (tmp_path / "last").rename(last)
    reader = stream(orders.url, failOnDataLoss=fails)
    orders.archive(50)
    assert rows(reader, position, reader.latestOffset(position, ReadAllAvailable())) == list(range(100, 150))


def test_an_archive_that_lost_segments_fails_the_query(orders: Archiving, tmp_path: Path) -> None:
    orders.archive(100)
    reader = stream(orders.url)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    (folder,) = (tmp_path / "archive").iterdir()
    names = sorted(folder.glob("*.json"))
    names[0].unlink()
    with pytest.raises(PositionLost, match="the records from 0 to"):
        stream(orders.url).partitions(begin, end)
    tolerant = stream(orders.url, failOnDataLoss="false")
    assert rows(tolerant, begin, end) == list(range(int(names[1].stem), 100))


def test_the_archive_of_another_journal_fails_the_query(orders: Archiving, tmp_path: Path) -> None:
    orders.archive(100)
    marks = stream(orders.url).latestOffset()
    (folder,) = (tmp_path / "archive").iterdir()
    folder.rename(tmp_path / "away")
    Archiving(tmp_path / "other", orders.url).archive(200)
    with pytest.raises(JournalError, match="it is the archive of another journal now"):
        stream(orders.url).latestOffset(marks, ReadAllAvailable())


def test_a_query_may_begin_before_the_first_archived_segment(orders: Archiving, tmp_path: Path) -> None:
    orders.archive(100)
    (folder,) = (tmp_path / "archive").iterdir()
    oldest, second, *_ = sorted(folder.glob("*.json"))
    oldest.unlink()
    begin = int(second.stem)
    reader = stream(orders.url, startingSequence=begin)
    marks = reader.initialOffset()
    assert rows(reader, marks, reader.latestOffset(marks, ReadAllAvailable())) == list(range(begin, 100))
    with pytest.raises(PositionLost):
        stream(orders.url, startingSequence=begin - 1).initialOffset()


# --- What it costs ----------------------------------------------------------------------------------------------------


def test_the_newest_records_and_one_more_segment_cost_the_same_in_a_large_archive(
    tmp_path: Path, counting: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of files tell the sequences, and a run lists the archive once."""
    monkeypatch.setattr(fsspec, "available_protocols", lambda: ["counting"])
    found = []
    for count in (5, 40):
        path, place = tmp_path / f"orders-{count}", tmp_path / f"archive-{count}"
        jlog.Journal.create(path, retention=jlog.Retention(archive=f"counting://{place}"))
        journal = jlog.Journal(path)
        for batch in (count, 1):
            with jlog.Writer(path) as writer:
                for _ in range(batch):
                    writer.extend([b"x"] * 20)
                    writer.roll()
            counting.reset()
            assert len(journal.archive()) == batch
            found.append((batch, counting.listings, counting.requests if batch == 1 else None))
        counting.reset()
        (folder,) = place.iterdir()
        end = journal.next_sequence
        reader = BatchReader(SCHEMA_WITH_VALUES, parse({"path": f"counting://{folder}", "startingsequence": str(end - 10)}))
        assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 10
        found.append((10, counting.listings, counting.requests))
    backlog, *few = found[:3]
    same_backlog, *many = found[3:]
    assert many == few
    assert same_backlog[1] == backlog[1]


# --- With Spark -------------------------------------------------------------------------------------------------------


def test_spark_streams_an_archive_into_a_lake(spark: SparkSession, tmp_path: Path, orders: Archiving) -> None:
    lake = Lake(spark, tmp_path / "lake")
    assert lake.run(orders.url) == []
    orders.archive(300)
    assert sum(lake.run(orders.url, maxRecordsPerTrigger=100)) == 300
    orders.archive(200)
    assert sum(lake.run(orders.url)) == 200
    assert lake.rows() == [(orders.url, sequence) for sequence in range(500)]


@pytest.mark.exhaustive
def test_a_stream_follows_an_object_store(s3: str, drive: Callable[[Path], Driver], tmp_path: Path) -> None:
    """The driver has its credentials from its environment. It is killed, and another one goes on."""
    orders, folder = Archiving(tmp_path / "orders", f"{s3}/{secrets.token_hex(8)}"), tmp_path / "lake"
    end = 0

    def reached() -> bool:
        done = [int(path.name) for path in (folder / "checkpoint" / "commits").glob("[0-9]*")]
        if not done:
            return False
        marks = (folder / "checkpoint" / "offsets" / str(max(done))).read_text().splitlines()[-1]
        return sequence_of(json.loads(marks)) == end

    for records in (300, 200):
        driver = drive(folder)
        driver.call("lake", orders.url, folder, {"maxBytesPerPartition": "8k"})
        driver.said("(started)")
        end = orders.archive(records)
        driver.until(reached)
        driver.kill()
    table = pyarrow.dataset.dataset(folder / "rows").to_table()
    assert sorted(table["sequence"].to_pylist()) == list(range(500))

"""spark.readStream.format("jlog"): every record once, as far as the journal reaches."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import jlog
from behaviour.journals import SMALL, fill, read_away
from crash.tampering import lose_unsynced
from patience import HUNG_SECONDS


class Lake:
    """A streaming query from journals to Parquet, which may be started again and again."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder

    def start(self, path: Path, **options: Any) -> StreamingQuery:
        trigger = options.pop("trigger", {"availableNow": True})
        frame = self._spark.readStream.format("jlog").options(**options).load(str(path))
        writer = frame.select("sequence", "journal").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**trigger).start(str(self.folder / "rows"))

    def run(self, path: Path, **options: Any) -> list[int]:
        """Runs up to the present end; returns the number of rows of each batch."""
        query = self.start(path, **options)
        assert query.awaitTermination(HUNG_SECONDS)
        if (raised := query.exception()) is not None:
            raise raised
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> list[tuple[str, int]]:
        table = pyarrow.dataset.dataset(self.folder / "rows").to_table()
        return sorted(zip(table["journal"].to_pylist(), table["sequence"].to_pylist(), strict=True))

    def sequences(self) -> list[int]:
        return [sequence for _, sequence in self.rows()]

    def offset(self) -> dict[str, Any]:
        """Returns the newest offset that the checkpoint has."""
        newest = max((self.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return json.loads(newest.read_text().splitlines()[-1])


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def test_a_run_takes_what_is_there_and_the_next_one_goes_on(lake: Lake, path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
        assert sum(lake.run(path)) == 100  # the open block included
        fill(writer, 50)
        assert sum(lake.run(path)) == 50
        assert lake.run(path) == []
    assert lake.sequences() == list(range(150))


def test_a_running_query_follows_rolls_and_cleaning(lake: Lake, path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 10)
        query = lake.start(path, trigger={"processingTime": "0 seconds"}, subscriber="lake")
        for _ in range(4):
            fill(writer, 100)
            query.processAllAvailable()
            jlog.Journal(path).clean()
        assert jlog.Journal(path).first_sequence > 0
        query.stop()
    assert lake.sequences() == list(range(410))


def test_a_trigger_takes_no_more_than_its_limit(lake: Lake, path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 250)
        assert lake.run(path, maxRecordsPerTrigger=100) == [100, 100, 50]
        fill(writer, 250)
        sizes = lake.run(path, maxBytesPerTrigger="11k")  # of about 109 each
    assert all(80 <= size <= 120 for size in sizes[:-1])
    assert lake.sequences() == list(range(500))


def test_a_running_query_waits_for_enough_records(lake: Lake, path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 10)
        trigger = {"processingTime": "0 seconds"}
        query = lake.start(path, trigger=trigger, minRecordsPerTrigger=100, maxTriggerDelay="1h")
        query.processAllAvailable()
        for records, expected in ((50, 10), (60, 120)):
            fill(writer, records)
            query.processAllAvailable()
            assert lake.sequences() == list(range(expected))
        query.stop()


def test_the_subscriber_follows_and_drives_the_clean_up(lake: Lake, path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 300)
        lake.run(path, subscriber="lake", maxRecordsPerTrigger=100)
        journal = jlog.Journal(path)
        stands = journal.subscribers()["lake"]
        assert (stands.sequence, stands.lag, stands.busy) == (300, 0, False)
        assert journal.first_sequence > 200
        fill(writer, 300)
        assert journal.subscribers()["lake"].lag == 300
        lake.run(path, subscriber="lake")
    assert lake.sequences() == list(range(600))


def test_two_queries_that_begin_together_do_not_share_a_subscriber(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """The first one is within its first batch, and has committed nothing yet."""
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 300)
    began, goes_on = threading.Event(), threading.Event()

    def wait(frame: DataFrame, number: int) -> None:
        began.set()
        assert goes_on.wait(HUNG_SECONDS)

    stream = spark.readStream.format("jlog").option("subscriber", "lake").load(str(path))
    first = stream.writeStream.foreachBatch(wait).option("checkpointLocation", str(tmp_path / "first")).start()
    try:
        assert began.wait(HUNG_SECONDS)
        with pytest.raises(StreamingQueryException, match="another query has begun with the subscriber lake"):
            Lake(spark, tmp_path / "second").run(path, subscriber="lake")
    finally:
        goes_on.set()
        first.stop()


def test_a_query_that_was_stopped_in_its_first_batch_begins_again(spark: SparkSession, lake: Lake, path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 300)
    stream = spark.readStream.format("jlog").option("subscriber", "lake").load(str(path))
    failing = stream.writeStream.foreachBatch(fail).option("checkpointLocation", str(lake.folder / "checkpoint"))
    with pytest.raises(StreamingQueryException):
        failing.start().awaitTermination(HUNG_SECONDS)
    lake.run(path, subscriber="lake")
    assert lake.sequences() == list(range(300))


def fail(frame: DataFrame, number: int) -> None:
    raise ZeroDivisionError(f"batch {number} of {frame.columns}")


def test_a_new_query_begins_at_its_subscriber_or_its_option(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    with jlog.Writer(path) as writer:
        fill(writer, 100)
    read_away(path, "lake", 60)
    lakes = [Lake(spark, tmp_path / name) for name in ("at-subscriber", "told")]
    lakes[0].run(path, subscriber="lake")
    assert lakes[0].sequences() == list(range(60, 100))
    lakes[1].run(path, startingSequence=90)
    assert lakes[1].sequences() == list(range(90, 100))


def test_a_first_batch_whose_beginning_is_not_known_is_refused(lake: Lake, path: Path) -> None:
    """Spark notes where a first batch ends, and not where it begins: a run that was killed in it began at an earlier end."""
    options: dict[str, Any] = {"startingSequence": "latest", "trigger": {"processingTime": "0 seconds"}}
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        query = lake.start(path, **options)
        query.processAllAvailable()
        query.stop()
        for later in ("checkpoint/commits", "rows"):  # which a killed run has not made yet
            shutil.rmtree(lake.folder / later)
        fill(writer, 10)
        with pytest.raises(StreamingQueryException, match="first batch ends at sequence 10, but startingSequence is at 20"):
            lake.run(path, startingSequence="latest")
        lake.run(path, startingSequence="latest", failOnDataLoss="false")
    assert lake.sequences() == list(range(10, 20))


def test_records_known_to_a_checkpoint_survive_a_power_loss(lake: Lake, path: Path, tmp_path: Path) -> None:
    with jlog.Writer(path, sync="none") as writer:
        fill(writer, 100)
        lake.run(path)
        (mark,) = lake.offset().values()
        assert mark["sequence"] == 100
        left = lose_unsynced(path, tmp_path / "left")
    assert jlog.Journal(left).next_sequence == 100


def test_journals_that_come_later_are_read_from_their_beginning(lake: Lake, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with jlog.Writer(root / "one") as writer:
        fill(writer, 10)
    lake.run(root, journalPattern=".*")
    with jlog.Writer(root / "two") as writer:
        fill(writer, 20)
    lake.run(root, journalPattern=".*")
    assert Counter(name for name, _ in lake.rows()) == {"one": 10, "two": 20}


def test_archived_segments_are_read_where_a_query_was_late(lake: Lake, path: Path, tmp_path: Path) -> None:
    archive = (tmp_path / "archive").as_uri()
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=archive)) as writer:
        fill(writer, 100)
        lake.run(path)
        fill(writer, 300)
        read_away(path, "billing")
        assert jlog.Journal(path).clean()
        assert jlog.Journal(path).first_sequence > 100
        lake.run(path)
    assert lake.sequences() == list(range(400))


def test_records_lost_to_retention_fail_a_query(lake: Lake, path: Path) -> None:
    """With failOnDataLoss set to false it goes on after them."""
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
        lake.run(path)
        fill(writer, 300)
        read_away(path, "billing", 350)
        first = jlog.Journal(path).first_sequence
        with pytest.raises(StreamingQueryException, match=f"the records from 100 to {first - 1} are gone"):
            lake.run(path)
        lake.run(path, failOnDataLoss="false")
    assert lake.sequences() == [*range(100), *range(first, 400)]


def test_a_checkpoint_of_another_journal_fails_the_query(lake: Lake, path: Path) -> None:
    with jlog.Writer(path) as writer:
        fill(writer, 100)
    lake.run(path)
    jlog.Journal.delete(path)
    with jlog.Writer(path) as writer:
        fill(writer, 200)
    with pytest.raises(StreamingQueryException, match="it is another journal now"):
        lake.run(path)
    lake.run(path, failOnDataLoss="false")
    assert lake.sequences() == sorted([*range(100), *range(200)])

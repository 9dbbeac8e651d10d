"""From journals to Parquet: each record once, with its fields as columns."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

import jlog
from jlog.pipeline.checkpoint import Checkpoint
from jlog.pipeline.destination import Destination
from jlog.pipeline.inputs import Inputs
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Pipeline, Summary
from jlog.pipeline.plan import PipelinePlan
from jlog.pipeline.tables.parquet import ParquetTable
from jlog.pipeline.tables.table import BatchId
from patience import HUNG_SECONDS

DAY_US = 86_400_000_000
NOON_US = 20_000 * DAY_US + DAY_US // 2


@pytest.fixture
def plan(plan: PipelinePlan) -> PipelinePlan:
    return replace(plan, parser=Parser("none"))


def rows(directory: str | Path) -> list[dict[str, Any]]:
    """Returns the rows as a reader sees them that knows nothing of Spark."""
    found = pyarrow.dataset.dataset(str(directory), format="parquet", partitioning="hive").to_table()
    listed: list[dict[str, Any]] = found.to_pylist()
    return sorted(listed, key=lambda row: (row.get("journal", ""), row.get("sequence", 0)))


def parquet_files(directory: str | Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in Path(directory).rglob("*.parquet"))


# --- Values ---------------------------------------------------------------------------------------------------------


def test_without_parsing_a_record_is_a_row_below_its_utc_date(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    times = [NOON_US, NOON_US + 1, NOON_US + DAY_US]
    found = run(plan, [b"a", b"\xff", None], keys=[b"k", None, None], timestamps_us=times)
    assert (found.records_in, found.records_out, found.records_bad) == (3, 3, 0)
    first, second, third = rows(plan.dest)
    assert (first["sequence"], first["key"], first["value"]) == (0, b"k", b"a")
    assert first["timestamp"] == datetime.fromtimestamp(NOON_US / 1e6, timezone.utc)
    assert (second["value"], third["value"]) == (b"\xff", None)
    assert {name.partition("/")[0] for name in parquet_files(plan.dest)} == {
        "date=2024-10-04",
        "date=2024-10-05",
    }


def test_fields_of_json_are_columns_and_the_rest_is_quarantined(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    good = [
        b'{"level": "info", "n": 1, "at": {"x": [1, 2]}}',
        b'{"level": "warn", "n": 2, "timestamp": "noon"}',
    ]
    bad = [b"text", b'{"level": "info", "n": "many"}', b"\xff", None, b"[1]", b""]
    plan = replace(plan, parser=Parser("json"))
    run(plan, [*good])
    found = run(plan, [*bad, b'{"new": {"a": 1}, "n": 3}'])
    assert (found.records_in, found.records_out, found.records_bad) == (7, 1, 6)
    first, second, third = rows(plan.dest)
    assert (first["level"], first["n"], first["at"], first["other"]) == ("info", 1, {"x": [1, 2]}, None)
    assert (second["value_timestamp"], type(second["timestamp"])) == ("noon", datetime)
    assert (third["level"], third["n"], third["other"]) == (None, 3, [("new", '{"a":1}')])
    assert [row["value"] for row in rows(plan.quarantine)] == bad
    reasons = [row["error"] for row in rows(plan.quarantine)]
    assert reasons[1:4] == [
        "a field does not fit into its column",
        "the value is not UTF-8",
        "the value is null",
    ]
    assert {reasons[0], *reasons[4:]} == {"the value is not a JSON object"}


def test_groups_of_a_pattern_are_columns(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    pattern = r"^(?<level>[A-Z]+) (?P<took_ms>\S+)(?: (.*))?$"
    plan = replace(plan, parser=Parser("regex", pattern), schema="took_ms int, level string")
    found = run(plan, [b"INFO 12 x", b"WARN 7", b"INFO soon", b"what"])
    assert (found.records_out, found.records_bad) == (2, 2)
    assert [(row["level"], row["took_ms"]) for row in rows(plan.dest)] == [("INFO", 12), ("WARN", 7)]
    assert [row["error"] for row in rows(plan.quarantine)] == [
        "took_ms does not fit into int",
        "the pattern does not match",
    ]


def test_pairs_of_logfmt_are_columns(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    plan = replace(plan, parser=Parser("logfmt", keep_value=True))
    values = [
        b'level=info msg="a \\"b\\" c" debug took=1.5',
        b"level=warn level=error",
        b"plain text",
        b'm="x',
    ]
    found = run(plan, values)
    assert (found.records_out, found.records_bad) == (2, 2)
    first, second = rows(plan.dest)
    assert (first["level"], first["msg"], first["took"]) == ("info", 'a "b" c', "1.5")
    assert (second["level"], second["msg"], second["value"]) == ("error", None, values[1])
    assert [row["value"] for row in rows(plan.quarantine)] == values[2:]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("regex",), "needs --pattern"),
        (("json", "x"), "needs --pattern"),
        (("regex", "no group"), "no named group"),
        (("regex", "(?<a>"), "not a regular expression"),
    ],
)
def test_a_pattern_that_makes_no_columns_is_refused(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Parser(*arguments)


# --- Where it goes --------------------------------------------------------------------------------------------------


def test_rows_go_below_the_columns_given(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    plan = replace(plan, parser=Parser("json"), partition_by=("level", "hour"))
    run(plan, [b'{"level": "a/b", "n": 1}'], timestamps_us=[NOON_US])
    (name,) = parquet_files(plan.dest)
    assert name.startswith("level=a%2Fb/hour=12/")
    assert rows(plan.dest)[0]["level"] == "a/b"


def test_a_column_that_is_not_there_to_partition_by_is_named(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    with pytest.raises(ValueError, match=r"no column levl to partition by; the columns are .*level"):
        run(replace(plan, parser=Parser("json"), partition_by=("levl",)), [b'{"level": "x"}'])


def test_several_journals_are_told_apart_by_their_column(spark: SparkSession, plan: PipelinePlan, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        with jlog.Writer(path) as writer:
            writer.append(path.encode())
    Pipeline(replace(plan, sources=tuple(paths))).run(spark)
    assert [(row["journal"], row["value"].decode()) for row in rows(plan.dest)] == [(p, p) for p in paths]


def test_nothing_to_do_is_a_summary_of_nothing(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    found = run(replace(plan, parser=Parser("json")))
    assert (found.records_in, found.batches) == (0, 0)


def test_a_source_is_named_once(plan: PipelinePlan) -> None:
    with pytest.raises(ValueError, match="kafka://host/orders is named twice"):
        replace(plan, sources=("kafka://host/orders", "/journal", "kafka://host/orders"))


def test_a_directory_whose_checkpoint_is_gone_is_refused(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    run(plan, [b"a"])
    with pytest.raises(jlog.JournalError, match=f"belongs to another pipeline, with the checkpoint {plan.checkpoint}"):
        run(replace(plan, checkpoint=plan.checkpoint + "-new"), [b"b"])
    with pytest.raises(ValueError, match="other settings"):
        run(replace(plan, partition_by=("hour",)))
    assert len(rows(plan.dest)) == 1


# --- Asking and counting --------------------------------------------------------------------------------------------


def test_a_query_is_asked_of_all_that_is_there(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    query = "SELECT level, count(*) AS n FROM records GROUP BY level ORDER BY level"
    plan = replace(plan, parser=Parser("json"), query=query)
    run(plan, [b'{"level": "a"}', b'{"level": "b"}'])
    assert run(plan, [b'{"level": "a"}']).query == [{"level": "a", "n": 2}, {"level": "b", "n": 1}]


def test_a_slip_in_the_query_shows_before_the_work_begins(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    with pytest.raises(jlog.JournalError, match=r"(?i)syntax"):
        run(replace(plan, query="SELEC 1"), [b"a"])
    assert not Path(plan.dest).exists()


# --- Exactly once ---------------------------------------------------------------------------------------------------


def test_it_goes_on_where_it_was(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    for first in range(0, 30, 10):
        found = run(plan, [b"%d" % number for number in range(first, first + 10)])
        assert found.records_in == 10
    assert [row["value"] for row in rows(plan.dest)] == [b"%d" % number for number in range(30)]


def test_a_batch_that_spark_runs_again_adds_nothing(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    """The driver was killed after the batch, before Spark noted that."""
    plan = replace(plan, parser=Parser("json"))
    run(plan, [b'{"n": 1}', b"bad"])
    for name in ("0", ".0.crc"):
        Path(plan.checkpoint, "records", "commits", name).unlink()
    run(plan, [b'{"n": 2}'])
    assert [row["n"] for row in rows(plan.dest)] == [1, 2]
    assert len(rows(plan.quarantine)) == 1


def test_the_subscriber_follows(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    run(replace(plan, subscriber="lake"), [b"x"] * 25)
    assert jlog.Journal(plan.sources[0]).subscribers()["lake"].lag == 0


def test_a_large_journal_is_taken_in_batches(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    found = run(replace(plan, batch_records=10), [b"x"] * 25)
    assert (found.records_out, found.batches) == (25, 3)


def test_an_empty_archive_is_begun_where_it_was_said(
    spark: SparkSession, run: Callable[..., Summary], plan: PipelinePlan, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    plan = replace(plan, sources=(f"file://{tmp_path}/archive",), start="5")
    assert Pipeline(plan).run(spark).records_in == 0
    with jlog.Writer(tmp_path / "journal", retention=jlog.Retention(archive=f"file://{tmp_path}/archive")) as writer:
        writer.extend([b"a"] * 12)
        writer.roll()
    jlog.Journal(tmp_path / "journal").archive()
    Pipeline(plan).run(spark)
    assert [row["sequence"] for row in rows(plan.dest)] == list(range(5, 12))


def test_it_goes_on_in_a_journal_that_was_moved(
    spark: SparkSession, run: Callable[..., Summary], plan: PipelinePlan, tmp_path: Path
) -> None:
    run(plan, [b"old"] * 10)
    (tmp_path / "journal").rename(tmp_path / "moved")
    for records in (5, 3):
        with jlog.Writer(tmp_path / "moved") as writer:
            writer.extend([b"new"] * records)
        assert Pipeline(replace(plan, sources=(str(tmp_path / "moved"),))).run(spark).records_in == records
    assert [row["sequence"] for row in rows(plan.dest)] == list(range(18))


@pytest.mark.parametrize("records", [4, 40])
def test_a_replaced_journal_is_read_whole_if_it_may(
    run: Callable[..., Summary], plan: PipelinePlan, tmp_path: Path, records: int
) -> None:
    run(plan, [b"old"] * 10)
    jlog.Journal.delete(tmp_path / "journal")
    assert run(replace(plan, fail_on_data_loss=False), [b"new"] * records).records_in == records
    assert len(rows(plan.dest)) == 10 + records


# --- Checkpoints --------------------------------------------------------------------------------------------------------


def cut_tail(checkpoint: str, query: str, first: int) -> None:
    """Removes Spark's newest files, as a power loss may do."""
    for folder in ("offsets", "commits"):
        for path in Path(checkpoint, query, folder).iterdir():
            if int("".join(filter(str.isdigit, path.name))) >= first:
                path.unlink()


def test_new_directories_are_synced_with_their_files(
    run: Callable[..., Summary], plan: PipelinePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss would take unsynced ones, although the subscriber has moved."""
    synced, sync = set(), os.fsync

    def note(fd: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{fd}")))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    run(plan, [b"a"])
    made = {path.parent for path in Path(plan.dest).rglob("*.parquet")}
    checkpoint = Path(plan.checkpoint)
    places = {checkpoint, Path(plan.dest, "_jlog"), checkpoint / "records", checkpoint / "records" / "offsets"}
    assert {*made, Path(plan.dest), *places, tmp_path} <= synced
    assert checkpoint / "records" / "metadata" in synced


def test_a_checkpoint_that_lost_its_tail_is_refused(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    """Spark would come with more records under a number that the table knows."""
    for values in ([b"a"] * 10, [b"b"] * 10):
        run(plan, values)
    cut_tail(plan.checkpoint, "records", 1)
    with pytest.raises(jlog.JournalError, match=r"lake has batch 1, and the checkpoint .* does not know it"):
        run(plan, [b"c"] * 10)
    assert len(rows(plan.dest)) == 20


@pytest.mark.exhaustive
def test_a_checkpoint_that_goes_back_is_refused(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    for _ in range(3):
        run(plan, [b"a"] * 10)
    cut_tail(plan.checkpoint, "records", 1)
    with pytest.raises(jlog.JournalError, match=r"lake has batch 2, and the checkpoint .* does not know it"):
        run(plan, [b"c"] * 10)
    assert len(rows(plan.dest)) == 30


def test_a_second_driver_is_refused_with_the_first_one(
    spark: SparkSession, run: Callable[..., Summary], plan: PipelinePlan
) -> None:
    with Checkpoint(spark, plan.checkpoint).held():
        with pytest.raises(jlog.JournalError, match=rf"another pipeline runs on .*: process {os.getpid()} on "):
            run(plan, [b"a"])
    assert run(plan).records_in == 1


def test_an_older_driver_on_an_object_store_ends(spark: SparkSession, tmp_path: Path) -> None:
    """On a file system without locks the newest driver goes on."""
    one, other = Checkpoint(spark, str(tmp_path / "checkpoint")), Checkpoint(spark, str(tmp_path / "checkpoint"))
    for checkpoint in (one, other):
        checkpoint._files.local_path = lambda _: None  # type: ignore[method-assign]
    with one.held():
        one.check_owner()
        with other.held():
            other.check_owner()
            with pytest.raises(jlog.JournalError, match="another pipeline has begun to run"):
                one.check_owner()


def test_an_older_driver_ends_where_locks_are_not_seen(spark: SparkSession, tmp_path: Path) -> None:
    """Some mounts of NFS keep locks for each host alone."""
    one, other = Checkpoint(spark, str(tmp_path / "checkpoint")), Checkpoint(spark, str(tmp_path / "checkpoint"))
    with one.held():
        one.check_owner()
        (tmp_path / "checkpoint" / "lock").unlink()
        with other.held(), pytest.raises(jlog.JournalError, match="another pipeline has begun to run"):
            one.check_owner()


def test_a_killed_first_run_leaves_its_place_to_the_next(
    spark: SparkSession, run: Callable[..., Summary], plan: PipelinePlan
) -> None:
    """The place stays the same, although `latest` means another one by then."""
    run(plan, [b"old"] * 5)
    paths = {name: f"{getattr(plan, name)}-2" for name in ("dest", "quarantine", "checkpoint")}
    anew = replace(plan, **paths, start="latest")
    Inputs(anew, Checkpoint(spark, anew.checkpoint).query()).begin()
    assert run(anew, [b"new"] * 5).records_in == 5
    assert [row["value"] for row in rows(anew.dest)] == [b"new"] * 5


def test_a_run_ends_where_it_was_said_and_the_next_goes_on_there(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    times = [datetime(2026, 11, 25, hour, tzinfo=timezone.utc) for hour in range(10)]
    until = replace(plan, until=times[4].isoformat())
    values = [b"x"] * 10
    assert run(until, values, timestamps_us=[int(time.timestamp()) * 1_000_000 for time in times]).records_in == 4
    assert run(until).records_in == 0
    assert run(replace(plan, until="6")).records_in == 2
    assert run(plan).records_in == 4
    assert sorted(row["sequence"] for row in rows(plan.dest)) == list(range(10))


# --- Subscribers --------------------------------------------------------------------------------------------------------


def test_a_subscriber_belongs_to_one_pipeline_until_it_is_set(
    run: Callable[..., Summary], plan: PipelinePlan, tmp_path: Path
) -> None:
    first = replace(plan, subscriber="lake")
    run(first, [b"x"] * 25)
    second = replace(first, dest=str(tmp_path / "second"), checkpoint=str(tmp_path / "second.checkpoint"))
    told = rf"lake belongs to the query \w{{8}}, whose checkpoint is {first.checkpoint}/.* subscriber set .* lake 25"
    with pytest.raises(jlog.JournalError, match=told):
        run(second, [b"x"] * 5)
    assert not list((tmp_path / "second").glob("**/*.parquet"))
    run(first)
    jlog.Journal(plan.sources[0]).set_subscriber("lake", "begin")
    assert run(second).records_in == 30


def test_a_report_of_each_batch_says_what_is_left(spark: SparkSession, plan: PipelinePlan, tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b"x"] * 25)
    reports: list[dict[str, Any]] = []
    Pipeline(replace(plan, batch_records=10), on_batch=reports.append).run(spark)
    assert [(report["batch"], report["records_in"]) for report in reports] == [(0, 10), (1, 10), (2, 5)]
    assert [report["behind"][plan.sources[0]]["records"] for report in reports] == [15, 5, 0]


def test_a_report_says_how_old_an_archives_newest_record_is(spark: SparkSession, plan: PipelinePlan, tmp_path: Path) -> None:
    url = (tmp_path / "archive").as_uri()
    with jlog.Writer(tmp_path / "journal", retention=jlog.Retention(archive=url)) as writer:
        writer.append(b"x", timestamp_us=round((time.time() - 100) * 1e6))
        writer.roll()
        jlog.Journal(tmp_path / "journal").archive()
    reports: list[dict[str, Any]] = []
    Pipeline(replace(plan, sources=(url,)), on_batch=reports.append).run(spark)
    (lag,) = reports[-1]["behind"].values()
    assert lag["records"] == 0
    assert 100 <= lag["newest_record_age"] <= 100 + HUNG_SECONDS


class Cut(Exception):
    """Stands for a kill at this step."""


def destination(spark: SparkSession, tmp_path: Path, *partition_by: str) -> Destination:
    return Destination(
        ParquetTable(spark, str(tmp_path / "lake"), partition_by), Checkpoint(spark, str(tmp_path / "checkpoint")), "records"
    )


def test_a_batch_cut_short_in_moving_is_completed(spark: SparkSession, tmp_path: Path) -> None:
    directory = str(tmp_path / "lake")
    frame = spark.range(20, numPartitions=4).selectExpr("id", "id % 2 AS odd")
    cut_short = destination(spark, tmp_path, "odd")
    files: Any = cut_short.table._files  # type: ignore[attr-defined]
    move, moved = files.move, []

    def cut(source: str, target: str) -> None:
        if len(moved) == 3:
            raise Cut
        moved.append(target)
        move(source, target)

    files.move = cut
    with pytest.raises(Cut):
        cut_short.add(BatchId(0, "a"), frame)
    assert len(parquet_files(directory)) == 8
    added = destination(spark, tmp_path, "odd").add(BatchId(0, "a"), spark.range(0))
    assert (added.rows, added.is_new) == (20, False)
    assert sorted(row["id"] for row in rows(directory)) == list(range(20))
    assert [path.name for path in Path(directory).iterdir() if path.name.startswith("_")] == ["_jlog"]


def test_a_batch_that_was_cut_off_is_parsed_in_the_same_way(
    run: Callable[..., Summary], plan: PipelinePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was killed between the quarantine and the table."""
    append = ParquetTable._append

    def cut(table: ParquetTable, *more: Any) -> Any:
        if table.name == plan.dest:
            raise Cut
        return append(table, *more)

    plan = replace(plan, parser=Parser("json"), schema="n int")
    run(plan, [b'{"n": 0}'])
    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, "_append", cut)
        with pytest.raises(jlog.JournalError):
            run(plan, [b'{"n": 1}', b"bad", b'{"n": "x"}'])
    with pytest.raises(jlog.JournalError, match=r"bad has bad records of batch 1, which .* name another --quarantine"):
        run(replace(plan, checkpoint=f"{plan.checkpoint}.new", adopt=True))
    with pytest.raises(ValueError, match=r'in the middle of a batch .* "n int"'):
        run(replace(plan, schema="n int, m string"))
    run(plan)
    assert [row["n"] for row in rows(plan.dest)] == [0, 1]
    assert [row["value"] for row in rows(plan.quarantine)] == [b"bad", b'{"n": "x"}']


def test_staged_rows_that_were_not_noted_are_never_seen(spark: SparkSession, tmp_path: Path) -> None:
    directory = str(tmp_path / "lake")
    table = destination(spark, tmp_path)

    def cut(_: int) -> None:
        raise Cut

    with pytest.raises(Cut):
        table.add(BatchId(0, "a"), spark.range(10), cut)
    assert parquet_files(directory) == [name for name in parquet_files(directory) if name.startswith("_")]
    table.add(BatchId(0, "b"), spark.range(5))
    assert [row["id"] for row in rows(directory)] == list(range(5))


def test_it_stops_when_it_is_asked_to(spark: SparkSession, plan: PipelinePlan, tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b"a"] * 10)
        pipeline = Pipeline(replace(plan, interval=0.1), on_records=lambda _: seen.set())
        seen = threading.Event()

        def stop() -> None:
            seen.wait()
            pipeline.stop()

        other = threading.Thread(target=stop)
        other.start()
        found = pipeline.run(spark)
        other.join()
    assert (found.stopped, found.records_out) == (True, 10)


@pytest.mark.damage
def test_damage_is_told_with_its_place(spark: SparkSession, plan: PipelinePlan, tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal", segment_bytes=4096) as writer:
        for _ in range(10):
            writer.extend([b"x" * 100] * 20)
    (segment, *_) = sorted((tmp_path / "journal").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[600] ^= 1
    segment.write_bytes(content)
    with pytest.raises(jlog.JournalError, match=segment.name):
        Pipeline(plan).run(spark)


def test_the_summary_is_json(run: Callable[..., Summary], plan: PipelinePlan) -> None:
    found = json.loads(json.dumps(run(plan, [b"a"]).as_json()))
    assert {"records_in", "records_out", "records_bad", "quarantine"} <= set(found)

"""The destination names its pipeline and batches, and the checkpoint remembers them: after a restore of either no row is lost
or there twice, or the run refuses and says why."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exhaustive
import jlog
from jlog.pipeline.checkpoint import Checkpoint
from jlog.pipeline.destination import Destination
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import PipelinePlan
from jlog.pipeline.tables.parquet import ParquetTable
from jlog.pipeline.tables.table import BatchId, TableState

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def plan(plan: PipelinePlan) -> PipelinePlan:
    return replace(plan, parser=Parser("none"), subscriber="lake")


DAY_US = 86_400_000_000
NOON_US = 20_000 * DAY_US + DAY_US // 2


def restore(path: str | Path, copy: str) -> None:
    """Brings a copy back, as from a backup."""
    shutil.rmtree(path)
    shutil.copytree(f"{path}{copy}", path)


def sequences(rows: list[dict[str, Any]]) -> list[int]:
    return [row["sequence"] for row in rows]


# --- Whole runs -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_or_a_destination_of_another_time_is_refused_and_can_be_adopted(
    run: Run, plan: PipelinePlan, rows: Rows
) -> None:
    """Each batch is below a date of its own, so that nothing is in the way of its files."""
    run(plan, [b"a"] * 10, timestamps_us=[NOON_US] * 10)
    for path in (plan.dest, plan.checkpoint):
        shutil.copytree(path, f"{path}.old")
    run(plan, [b"b"] * 10, timestamps_us=[NOON_US + DAY_US] * 10)
    shutil.copytree(plan.checkpoint, f"{plan.checkpoint}.new")
    restore(plan.checkpoint, ".old")
    with pytest.raises(jlog.JournalError, match=r"lake has batch 1, and the checkpoint .* does not know it.* --adopt"):
        run(plan, [b"c"] * 10, timestamps_us=[NOON_US + 2 * DAY_US] * 10)
    assert sequences(rows()) == list(range(20))
    assert len(list(Path(plan.dest).glob("date=*"))) == 2
    restore(plan.checkpoint, ".new")
    restore(plan.dest, ".old")
    with pytest.raises(jlog.JournalError, match=r"loaded .*lake up to batch 1, but .* only those up to 0: it was restored"):
        run(plan)
    assert sequences(rows()) == list(range(10))
    adopting = replace(plan, checkpoint=f"{plan.checkpoint}.adopting", adopt=True)
    assert run(adopting).records_in == 20
    assert run(adopting, [b"d"]).records_in == 1
    assert sequences(rows()) == list(range(31))
    with pytest.raises(jlog.JournalError, match=f"belongs to another pipeline, with the checkpoint {adopting.checkpoint}"):
        run(plan)


@pytest.mark.parametrize("left", ["an empty mount point", exhaustive.only("nothing")])
def test_a_destination_that_is_gone_is_missed_and_nothing_is_removed_from_the_journal(
    run: Run, plan: PipelinePlan, tmp_path: Path, left: str
) -> None:
    run(plan, [b"a"] * 10)
    shutil.rmtree(plan.dest)
    if left != "nothing":
        Path(plan.dest).mkdir()
    with pytest.raises(jlog.JournalError, match=r"lake has no batch of it: it was removed, replaced or is not mounted"):
        run(plan, [b"b"] * 10)
    assert not Path(plan.dest).exists() or not any(Path(plan.dest).iterdir())
    assert jlog.Journal(tmp_path / "journal").subscribers()["lake"].sequence <= 10


def test_a_quarantine_that_is_gone_is_missed(run: Run, plan: PipelinePlan) -> None:
    plan = replace(plan, parser=Parser("json"), schema="n int")
    run(plan, [b"bad"])
    shutil.rmtree(plan.quarantine)
    with pytest.raises(jlog.JournalError, match=r"bad has no batch of it: it was removed"):
        run(plan, [b"bad"])


def test_what_belongs_to_no_pipeline_or_to_other_sources_is_not_adopted(run: Run, plan: PipelinePlan, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belongs to no pipeline, so there is nothing to adopt"):
        run(replace(plan, adopt=True), [b"a"])
    run(plan)
    (tmp_path / "other").mkdir()
    shutil.copy(next(Path(plan.dest).rglob("*.parquet")), tmp_path / "other")
    with pytest.raises(ValueError, match="already has Parquet files, which belong to no pipeline"):
        run(replace(plan, dest=str(tmp_path / "other"), checkpoint=f"{plan.checkpoint}.1"))
    with jlog.Writer(tmp_path / "another") as writer:
        writer.append(b"x")
    changed = replace(plan, sources=(str(tmp_path / "another"),), checkpoint=f"{plan.checkpoint}.2", adopt=True)
    with pytest.raises(ValueError, match=r"was loaded from .*journal, which is not among the sources"):
        run(changed)


def test_a_schema_that_readers_could_not_follow_is_refused_before_the_first_row(
    run: Run, plan: PipelinePlan, rows: Rows
) -> None:
    plan = replace(plan, parser=Parser("json"), schema="n bigint")
    run(plan, [b'{"n": 1}'])
    for schema, told in (("n string", "n string"), ("n bigint, level string", "level string")):
        with pytest.raises(jlog.JournalError, match=rf"cannot take the columns {told}: its files have .*n bigint"):
            run(replace(plan, schema=schema), [b'{"n": 2}'])
    assert [row["n"] for row in rows()] == [1]
    assert run(plan).records_out == 2


# --- Kills at each step ---------------------------------------------------------------------------------------------


class Cut(Exception):
    """Stands for a kill at this step."""


def destination(spark: SparkSession, tmp_path: Path, checkpoint: str = "checkpoint") -> Destination:
    return Destination(ParquetTable(spark, str(tmp_path / "lake")), Checkpoint(spark, str(tmp_path / checkpoint)), "records")


STEPS = ["list", "move", "after", *map(exhaustive.only, ["stage", "clean", "note"])]
FIRST, SECOND, REBUILT = BatchId(0, "a"), BatchId(1, "b"), BatchId(1, "c")


def cut_at(step: str, table: Destination, patch: pytest.MonkeyPatch) -> None:
    """Has the destination be killed before this step of the next batch."""

    def cut(*_: object) -> None:
        raise Cut

    inner: Any = table.table
    where: dict[str, tuple[Any, str]] = {
        "stage": (inner._files, "records"),
        "list": (inner._files, "create"),
        "move": (inner._files, "move"),
        "clean": (inner._files, "remove"),
        "note": (table._checkpoint, "keep_settings"),
    }
    if step in where:
        patch.setattr(*where[step], cut)


@pytest.mark.parametrize("step", STEPS)
def test_after_a_kill_and_a_restore_each_row_is_there_once_or_the_next_run_refuses(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Where the checkpoint is that of before, Spark builds the second batch anew, with newer rows."""
    for restored in ("", "checkpoint", "lake", "checkpoint lake"):
        folder = tmp_path / (restored or "nothing")
        destination(spark, folder).add(FIRST, spark.range(0, 5))
        for name in ("lake", "checkpoint"):
            shutil.copytree(folder / name, folder / f"{name}.old")
        with monkeypatch.context() as patch:
            killed = destination(spark, folder)
            cut_at(step, killed, patch)
            if step == "after":
                killed.add(SECOND, spark.range(5, 10))
            else:
                with pytest.raises(Cut):
                    killed.add(SECOND, spark.range(5, 10))
        for name in restored.split():
            restore(folder / name, ".old")
        batch, end = (REBUILT, 15) if "checkpoint" in restored else (SECOND, 10)
        is_listed = step not in ("stage", "list")
        refused = (is_listed and restored == "checkpoint") or (step == "after" and restored == "lake")
        if refused:
            with pytest.raises(jlog.JournalError, match=r"--adopt and a new --checkpoint"):
                destination(spark, folder).add(batch, spark.range(5, end))
            end = 10 if restored == "checkpoint" else 5
            destination(spark, folder, "new").adopt()  # completes what the killed run has begun
        else:
            destination(spark, folder).add(batch, spark.range(5, end))
        table = ParquetTable(spark, str(folder / "lake"))
        frame = table.frame()
        assert frame is not None
        assert sorted(row["id"] for row in frame.collect()) == list(range(end)), (step, restored)


def test_of_two_pipelines_that_begin_at_once_one_gets_the_destination(spark: SparkSession, tmp_path: Path) -> None:
    one, other = destination(spark, tmp_path, "one"), destination(spark, tmp_path, "other")
    assert (one.compare(), other.compare()) == (None, None)

    def meanwhile(_: int) -> None:
        assert one.add(FIRST, spark.range(5)).is_new

    new = TableState("other", "there").after(FIRST)
    with pytest.raises(jlog.JournalError, match="belongs to another pipeline"):
        other.table.write(new, None, spark.range(5), meanwhile)
    frame = one.table.frame()
    assert frame is not None
    assert frame.count() == 5
    assert sorted(path.name for path in (tmp_path / "lake").iterdir() if path.is_dir()) == ["_jlog"]


def test_a_pipeline_that_wakes_up_after_its_table_was_adopted_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    one, other = destination(spark, tmp_path, "one"), destination(spark, tmp_path, "other")
    one.add(FIRST, spark.range(5))
    known = one.compare()
    other.adopt()
    assert known is not None
    with pytest.raises(jlog.JournalError, match="belongs to another pipeline"):
        one.table.write(known.after(SECOND), known, spark.range(5), lambda _: None)
    assert other.add(BatchId(0, "x"), spark.range(5, 10)).is_new


def test_a_file_in_the_way_is_never_taken_for_that_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "staged", tmp_path / "there"
    for path in (source, target):
        path.write_text(path.name)
    with pytest.raises(FileExistsError, match="is not the file of this batch"):
        ParquetTable(spark, str(tmp_path))._files.move(str(source), str(target))
    assert source.read_text() == "staged"

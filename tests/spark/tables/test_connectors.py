"""Tables of Delta Lake and Iceberg, on the Spark that they are made for, read back by their own readers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import exhaustive
from spark.tables.running import Refused, TableDriver

COLUMNS = ["id", "id % 2 AS odd"]


@pytest.fixture(params=["delta by name", "iceberg by name", *map(exhaustive.only, ["delta", "iceberg"])])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The format, and a place."""
    kind, _, by_name = request.param.partition(" ")
    if not by_name:
        return kind, str(tmp_path / "a table's 100%")
    name = request.node.name.partition("[")[0]
    return kind, f"shop.db.{name}" if kind == "iceberg" else f"spark_catalog.default.{name}"


def ids(tables: TableDriver, table: tuple[str, str]) -> list[int]:
    return sorted(row["id"] for row in tables.rows(*table))


def test_each_batch_is_added_once(tables: TableDriver, table: tuple[str, str]) -> None:
    assert tables.count(*table, "p") is None
    assert tables.last_batch(*table, "p") is None
    assert tables.add(*table, "p", (0, "aa"), COLUMNS, partition_by=["odd"]) == [20, True]
    assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, False]
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, True]
    for batch, told in (((1, "cc"), "other records under the number 1"), ((0, "aa"), "has batch 1, and Spark comes with")):
        with pytest.raises(Refused, match=told):
            tables.add(*table, "p", batch, COLUMNS)
    assert tables.last_batch(*table, "p") == 1
    assert tables.count(*table, "p") == 40
    assert ids(tables, table) == list(range(40))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_other_writers_and_compaction_hide_no_batch(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    table = kind, str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), COLUMNS, 8)
    tables.write(*table, ["id + 100 AS id", "id % 2 AS odd"])
    files = tables.files(*table)
    tables.compact(*table, "p")
    assert tables.files(*table) < files
    assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, False]
    tables.write(*table, ["id + 120 AS id", "id % 2 AS odd"])
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, True]
    assert ids(tables, table) == [*range(40), *range(100, 140)]


@pytest.mark.parametrize("kind", ["delta", exhaustive.only("iceberg")])
def test_a_column_that_a_user_adds_hides_no_batch(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    table = kind, str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    tables.evolve(*table)
    assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, False]
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, True]
    assert ids(tables, table) == list(range(40))
    assert {row["note"] for row in tables.rows(*table)} == {None}


@pytest.mark.exhaustive
def test_a_batch_comes_again_after_its_files_were_joined_and_removed(tables: TableDriver, tmp_path: Path) -> None:
    table = "delta", str(tmp_path / "table")
    tables.sql("SET spark.databricks.delta.retentionDurationCheck.enabled=false")
    tables.add(*table, "p", (0, "aa"), COLUMNS, 8)
    tables.sql(f"OPTIMIZE delta.`{table[1]}`")
    tables.sql(f"VACUUM delta.`{table[1]}` RETAIN 0 HOURS")
    assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, False]
    assert ids(tables, table) == list(range(20))


def test_a_table_without_metrics_takes_batches_too(tables: TableDriver, tmp_path: Path) -> None:
    table = "delta", str(tmp_path / "table")
    tables.sql("SET spark.databricks.delta.history.metricsEnabled=false")
    try:
        assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, True]
        assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, False]
    finally:
        tables.sql("RESET spark.databricks.delta.history.metricsEnabled")
    assert ids(tables, table) == list(range(20))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_new_columns_are_added_where_the_table_evolves(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    table = kind, str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), ["id"])
    with pytest.raises(Refused, match="new"):
        tables.add(*table, "p", (1, "bb"), ["id", "'x' AS new"])
    assert tables.add(*table, "p", (1, "bb"), ["'x' AS new", "id"], evolves=True) == [20, True]
    assert tables.add(*table, "p", (2, "cc"), ["id"]) == [20, True]
    assert {(row["id"] // 20, row["new"]) for row in tables.rows(*table)} == {(0, None), (1, "x"), (2, None)}


def test_a_column_that_would_change_values_is_refused(tables: TableDriver, table: tuple[str, str]) -> None:
    """Spark writes a double into a column of whole numbers, and cuts off what is after the point."""
    columns = ["id", "cast(id AS decimal(10,1)) AS price", "named_struct('n', id) AS at", "cast(1 AS tinyint) AS tiny"]
    tables.add(*table, "p", (0, "aa"), columns)
    for column, told in (
        ("id + 0.5D AS id", "id double: it has id bigint"),
        ("cast(id + 0.55 AS decimal(10,2)) AS price", r"price decimal\(10,2\): it has price decimal\(10,1\)"),
        ("named_struct('n', id + 0.5D) AS at", "at struct<n:double>: it has at struct<n:bigint>"),
    ):
        with pytest.raises(Refused, match=f"JournalError: .* cannot take the columns {told}, which would change values"):
            tables.add(*table, "p", (1, "bb"), [column])
    assert tables.add(*table, "p", (1, "bb"), columns) == [20, True]  # Iceberg has int for tinyint
    assert ids(tables, table) == list(range(40))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_any_name_of_a_field_is_a_column(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    table = kind, str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), ["id", "id % 2 AS `an (odd), name`"])
    assert {row["an (odd), name"] for row in tables.rows(*table)} == {0, 1}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_that_do_not_agree_are_not_added(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    table = (kind, str(tmp_path / "table"))
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    with pytest.raises(Refused, match=r"RowsMissing: .* have written 20 rows, and the driver finds 10"):
        tables.add_unseen(*table, "p", (1, "bb"), COLUMNS, unseen="00001-")
    assert ids(tables, table) == list(range(20))
    with pytest.raises(Refused, match="JournalError: not 20 rows"):
        tables.add_refused(*table, "p", (1, "bb"), COLUMNS)
    assert ids(tables, table) == list(range(20))
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, True]
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, False]
    assert ids(tables, table) == list(range(40))


@pytest.mark.exhaustive
def test_others_are_told_whose_commits_are_taken_back_too(tables: TableDriver, tmp_path: Path) -> None:
    table = "delta", str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), ["id"])
    with pytest.raises(Refused, match="Other writers wrote the versions from 3 to 3"):
        tables.add_unseen_beside_another(table[1], "p", (1, "bb"))
    assert tables.add(*table, "p", (1, "bb"), ["id"]) == [20, True]


# --- Another time, another pipeline -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_or_a_checkpoint_of_another_time_is_refused_and_can_be_adopted(
    tables: TableDriver, tmp_path: Path, kind: str
) -> None:
    table = kind, str(tmp_path / "table")
    checkpoint = Path(tables.checkpoint(table[1], "p"))
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    older = checkpoint.joinpath("records.last.json").read_text()
    tables.add(*table, "p", (1, "bb"), COLUMNS)
    newer = checkpoint.joinpath("records.last.json").read_text()
    checkpoint.joinpath("records.last.json").write_text(older)
    with pytest.raises(Refused, match="has batch 1, and Spark comes with other records under the number 1"):
        tables.add(*table, "p", (1, "cc"), COLUMNS)
    checkpoint.joinpath("records.last.json").write_text(newer)
    tables.go_back(*table)
    for _ in range(2):
        with pytest.raises(Refused, match=r"up to batch 1, but .* has only those up to 0: it was restored from an older copy"):
            tables.add(*table, "p", (2, "dd"), COLUMNS)
        tables.write(*table, ["id + 100 AS id", "id % 2 AS odd"])
    tables.adopt(*table, "q")
    with pytest.raises(Refused, match=r"belongs to another pipeline, with the checkpoint .*\.q\."):
        tables.add(*table, "p", (2, "dd"), COLUMNS)
    assert tables.add(*table, "q", (0, "xx"), ["id + 20 AS id", "id % 2 AS odd"]) == [20, True]
    assert tables.add(*table, "q", (0, "xx"), COLUMNS) == [20, False]
    assert ids(tables, table) == sorted([*range(40), *[*range(100, 120)] * 2])


def test_a_table_that_is_gone_is_missed(tables: TableDriver, table: tuple[str, str]) -> None:
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    if "/" in table[1]:
        shutil.rmtree(table[1])
    else:
        tables.sql(f"DROP TABLE {table[1]}")
    with pytest.raises(Refused, match=r"has no batch of it: it was removed, replaced or is not mounted"):
        tables.add(*table, "p", (1, "bb"), COLUMNS)


TAKE_ALL = {
    "replaced": "CREATE OR REPLACE TABLE {name} (id BIGINT, odd BIGINT) USING {kind}",
    "replaced by rows": "CREATE OR REPLACE TABLE {name} USING {kind} AS SELECT id, id % 2 AS odd FROM range(100, 105)",
    "deleted": "DELETE FROM {name} WHERE id >= 0",
    "overwritten": "INSERT OVERWRITE {name} SELECT id, id % 2 AS odd FROM range(100, 150)",
    "truncated": "TRUNCATE TABLE {name}",
}


@pytest.mark.parametrize("change", TAKE_ALL)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_change_that_takes_all_rows_away_is_told_and_the_table_can_be_loaded_again(
    tables: TableDriver, kind: str, change: str
) -> None:
    if (kind, change) == ("delta", "truncated"):
        pytest.skip("Delta Lake does not know TRUNCATE")
    catalog = "shop.db" if kind == "iceberg" else "spark_catalog.default"
    table = kind, f"{catalog}.taken_{change.replace(' ', '_')}"
    for batch in ((0, "aa"), (1, "bb")):
        tables.add(*table, "p", batch, COLUMNS)
    tables.sql(TAKE_ALL[change].format(name=table[1], kind=kind))
    for _ in range(2):
        left = ids(tables, table)
        with pytest.raises(Refused, match=r"has loaded .* up to batch 1, and .* has taken away all rows"):
            tables.add(*table, "p", (2, "cc"), COLUMNS)
        assert ids(tables, table) == left
        tables.write(*table, ["id + 200 AS id", "id % 2 AS odd"])
    tables.adopt(*table, "q")
    assert tables.add(*table, "q", (0, "aa"), COLUMNS) == [20, True]
    assert ids(tables, table) == sorted([*range(20), *left, *range(200, 220)])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_that_others_change_or_choose_to_delete_keep_no_batch_out(tables: TableDriver, kind: str) -> None:
    table = kind, "shop.db.edited" if kind == "iceberg" else "spark_catalog.default.edited"
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    tables.sql(f"DELETE FROM {table[1]} WHERE id < 10")
    tables.sql(f"UPDATE {table[1]} SET odd = 7")
    assert tables.add(*table, "p", (0, "aa"), COLUMNS) == [20, False]
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, True]
    assert ids(tables, table) == list(range(10, 40))


@pytest.mark.parametrize("is_there", [False, exhaustive.only(True)], ids=["new", "of another writer"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_of_two_pipelines_that_begin_at_once_one_gets_the_table(
    tables: TableDriver, tmp_path: Path, kind: str, is_there: bool
) -> None:
    table = kind, str(tmp_path / "table")
    if is_there:
        tables.create(*table)
    errors = tables.write_at_once(*table, ["p", "q"])
    assert ["AnotherPipeline" in error for error in errors] == [True], errors
    assert ids(tables, table) == list(range(20))


@pytest.mark.parametrize("left", ["_delta_log", exhaustive.only("_delta_log/.00000000000000000000.json.1f.tmp")])
def test_a_pipeline_that_was_killed_while_it_created_a_table_keeps_no_other_from_it(
    tables: TableDriver, tmp_path: Path, left: str
) -> None:
    """Delta makes the directory of its log before the first version, and refuses to create a table where there is one."""
    table = "delta", str(tmp_path / "table")
    path = tmp_path / "table" / left
    path.parent.mkdir(parents=True)
    path.write_text("{") if path.suffix else path.mkdir()
    errors = tables.write_at_once(*table, ["p", "q"])
    assert ["AnotherPipeline" in error for error in errors] == [True], errors
    assert ids(tables, table) == list(range(20))
    assert "jlog" in {row["key"] for row in tables.sql(f"SHOW TBLPROPERTIES delta.`{table[1]}`")}


def test_a_table_whose_log_was_cleaned_still_says_whose_it_is(tables: TableDriver, tmp_path: Path) -> None:
    """Delta removes old files of its log, with the notes of the batches, once a checkpoint of its own has what counts."""
    table = "delta", str(tmp_path / "table")
    tables.sql("SET spark.databricks.delta.properties.defaults.checkpointInterval=2")
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    tables.sql("RESET spark.databricks.delta.properties.defaults.checkpointInterval")
    log = tmp_path / "table" / "_delta_log"
    while not list(log.glob("*.checkpoint.parquet")):
        tables.write(*table, ["id + 100 AS id", "id % 2 AS odd"])
    tables.write(*table, ["id + 100 AS id", "id % 2 AS odd"])
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for path in log.glob("*.json"):
        if path.stem.isdecimal() and path.stem < checkpoint.name:
            path.unlink()
    before = len(ids(tables, table))
    with pytest.raises(Refused, match=r"belongs to another pipeline, with the checkpoint .*\.p\."):
        tables.add(*table, "q", (0, "aa"), COLUMNS)
    with pytest.raises(Refused, match="has skipped batch 0"):
        tables.add(*table, "p", (0, "aa"), COLUMNS)
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, True]
    tables.adopt(*table, "q")
    assert tables.add(*table, "q", (0, "aa"), COLUMNS) == [20, True]
    assert tables.add(*table, "q", (0, "aa"), COLUMNS) == [20, False]
    assert len(ids(tables, table)) == before + 40


@pytest.mark.exhaustive
def test_a_batch_whose_snapshots_have_expired_is_known(tables: TableDriver, tmp_path: Path) -> None:
    table = "iceberg", str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), COLUMNS)
    tables.add(*table, "p", (1, "bb"), COLUMNS)
    for _ in range(2):
        tables.write(*table, ["id + 100 AS id", "id % 2 AS odd"])
    tables.expire(table[1])
    assert tables.add(*table, "p", (1, "bb"), COLUMNS) == [20, False]
    assert tables.add(*table, "p", (2, "cc"), COLUMNS) == [20, True]
    assert ids(tables, table) == sorted([*range(60), *[*range(100, 120)] * 2])


def test_old_snapshots_expire_on_request_and_batches_are_known(tables: TableDriver) -> None:
    table = "iceberg", "shop.db.expiring"
    for number in range(4):
        tables.add(*table, "p", (number, "aa"), ["id"])

    def snapshots() -> int:
        return int(tables.sql("SELECT count(*) AS found FROM shop.db.expiring.snapshots")[0]["found"])

    before = snapshots()
    tables.compact(*table, "p", expires=3600.0)
    assert snapshots() >= before
    tables.add(*table, "p", (4, "aa"), ["id"])
    tables.compact(*table, "p", expires=0.0)
    assert snapshots() <= 2  # the newest one, and that of the last batch
    assert tables.add(*table, "p", (4, "aa"), ["id"]) == [20, False]
    assert tables.add(*table, "p", (5, "aa"), ["id"]) == [20, True]
    assert ids(tables, table) == list(range(120))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_of_the_quarantine_are_added_after_a_batch_that_stays_the_last_one(
    tables: TableDriver, tmp_path: Path, kind: str
) -> None:
    table = kind, str(tmp_path / "table")
    tables.add(*table, "p", (0, "aa"), ["id"])
    assert [tables.retry(*table, "p", first) for first in (100, 120)] == [20, 20]
    assert tables.add(*table, "p", (0, "aa"), ["id"]) == [20, False]
    assert tables.add(*table, "p", (1, "bb"), ["id"]) == [20, True]
    assert ids(tables, table) == [*range(40), *range(100, 140)]


# --- Kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["delta", exhaustive.only("iceberg")])
@pytest.mark.parametrize(
    ("point", "has_it"),
    [
        exhaustive.only("write", False),
        exhaustive.only("in the write", False),
        exhaustive.only("_check", None),
        ("_sync", True),
        exhaustive.only("in compaction", True),
    ],
)
def test_a_batch_of_a_killed_driver_is_added_once(
    start: Callable[[], TableDriver], tmp_path: Path, kind: str, point: str, has_it: bool | None
) -> None:
    """Delta shows a commit to readers before it is checked, and Iceberg after that."""
    table = kind, str(tmp_path / "table")
    driver = start()
    driver.add(*table, "p", (0, "aa"), ["id"], 4)
    if point == "in the write":
        driver.begin("add_and_die", *table, "p", (1, "bb"))
    elif point == "in compaction":
        driver.add(*table, "p", (1, "bb"), ["id"], 4)
        driver.begin("compact_and_die", *table, "p")
    else:
        driver.die_in(kind, point)
        driver.begin("add", *table, "p", (1, "bb"), ["id"])
    driver.wait_for_its_death()
    driver = start()
    is_there = kind == "delta" if has_it is None else has_it
    assert driver.add(*table, "p", (1, "bb"), ["id"]) == [20, not is_there]
    driver.compact(*table, "p")
    assert ids(driver, table) == list(range(40))


POINTS = {"delta": ["_save", "_check", "_sync"], "iceberg": ["_stage", "_staged", "_check", "_sync"]}


def cases() -> Iterator[Any]:
    """A batch is cut off at each point, before the checkpoint notes it, and after that. Those that differ most run always."""
    for kind, points in POINTS.items():
        for point in (*points, "keep_settings", "after"):
            is_common = point == "keep_settings"
            yield pytest.param(kind, point, marks=() if is_common else pytest.mark.exhaustive, id=f"{kind}-{point}")


@pytest.mark.parametrize(("kind", "point"), list(cases()))
def test_after_a_kill_and_a_restore_each_row_is_there_once_or_the_next_batch_is_refused(
    tables: TableDriver, tmp_path: Path, kind: str, point: str
) -> None:
    """Where the checkpoint is that of before, Spark builds the second batch anew."""
    for restored in ([], ["checkpoint"], ["table"], ["checkpoint", "table"]):
        table = kind, str(tmp_path / ("-".join(restored) or "nothing"))
        places = {"table": table[1], "checkpoint": tables.checkpoint(table[1], "p")}
        tables.add(*table, "p", (0, "aa"), ["id"])
        for path in places.values():
            shutil.copytree(path, f"{path}.old")
        if point == "after":
            tables.add(*table, "p", (1, "bb"), ["id"])
        else:
            with pytest.raises(Refused, match="cut off"):
                tables.add_until(*table, "p", (1, "bb"), point)
        for name in restored:
            shutil.rmtree(places[name])
            shutil.copytree(f"{places[name]}.old", places[name])
        tables.forget()
        is_added = point in ("_sync", "keep_settings", "after") or (kind, point) == ("delta", "_check")
        if (is_added and restored == ["checkpoint"]) or (point == "after" and restored == ["table"]):
            with pytest.raises(Refused, match="--adopt and a new --checkpoint"):
                tables.add(*table, "p", (1, "cc" if "checkpoint" in restored else "bb"), ["id"])
            rows = 40 if restored == ["checkpoint"] else 20
        else:
            tables.add(*table, "p", (1, "cc" if "checkpoint" in restored else "bb"), ["id"])
            rows = 40
        assert ids(tables, table) == list(range(rows)), (point, restored)

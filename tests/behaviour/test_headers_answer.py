"""Questions that headers of blocks answer: how many records, which are the newest, what the first and the last time are."""

import random
from collections.abc import Callable
from typing import Any

import duckdb
import polars
import pytest

import jlog
from behaviour.journals import SMALL, damage_block, fill
from behaviour.test_time_ranges import BEGIN_US, bytes_read, timed
from crash.tampering import another_boot, change, copy
from jlog.query import duckdb_sql
from jlog.query.scan import Scan

RECORDS = 12_000
EXTREMES = "select count(*), min(timestamp), max(timestamp), min(sequence), max(sequence) from app"


def asked(statement: str, scan: Scan) -> list[tuple[Any, ...]]:
    answer = duckdb_sql.execute(duckdb.connect(), statement, {"app": scan})
    assert answer is not None
    return answer.fetchall()


def counted_by_polars(scan: Scan) -> int:
    return int(scan.to_polars().select(polars.len()).collect().item())


def counted_in_a_view(scan: Scan) -> int:
    connection = duckdb.connect()
    scan.to_duckdb(connection, "app")
    return int(connection.sql("select count(*) from app").fetchall()[0][0])


def counted_by_statement(scan: Scan) -> int:
    return int(asked("select count(*) from app", scan)[0][0])


COUNTS = pytest.mark.parametrize(
    "count",
    [counted_by_polars, counted_in_a_view, counted_by_statement, len],
    ids=["polars", "to_duckdb", "jlogtool sql", "len"],
)


def newest_by_statement(scan: Scan) -> list[tuple[int, bytes]]:
    statement = "select sequence, value, octet_length(value) from app order by sequence desc limit 10"
    return [row[:2] for row in asked(statement, scan)[::-1]]


def newest_in_arrow(scan: Scan) -> list[tuple[int, bytes]]:
    found = scan.tail(10).to_arrow()
    return list(zip(found.column("sequence").to_pylist(), found.column("value").to_pylist(), strict=True))


def newest_in_polars(scan: Scan) -> list[tuple[int, bytes]]:
    return list(scan.tail(10).to_polars().select("sequence", "value").collect().iter_rows())


NEWEST = pytest.mark.parametrize(
    "newest", [newest_by_statement, newest_in_arrow, newest_in_polars], ids=["jlogtool sql", "arrow", "polars"]
)


@pytest.fixture
def journal(path):
    """Many blocks in many segments, and a writer that has the last records in its buffer."""
    timed(path, [BEGIN_US + number * 1_000_000 for number in range(RECORDS - 3)])
    with jlog.Writer(path) as writer:
        for number in range(RECORDS - 3, RECORDS):
            writer.append(b"%d " % number + bytes(1000), timestamp_us=BEGIN_US + number * 1_000_000)
        yield path


@COUNTS
def test_a_count_reads_the_headers_of_blocks_alone(journal, count):
    size, scan = jlog.Journal(journal).size_bytes, jlog.scan(journal)
    count(scan)  # imports
    found, read = bytes_read(lambda: count(scan))
    assert found == RECORDS
    assert read < size / 40


@COUNTS
def test_blocks_of_one_record_are_counted_without_a_read_for_each(path, count):
    with jlog.Writer(path, precommit=0) as writer:
        for number in range(300):
            writer.append(b"%d" % number)
    assert count(jlog.scan(path)) == 300
    assert count(jlog.scan(path, start=100, end=120)) == 20


def test_a_count_of_one_large_block_reads_its_header(path):
    with jlog.Writer(path) as writer:
        writer.extend([bytes(100)] * 100_000)
    found, read = bytes_read(lambda: len(jlog.scan(path)))
    assert found == 100_000
    assert read < 300_000


@NEWEST
def test_the_newest_records_are_all_that_is_read(journal, newest):
    size, scan = jlog.Journal(journal).size_bytes, jlog.scan(journal)
    newest(scan)
    found, read = bytes_read(lambda: newest(scan))
    assert found == [(number, b"%d " % number + bytes(1000)) for number in range(RECORDS - 10, RECORDS)]
    assert read < size / 12


@pytest.mark.parametrize("statement", [EXTREMES, "select max(timestamp) from app", "select min(timestamp) as a from app"])
def test_the_ends_of_the_times_are_found_in_a_few_blocks(journal, statement):
    size, scan = jlog.Journal(journal).size_bytes, jlog.scan(journal)
    expected = asked(f"{statement} where random() < 2", scan)  # which are read
    found, read = bytes_read(lambda: asked(statement, scan))
    assert found == expected
    assert read < size / 12


@pytest.mark.parametrize(
    "statement",
    [
        "select max(-epoch_us(timestamp)) from app",
        "select max(timestamp) filter (where sequence % 7 = 3) from app",
        "select count(distinct timestamp), max(timestamp) from app",
        "select max(timestamp) from (select timestamp - to_seconds(sequence * 3) as timestamp from app)",
        "with app as (select timestamp - to_seconds(sequence * 3) as timestamp from app) select max(timestamp) from app",
        "select max(timestamp), (select avg(epoch_us(timestamp)) from app) from app",
        "select max(timestamp, 3) from app",
        "select sequence from app order by sequence % 10 desc, sequence limit 3",
        "select -sequence as sequence from app order by sequence desc limit 3",
        "select sequence from app where timestamp < now() and sequence % 2 = 0 order by sequence desc limit 3",
        "select sequence from app order by sequence limit 3",
        "select sequence from app order by -sequence desc limit 3",
        "select -sequence as sequence, octet_length(value) from app order by sequence desc limit 3",
        "select sequence, unnest([1, 2]) as n from app order by all desc limit 3",
        "select sequence % 7, count(*), max(sequence) from app group by 1 order by 1 desc limit 3",
        "select sequence from app where sequence < 500 order by sequence desc limit 3",
        "select sequence from (select sequence from app union all select sequence + 5 from app) order by 1 desc limit 3",
        "select sequence, value from app order by 1 desc limit 3 offset 2",
        "select a.sequence from app a join app b using (sequence) where b.sequence < 9 order by a.sequence desc limit 3",
        "select sequence from (from app limit 5) order by sequence desc limit 3",
        "select sequence, timestamp from app order by timestamp desc limit 3",
        "select #2 from (select 1, timestamp from app) order by 1 limit 1",
        "select * from app order by sequence desc limit 3",
    ],
)
def test_a_statement_that_needs_more_gets_more(path, statement):
    """The times are in no order."""
    timed(path, [BEGIN_US + number * 7919 % 1000 * 1_000_000 for number in range(1000)], value_bytes=100)
    app = jlog.scan(path).to_arrow()  # noqa: F841 - of the statement
    expected = duckdb.sql(statement).fetchall()
    assert asked(statement, jlog.scan(path)) == expected != []


@pytest.mark.parametrize("seed", range(6))
def test_the_answers_are_those_of_reading_whatever_the_times_are(path, tmp_path, seed):
    """Times in any order, rolls, a gap that a power loss has left, retention, and records in the buffer."""
    chance = random.Random(seed)

    def some(writer: jlog.Writer, count: int) -> None:
        for _ in range(count):
            late_us = chance.choice([0, chance.randrange(10_000_000), chance.randrange(2 * BEGIN_US)])
            time_us = chance.choice([None, BEGIN_US + writer.next_sequence * 1_000_000, BEGIN_US - late_us])
            writer.append(bytes(chance.randrange(200)), timestamp_us=time_us)
            if chance.random() < 0.02:
                writer.extend([bytes(9)] * chance.randrange(1, 3000), timestamps_us=None)

    writer = jlog.Writer(path, precommit=4 << 10, segment_bytes=64 << 10)
    some(writer, 400)
    path = copy(path, tmp_path / "after")
    writer.close()
    another_boot(path)
    with jlog.Writer(path, retention=jlog.Retention(max_bytes=200 << 10, keep_for_subscribers=False)) as writer:
        some(writer, 400)
        jlog.Journal(path).clean()
        some(writer, 3)
        for start, end in (("begin", "end"), (jlog.Journal(path).first_sequence + 7, jlog.Journal(path).next_sequence - 5)):
            scan = jlog.scan(path, start=start, end=end)
            records = [record for record in jlog.Reader(path, start=start) if end == "end" or record.sequence < end]
            times_us = [record.timestamp_us for record in records]
            numbers = [record.sequence for record in records]
            statement = "select count(*), epoch_us(min(timestamp)), epoch_us(max(timestamp)), max(sequence) from app"
            assert asked(statement, scan) == [(len(records), min(times_us), max(times_us), numbers[-1])]
            assert counted_by_polars(scan) == counted_in_a_view(scan) == len(scan) == len(records)
            for count in (0, 1, 10, 1000, 10**9):
                assert scan.tail(count).to_arrow().column("sequence").to_pylist() == (numbers[-count:] if count else [])
                newest = asked(f"select sequence from app order by sequence desc limit {count} offset 2", scan)
                assert newest == [(number,) for number in numbers[::-1][2 : count + 2]]


def test_the_newest_records_before_a_gap_are_found(path, tmp_path):
    writer = jlog.Writer(path, **SMALL)
    fill(writer, 50)
    writer.flush()
    path = copy(path, tmp_path / "after")
    writer.close()
    another_boot(path)
    with jlog.Writer(path) as writer:
        writer.append(b"after the gap")
        numbers = [record.sequence for record in jlog.Reader(path)]
        assert numbers[-1] > 1 << 20
        for count in range(1, len(numbers) + 2):
            assert jlog.scan(path).tail(count).to_arrow().column("sequence").to_pylist() == numbers[-count:]


def test_a_filter_of_the_newest_records_leaves_out_some_of_them(path):
    timed(path, [BEGIN_US + number for number in range(500)], value_bytes=100)
    scan = jlog.scan(path).tail(10)
    assert scan.to_polars().filter(polars.col("sequence") < 495).collect()["sequence"].to_list() == [490, 491, 492, 493, 494]
    assert scan.to_polars().head(2).collect()["sequence"].to_list() == [490, 491]
    assert asked("select count(*) from app where sequence < 495", scan) == [(5,)]
    assert asked("select sequence from app order by sequence desc limit 20", scan)[-1] == (490,)
    assert len(scan) == 10
    assert asked(EXTREMES, scan)[0][0] == 10


# --- Damage ------------------------------------------------------------------------------------------------------


def damage_header(path: Any, number: int) -> Any:
    file, block = [(file, block) for file, block in jlog.Journal(path).blocks() if block.records][number]  # type: ignore[union-attr]
    change(file, block.offset, b"damage")
    return block


@pytest.mark.damage
@COUNTS
def test_a_damaged_header_is_met_by_a_count(path, count):
    timed(path, [BEGIN_US + number for number in range(500)], value_bytes=100)
    damage_header(path, 3)
    with pytest.raises((jlog.CorruptJournal, duckdb.Error), match="the block's header fails its checksum"):
        count(jlog.scan(path))


@pytest.mark.damage
def test_a_statement_passes_over_a_damaged_header_and_tells_it(path):
    timed(path, [BEGIN_US + number for number in range(500)], value_bytes=100)
    block = damage_header(path, 3)
    told: list[Any] = []
    scan = jlog.scan(path).told(told.append, lambda _: None)
    left = [number for number in range(500) if not block.first_sequence <= number < block.end_sequence]
    assert asked("select count(*), max(sequence) from app", scan) == [(len(left), 499)]
    assert {damage.first_sequence for damage in told} == {block.first_sequence}
    assert asked("select count(*), epoch_us(min(timestamp)) from app", scan) == [(len(left), BEGIN_US)]


@pytest.mark.damage
@pytest.mark.parametrize("harm", [damage_block, damage_header])
def test_damaged_records_among_the_newest_make_room_for_those_before(path, harm: Callable[[Any, int], Any]):
    timed(path, [BEGIN_US + number for number in range(500)], value_bytes=100)
    readable = [record.sequence for record in jlog.Reader(path)]
    blocks = [block for _, block in jlog.Journal(path).blocks() if block.records]  # type: ignore[union-attr]
    harm(path, len(blocks) - 2)
    lost = range(blocks[-2].first_sequence, blocks[-2].end_sequence)
    told: list[Any] = []
    scan = jlog.scan(path).told(told.append, lambda _: None)
    found = asked("select sequence, value from app order by sequence desc limit 100", scan)
    assert [row[0] for row in found] == [number for number in readable[::-1] if number not in lost][:100]
    assert told


@pytest.mark.damage
def test_damage_right_after_a_gap_holds_up_no_question(tmp_path):
    with jlog.Writer(tmp_path / "before", precommit=4096) as writer:
        writer.extend([b"before"] * 140)
        after = copy(tmp_path / "before", tmp_path / "after")
    another_boot(after)
    with jlog.Writer(after) as writer:
        writer.extend([b"after"] * 27)
    damage_block(after, -1)
    with jlog.Reader(after, start="end") as reader:
        with pytest.raises(jlog.CorruptJournal):
            reader.read_backward(1)
        assert reader.skip_damage() is not None
        assert [record.value for record in reader.read_backward(2)] == [b"before"] * 2
    assert asked(EXTREMES, jlog.scan(after).told(lambda _: None, lambda _: None))[0][3:] == (0, 139)

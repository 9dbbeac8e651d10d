"""A query of a stretch of time reads the blocks of that time, and nothing else, wherever they lie."""

import json
import os
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import duckdb
import polars
import pytest

import jlog
from behaviour.test_wrong_clock import wrong  # noqa: F401
from counting import Counting, counting  # noqa: F401
from crash.tampering import change
from jlog.cli.commands.dump import dump
from jlog.query import duckdb_sql
from jlog.query.scan import Scan

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
BEGIN_US = 1_790_000_000_000_000
BLOCK = 8 << 10
SEGMENT = 512 << 10


def at(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)


def timed(path: str, times_us: list[int | None], *, value_bytes: int = 1000, **options: Any) -> None:
    """Appends a record for each time, in many blocks and segments."""
    with jlog.Writer(path, precommit=BLOCK, segment_bytes=SEGMENT, **options) as writer:
        for number, time_us in enumerate(times_us):
            writer.append(b"%d " % number + bytes(value_bytes), timestamp_us=time_us)


def bytes_read(call: Callable[[], Any]) -> tuple[Any, int]:
    """Returns the result of a call, and the number of bytes that this process has read meanwhile."""

    def count() -> int:
        (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
        return int(line.split()[1])

    before = count()
    found = call()
    return found, count() - before


def by_polars(scan: Scan, since: datetime, until: datetime) -> list[int]:
    frame = scan.to_polars().filter(polars.col("timestamp").is_between(since, until))
    found: list[int] = frame.select("sequence", polars.col("value").bin.size()).collect()["sequence"].to_list()
    return found


def by_view(scan: Scan, since: datetime, until: datetime) -> list[int]:
    connection = duckdb.connect()
    scan.to_duckdb(connection, "app")
    where = f"timestamp between '{since.isoformat()}' and '{until.isoformat()}'"
    rows = connection.sql(f"select sequence, octet_length(value) from app where {where}").fetchall()
    return [row[0] for row in rows]


def by_statement(scan: Scan, since: datetime, until: datetime) -> list[int]:
    connection = duckdb.connect()
    where = f"timestamp between '{since.isoformat()}' and '{until.isoformat()}'"
    found = duckdb_sql.execute(connection, f"select sequence, octet_length(value) from app where {where}", {"app": scan})
    return [row[0] for row in found.fetchall()]


def by_positions(scan: Scan, since: datetime, until: datetime) -> list[int]:
    """By `--from` and `--to`, whose record is left out."""
    limits = ("--from", since.isoformat(), "--to", (until + timedelta(microseconds=1)).isoformat())
    with TemporaryFile("w+") as out:
        with redirect_stdout(out):
            dump.main(["--json", *limits, scan.path], standalone_mode=False)
        out.seek(0)
        return [json.loads(line)["sequence"] for line in out]


WAYS = pytest.mark.parametrize("way", [by_polars, by_view, by_statement], ids=["polars", "to_duckdb", "jlogtool sql"])


@WAYS
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_stretch_of_time_reads_the_blocks_of_that_time(path, way, compression):
    timed(path, [BEGIN_US + number * 1_000_000 for number in range(12_000)], compression=compression)
    size = jlog.Journal(path).size_bytes
    scan = jlog.scan(path)
    way(scan, at(0), at(1))  # imports, and whatever the library reads of its own files
    first, last = at(BEGIN_US + 3000 * 1_000_000), at(BEGIN_US + 3100 * 1_000_000)
    found, read = bytes_read(lambda: way(scan, first, last))
    assert found == list(range(3000, 3101))
    assert compression == "lz4" or read < size / 12
    outside, read = bytes_read(lambda: way(scan, at(BEGIN_US - 1), at(BEGIN_US - 1)))
    assert outside == []
    assert compression == "lz4" or read < size / 12


@WAYS
def test_a_stretch_of_the_clocks_time_reads_the_blocks_of_that_time(path, way):
    timed(path, [None] * 12_000)
    times_us = [record.timestamp_us for record in jlog.Reader(path)]
    size = jlog.Journal(path).size_bytes
    scan = jlog.scan(path)
    way(scan, at(0), at(1))
    found = way(scan, at(times_us[3000]), at(times_us[3100]))
    assert found == [number for number, time_us in enumerate(times_us) if times_us[3000] <= time_us <= times_us[3100]]
    # A block states its earliest time the less exactly the longer it took: on a busy machine that is milliseconds.
    before, read = bytes_read(lambda: way(scan, at(times_us[0] - 2_000_000_000), at(times_us[0] - 1_000_000_000)))
    assert before == []
    assert read < size / 12


@pytest.mark.parametrize(
    "way", [by_polars, by_view, by_statement, by_positions], ids=["polars", "to_duckdb", "jlogtool sql", "jlogtool dump --to"]
)
@pytest.mark.parametrize("rolled", [False, True], ids=["one segment", "many segments"])
def test_a_few_records_of_large_blocks_are_found_in_one_of_them(path, way, rolled):
    """Each block of an extend() of 1 MB is read once, if at all."""
    with jlog.Writer(path, **({"segment_bytes": 3 << 20} if rolled else {})) as writer:
        for first in range(0, 48 << 10, 1 << 10):
            numbers = range(first, first + (1 << 10))
            times_us = [BEGIN_US + number * 1_000_000 for number in numbers]
            writer.extend([b"%06d" % number + bytes(1000) for number in numbers], timestamps_us=times_us)
    scan = jlog.scan(path)
    way(scan, at(0), at(1))
    for first in (0, 20_000, (48 << 10) - 40):
        since, until = (at(BEGIN_US + number * 1_000_000) for number in (first, first + 39))
        found, read = bytes_read(lambda since=since, until=until: way(scan, since, until))
        assert found == list(range(first, first + 40))
        assert read < 2 << 20


@WAYS
def test_all_before_a_time_is_found_without_what_follows(path, way):
    timed(path, [BEGIN_US + number * 1_000_000 for number in range(12_000)])
    size, scan = jlog.Journal(path).size_bytes, jlog.scan(path)
    way(scan, at(0), at(1))
    found, read = bytes_read(lambda: way(scan, at(BEGIN_US - 10**12), at(BEGIN_US + 39 * 1_000_000)))
    assert found == list(range(40))
    assert read < size / 12


def test_an_archive_is_fetched_for_the_time_only(path, tmp_path, counting):  # noqa: F811
    times_us = [BEGIN_US + number * 1_000_000 for number in range(6_000)]
    timed(path, times_us, retention=jlog.Retention(archive=(tmp_path / "archive").as_uri()))
    with jlog.Writer(path) as writer:
        writer.roll()
        writer.append(b"kept")
    jlog.Journal(path).add_subscriber("all", start="end")
    jlog.Journal(path).clean()
    folder = next((tmp_path / "archive").iterdir())
    scan = jlog.scan(f"counting://{folder}")
    size = sum(file.stat().st_size for file in folder.glob("*.seg"))
    assert by_polars(scan, at(times_us[1000]), at(times_us[1050])) == list(range(1000, 1051))
    assert counting.bytes_read < size / 10
    everything = by_polars(scan, at(times_us[0]), at(times_us[-1]))
    assert everything == list(range(6_000))
    for manifest in folder.glob("*.json"):  # as earlier versions have written it
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"earliest_timestamp_us": None}))
    assert by_polars(scan, at(times_us[1000]), at(times_us[1050])) == list(range(1000, 1051))


@pytest.mark.usefixtures("wrong")
def test_records_after_the_clock_went_back_are_found(path):
    """A roll has set the times right: later segments have earlier times."""
    with jlog.Writer(path) as writer:
        writer.append(b"still ahead")
        writer.roll()
        writer.append(b"right again")
        writer.roll()
        writer.append(b"right still")
    times_us = [record.timestamp_us for record in jlog.Reader(path)]
    assert times_us[-2] < times_us[-3], "the clock went back"
    for since_us in sorted(times_us):
        for until_us in sorted(times_us):
            expected = [number for number, time_us in enumerate(times_us) if since_us <= time_us <= until_us]
            assert by_polars(jlog.scan(path), at(since_us), at(until_us)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_times_in_any_order_are_found_as_without_ranges(path, seed):
    """The clock's times, those of writers in order, late ones and wild ones, in one journal, and rolls in between."""
    chance = random.Random(seed)
    now_us = BEGIN_US
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=64 << 10) as writer:
        for number in range(1500):
            now_us += chance.randrange(2_000_000)
            wild_us = chance.randrange(2 * BEGIN_US)
            time_us = chance.choice([None, now_us, now_us, now_us - chance.randrange(10_000_000), wild_us])
            writer.append(b"%d" % number + bytes(300), timestamp_us=time_us if seed % 2 or number % 400 > 40 else now_us)
            if chance.random() < 0.01:
                writer.extend([bytes(9000)] * 3, timestamps_us=[now_us, None, now_us - chance.randrange(1 << 40)])
    times_us = [record.timestamp_us for record in jlog.Reader(path)]
    for number in range(60):
        since_us, until_us = sorted(chance.choice(times_us) + chance.randrange(-1, 2) for _ in range(2))
        if number % 2:
            until_us = since_us + chance.randrange(20_000_000)
        expected = [place for place, time_us in enumerate(times_us) if since_us <= time_us <= until_us]
        assert by_polars(jlog.scan(path), at(since_us), at(until_us)) == expected


@pytest.mark.damage
@pytest.mark.parametrize("part", ["header", "body"])
def test_damage_within_the_time_is_told_and_hides_nothing_after_it(path, part):
    timed(path, [BEGIN_US + number * 1_000_000 for number in range(1_500)])
    file, block = next((file, block) for file, block in jlog.Journal(path).blocks() if block.first_sequence > 700)
    change(file, block.offset + (0 if part == "header" else 100), b"damage")
    os.remove(file[:-4] + ".idx")
    told: list[Any] = []
    scan = jlog.scan(path).told(told.append, lambda _: None)
    found = by_polars(scan, at(BEGIN_US), at(BEGIN_US + 1_400 * 1_000_000))
    assert len(told) == 1
    assert found == [number for number in range(1401) if not block.first_sequence <= number < block.end_sequence]

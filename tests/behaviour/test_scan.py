"""jlog.scan: a lazy view of a journal for Arrow, Polars, DuckDB and pandas."""

import json
import math
import re
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone

import duckdb
import polars
import pyarrow
import pytest

import jlog
import jlog.query.scan
from behaviour.journals import SMALL, damage_block, fill, values
from jlog.query import duckdb_sql, json_fields
from patience import HUNG_SECONDS

BEGIN = datetime(2026, 11, 25, 12, tzinfo=timezone.utc)
SECOND_US = 1_000_000


def after(seconds):
    return BEGIN + timedelta(seconds=seconds)


def time_us(seconds):
    return int(BEGIN.timestamp()) * SECOND_US + int(seconds * SECOND_US)


@pytest.fixture
def timed(path):
    """1,000 records, one each second, in many segments."""
    with jlog.Writer(path, **SMALL) as writer:
        for number in range(1000):
            writer.append(b"%d" % number, key=b"k%d" % (number % 3), timestamp_us=time_us(number))
    return path


def numbers(found):
    return pyarrow.table(found).column("sequence").to_pylist()


# --- What it is --------------------------------------------------------------------------------------------------


def test_it_reads_nothing_itself_and_creates_nothing(path):
    scan = jlog.scan(path, start="before-batch")
    scan.to_duckdb(duckdb.connect(), "app")
    frame = scan.to_polars()
    assert not path.exists()
    with pytest.raises(jlog.JournalNotFound, match=str(path)):
        scan.to_arrow()
    with pytest.raises(OSError, match=f"JournalNotFound: {path}"):
        pyarrow.table(scan)
    with pytest.raises((jlog.JournalNotFound, polars.exceptions.ComputeError), match=str(path)):  # Polars 1 wraps errors
        frame.collect()
    assert not path.exists()
    with jlog.Writer(path):
        pass
    with pytest.raises(jlog.CheckpointNotFound, match="before-batch"):
        scan.to_arrow()


def test_it_can_be_read_any_number_of_times_to_the_end_of_each_reading(path, writer):
    scan = jlog.scan(path)
    connection = duckdb.connect()
    scan.to_duckdb(connection, "app")
    for count in (0, 100, 200):
        assert (len(numbers(scan)), scan.to_polars().collect().height, len(scan.to_pandas())) == (count,) * 3
        assert connection.sql("select count(*) from app a join app b using (sequence)").fetchall() == [(count,)]
        fill(writer, 100)


def test_it_holds_nothing_back(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 300)
    scan = jlog.scan(path)
    assert len(numbers(scan)) == 300
    assert jlog.Journal(path).subscribers() == {}
    with jlog.Writer(path, retention=jlog.Retention(max_bytes=1, keep_for_subscribers=False)) as writer:
        writer.roll()
        jlog.Journal(path).clean()
        left = len(jlog.Journal(path))
    assert len(numbers(scan)) == left < 300


def test_headers_are_a_map_in_each_engine(path, writer):
    writer.append(b"a", headers=[("level", b"INFO"), ("level", b"ERROR")])
    writer.append(b"b", headers=[("level", b"INFO")])
    writer.append(b"c")
    scan = jlog.scan(path, text=True)
    assert pyarrow.schema(scan).field("headers").type == pyarrow.map_(pyarrow.string(), pyarrow.string())
    assert pyarrow.schema(jlog.scan(path)).field("headers").type == pyarrow.map_(pyarrow.string(), pyarrow.binary())
    connection = duckdb.connect()
    scan.to_duckdb(connection, "app")
    assert connection.sql("select value from app where headers['level'] = 'ERROR'").fetchall() == [("a",)]
    assert scan.to_arrow().column("headers").to_pylist() == [[("level", "ERROR")], [("level", "INFO")], None]


def test_text_that_is_not_utf8_is_an_error_with_its_sequence(path, writer):
    fill(writer, 3)
    writer.append(b"\xff")
    with pytest.raises(ValueError, match="the value of record 3 is not UTF-8"):
        jlog.scan(path, text=True).to_arrow()


def test_an_archive_is_scanned_by_its_url_and_its_directory(path, tmp_path):
    with jlog.Writer(path, retention=jlog.Retention(archive=f"file://{tmp_path}/archive"), **SMALL) as writer:
        fill(writer, 300)
    with jlog.Reader(path, "billing", start="end"):
        jlog.Journal(path).clean()
    with jlog.Reader(f"file://{tmp_path}/archive") as reader:
        expected = list(reader.values())
    for url in (f"file://{tmp_path}/archive", f"{tmp_path}/archive"):
        assert jlog.scan(url).to_arrow().column("value").to_pylist() == expected
        assert jlog.scan(url).to_polars().filter(polars.col("sequence") >= 100).collect().height == len(expected) - 100


# --- Where it begins and ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("begin", "end", range(1000)),
        (10, 20, range(10, 20)),
        (990, 5000, range(990, 1000)),
        (after(5), after(7), range(5, 7)),
        ("2026-11-25T12:00:05Z", "2026-11-25 13:00:07.5+01:00", range(5, 8)),
        ("mark", "end", range(500, 1000)),
        ("begin", "mark", range(500)),
        ("end", "end", range(0)),
        (20, 10, range(0)),
    ],
)
def test_start_and_end_take_every_form_of_a_position(timed, start, end, expected):
    jlog.Journal(timed).set_checkpoint("mark", 500)
    scan = jlog.scan(timed, start=start, end=end)
    assert numbers(scan) == list(expected)
    assert scan.to_polars().collect()["sequence"].to_list() == list(expected)


def test_a_timedelta_is_so_long_ago_also_for_a_reader(path, writer):
    now_us = int(datetime.now(timezone.utc).timestamp() * SECOND_US)
    for minutes in (90, 30, 10, 0):
        writer.append(b"%d" % minutes, timestamp_us=now_us - minutes * 60 * SECOND_US)
    hour, minute = timedelta(hours=1), timedelta(minutes=20)
    assert jlog.scan(path, start=hour, end=minute).to_arrow().column("value").to_pylist() == [b"30"]
    with jlog.Reader(path, start=minute) as reader:
        assert list(reader.values()) == [b"10", b"0"]
        reader.seek(hour)
        assert reader.position == 1
    with jlog.Reader(path, "billing", start=datetime.now(timezone.utc).isoformat()) as reader:
        assert reader.position == 4


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"start": datetime(2026, 11, 25)}, ValueError, "no time zone"),  # noqa: DTZ001
        ({"end": "2026-11-25T12:00:00"}, ValueError, "not a time with a UTC offset"),
        ({"start": "2026-11-25T25:00:00Z"}, ValueError, "is not a time: hour must be in 0..23"),
        ({"start": 1.5}, TypeError, "a position must be 'begin', 'end', a sequence"),
        ({"parse": "xml"}, ValueError, "parse must be 'json'"),
        ({"schema": {"a": "int64"}}, ValueError, "parse='json'"),
        ({"parse": "json", "schema": {"a": "binary"}}, ValueError, "cannot be binary"),
    ],
)
def test_what_cannot_be_is_refused_at_once(path, given, error, message):
    with pytest.raises(error, match=message):
        jlog.scan(path, **given)


# --- What is read ------------------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch):
    """Counts the records that scans read."""
    count = [0]
    original = jlog.Reader.arrow_batches

    def counting(self, fields, *arguments):
        for batch in original(self, fields, *arguments):
            count[0] += len(batch)
            seen.update(field.name for field in fields)
            yield batch

    seen = set()
    monkeypatch.setattr(jlog.Reader, "arrow_batches", counting)
    return lambda: (count[0], seen)


C = polars.col


def as_view(connection, statement, scans):
    for name, scan in scans.items():
        scan.to_duckdb(connection, name)
    return connection.execute(statement)


@pytest.mark.parametrize(
    ("query", "expected", "most"),
    [
        (lambda frame: frame.filter(C("timestamp") >= after(990)), range(990, 1000), 10),
        (lambda frame: frame.filter((C("sequence") >= 10) & (C("sequence") < 20)), range(10, 20), 10),
        (lambda frame: frame.filter(C("sequence").is_between(5, 8)), range(5, 9), 4),
        (lambda frame: frame.filter(C("sequence").is_in([7, 9])), [7, 9], 3),
        (lambda frame: frame.filter((C("sequence") == 3) | (C("sequence") == 5)), [3, 5], 3),
        (lambda frame: frame.filter((C("sequence") < 9) & (C("timestamp") > after(5))), range(6, 9), 4),
        (lambda frame: frame.filter(C("sequence") < 5), range(5), 5),
        (lambda frame: frame.head(4), range(4), 4),
        (lambda frame: frame.filter(C("sequence") == 5000), [], 0),
        (lambda frame: frame.filter((C("sequence") < 5) & (C("sequence") > 5)), [], 0),
        (lambda frame: frame.filter(C("value") == b"7"), [7], 1000),
        (lambda frame: frame.filter(~(C("sequence") < 995)), range(995, 1000), 1000),
        (lambda frame: frame.filter(C("value").bin.contains(b"777")), [777], 64),
        (lambda frame: frame.filter(C("value").bin.starts_with(b"77") & C("value").bin.ends_with(b"7")), [77, 777], 500),
        (lambda frame: frame.filter(C("value").bin.contains(b"none") | (C("sequence") == 1)), [1], 1000),
        (lambda frame: frame.filter(~C("value").bin.contains(b"777")).tail(1), [999], 1000),
        (lambda frame: frame.filter(C("value").bin.contains(polars.lit(None, dtype=polars.Binary))), [], 1000),
        (lambda frame: frame.slice(5, 3), range(5, 8), 1000),
        (lambda frame: frame.tail(2), [998, 999], 1000),
    ],
)
def test_polars_reads_only_the_range_that_its_filters_leave(timed, read, query, expected, most):
    found = query(jlog.scan(timed).to_polars()).collect()
    assert found["sequence"].to_list() == list(expected)
    assert read()[0] <= most


VALUE, KEY = C("value").str, C("key").str
TEXTS = [
    ("value like '%777%'", VALUE.contains("777"), lambda n: n == 777, 64),
    ("contains(value, '99') and sequence > 500", VALUE.contains("99", literal=True) & (C("sequence") > 500),
     lambda n: "99" in str(n) and n > 500, 499),
    ("value like '%777%' or contains(value, '777')", VALUE.contains("777") | VALUE.ends_with("777"), lambda n: n == 777, 64),
    ("value like '%777%' or value like '%999%'", VALUE.contains("777|999"), lambda n: n in (777, 999), 1000),
    ("value like '%7_7%'", VALUE.contains("7.7"), lambda n: len(str(n)) == 3 and str(n)[::2] == "77", 1000),
    ("value ilike '%777%'", VALUE.contains("(?i)777"), lambda n: n == 777, 1000),
    ("not contains(value, '7')", ~VALUE.contains("7"), lambda n: "7" not in str(n), 1000),
    ("contains(value, '')", VALUE.contains(""), lambda n: True, 1000),
    ("contains(value, '7''7')", VALUE.contains("7'7"), lambda n: False, 0),
    ("value like '%7 7%'", VALUE.contains("7 7"), lambda n: False, 0),
    ("value like '%7-7#&~%'", VALUE.contains("7-7#&~"), lambda n: False, 0),
    ("contains(value, '7\n7')", VALUE.contains("7\n7"), lambda n: False, 1000),
    ("key like '%1%' and sequence < 5", KEY.contains("1") & (C("sequence") < 5), lambda n: n in (1, 4), 5),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "expression", "wanted", "most"), TEXTS)
@pytest.mark.parametrize("engine", ["jlogtool sql", "polars"])
def test_records_without_the_text_that_is_looked_for_are_passed_over(timed, read, condition, expression, wanted, most, engine):
    scan = jlog.scan(timed, text=True)
    if engine == "polars":
        found = scan.to_polars().filter(expression).collect()["sequence"].to_list()
    else:
        statement = f"select sequence from app where {condition} order by 1"
        found = [row[0] for row in duckdb_sql.execute(duckdb.connect(), statement, {"app": scan}).fetchall()]
    assert found == [number for number in range(1000) if wanted(number)]
    assert read()[0] <= most


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_text_is_found_at_every_place(path, compression):
    """Of the value, and of the lanes in which it is looked for."""
    texts = [b"n" + b"-" * (size - 2) + b"e" if size > 1 else b"n" for size in (1, 2, 3, 15, 16, 17, 33)]
    expected = {text: [] for text in texts}
    with jlog.Writer(path, compression=compression, segment_bytes=64 << 10, precommit=16 << 10) as writer:
        for text in texts:
            for before in range(20):
                writer.extend([b"o" * 40] * 70)
                value = b"o" * before + text + b"o" * (20 - before)
                key, headers = (b"k" if before % 3 else None), ({"h": b"v"} if before % 5 == 0 else None)
                sequence = writer.append(value, key=key, headers=headers)
                for other in texts:
                    if other in value:
                        expected[other].append(sequence)
    frame = jlog.scan(path).to_polars()
    for text, sequences in expected.items():
        assert frame.filter(C("value").bin.contains(text)).collect()["sequence"].to_list() == sequences


def test_whoever_looks_for_a_text_is_asked_now_and_then_whether_to_go_on(path):
    with jlog.Writer(path) as writer:
        for _ in range(45):
            writer.append(b"x" * (1 << 20))
        writer.append(b"needle")
    with jlog.Reader(path) as reader:
        found = [len(batch) for batch in reader.arrow_batches(jlog.scan(path).fields, needle=b"needle")]
        reader.seek(0)
        found_by_grep = [len(batch) for batch in reader.batches_with(b"needle", 46, 10_000, 8 << 20)]
    assert found == found_by_grep == [0, 1]


@pytest.mark.damage
def test_damage_is_told_though_no_record_has_the_text(timed):
    damage_block(timed, 3)
    with pytest.raises((jlog.CorruptJournal, polars.exceptions.ComputeError), match="checksum"):
        jlog.scan(timed).to_polars().filter(C("value").bin.contains(b"nowhere")).collect()


def test_polars_reads_only_the_columns_that_it_needs(timed, read):
    jlog.scan(timed).to_polars().filter(C("sequence") < 9).select(C("key").unique()).collect()
    assert read()[1] == {"sequence", "key"}


@pytest.mark.parametrize(
    ("statement", "expected", "most", "columns"),
    [
        ("select count(*) from app where timestamp >= '2026-11-25 12:16:30+00'", 10, 10, {"sequence", "timestamp"}),
        ("select count(value) from app where sequence between 10 and 19", 10, 10, {"sequence", "value"}),
        ("select count(*) from app where sequence in (7, 9)", 2, 3, {"sequence"}),
        ("select count(*) from app where sequence = 7 or 9 = sequence", 2, 3, {"sequence"}),
        ("with a as (from app where sequence < 9) select count(*) from a where timestamp > '2026-11-25 12:00:05+00'", 3, 4,
         {"sequence", "timestamp"}),
        ("select count(*) from app a join app b on a.sequence = b.sequence + 1 where b.sequence < 9 and a.sequence < 5", 4,
         18, {"sequence"}),
        ("select count(*) from app where value = 'x'') and (sequence < 5'::blob or sequence > 990", 9, 1000,
         set(jlog.query.scan.FIELDS)),
        ("select count(*) from app where value::varchar = '7'", 1, 1000, {"value"}),
        ("select count(*) from app where not (sequence < 995)", 5, 1000, {"sequence"}),
        ("select count(*) from app where sequence > (select 990)", 9, 1000, {"sequence"}),
        ("select count(*) from app where sequence = 5 and sequence = 6", 0, 0, set()),
        ("select count(*) from app where sequence < 3 + length('five')", 7, 7, {"sequence"}),
        ("select count(*) from app where timestamp between make_timestamptz(1795608000000000) and to_timestamp(1795608003)",
         4, 300, {"sequence", "timestamp"}),
        ("select count(*) from app where timestamp >= timestamptz '2026-11-25 12:00:00+00' + interval 990 seconds", 10, 10,
         {"sequence", "timestamp"}),
        ("select count(*) from app where timestamp > timestamp '2026-11-25 00:00' + to_seconds(43200 + 989)", 10, 10,
         {"sequence", "timestamp"}),
        ("select count(*) from app where timestamp < now() - interval 100 years", 0, 0, {"sequence", "timestamp"}),
        ("select count(*) from app where sequence >= floor(random())", 1000, 1000, {"sequence"}),
        ("select count(*) from app", 1000, 1000, {"sequence"}),
        ("select sequence from app where sequence between 10 and 19 order by sequence desc limit 1", 19, 10, {"sequence"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", [duckdb_sql.execute, as_view], ids=["jlogtool sql", "to_duckdb"])
def test_a_statement_reads_only_the_columns_and_the_range_that_it_needs(timed, read, statement, expected, most, columns, way):
    found = way(duckdb.connect(), statement, {"app": jlog.scan(timed)})
    assert found.fetchall() == [(expected,)]
    assert read()[0] <= most
    assert read()[1] <= columns


def test_each_statement_of_a_connection_is_narrowed(timed, read):
    connection = duckdb.connect()
    for sequence in range(3):
        statement = f"select count(*) from app where sequence = {sequence}"
        assert duckdb_sql.execute(connection, statement, {"app": jlog.scan(timed)}).fetchall() == [(1,)]
        connection.commit()
    assert read() == (3, {"sequence"})


def test_now_is_the_same_where_a_statement_is_planned_and_where_it_runs(path, writer, monkeypatch):
    """A record of the time in between belongs to the result."""
    original = duckdb_sql.plan

    def plan(*arguments):
        found = original(*arguments)
        writer.append(b"late", timestamp_us=int(datetime.now(timezone.utc).timestamp() * SECOND_US))
        return found

    monkeypatch.setattr(duckdb_sql, "plan", plan)
    connection = duckdb.connect()
    counted = duckdb_sql.execute(
        connection, "select count(*), now() from app where timestamp >= now()", {"app": jlog.scan(path)}
    )
    assert counted.fetchall()[0][0] == 1


def test_a_statement_with_a_column_that_reads_like_a_condition_is_not_narrowed(path, writer):
    writer.extend([json.dumps({"sequence > 5) AND (a": number}).encode() for number in range(10)])
    scan = jlog.scan(path, parse="json")
    statement = 'select count(*) from app where "sequence > 5) AND (a" = 2'
    assert duckdb_sql.execute(duckdb.connect(), statement, {"app": scan}).fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("select count(*) from app where place.sequence < 3", {"place"}),
        ("select place.sequence from app where place.sequence < 3", {"place"}),
        ("select sequence from app where place.value like '%/1%'", {"sequence", "place"}),
        ("select place.value from app where sequence > 3 and place.timestamp = 'noon'", {"sequence", "place"}),
        ("select sequence from app where place.value in ('a/1', 'b')", None),
        ("""select place.value, "place.value" from app""", {"place", "place.value"}),
        ("""select count(*) from app where "null" = 3""", None),
        ("""select count(*) from app where "null" = 3 or sequence < 2""", None),
    ],
)
def test_a_field_of_a_struct_is_not_taken_for_a_column_of_its_name(path, writer, statement, columns):
    for number in range(20):
        found = {"place": {"sequence": 19 - number, "value": f"a/{number}", "timestamp": "noon"}}
        more = {"null": number} if columns is None else {"place.value": number} if "place.value" in columns else {}
        writer.append(json.dumps(found | more).replace("/", "\\/").encode())
    scan = jlog.scan(path, parse="json")
    app = scan.to_arrow()  # noqa: F841 - of the statement
    expected = duckdb.sql(statement).fetchall()
    connection = duckdb.connect()
    assert duckdb_sql.execute(connection, statement, {"app": scan}).fetchall() == expected != []
    assert duckdb_sql.plan(connection, statement, {"app": scan})["app"].columns == columns


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("with a as (select sequence, value, headers from app) select count(*) from a", 1000),
        ("select count(*) from (select value as key, key as value, timestamp from app where sequence < 9)", 9),
        ("select count(*) from (select * exclude (headers) from app where timestamp < now())", 1000),
        ("select min(b) = '2026-11-25 12:00+00' from app as renamed(a, b)", True),
    ],
)
@pytest.mark.parametrize("way", [duckdb_sql.execute, as_view], ids=["jlogtool sql", "to_duckdb"])
def test_a_statement_may_name_columns_that_it_does_not_need(timed, statement, expected, way):
    assert way(duckdb.connect(), statement, {"app": jlog.scan(timed)}).fetchall() == [(expected,)]


# --- JSON --------------------------------------------------------------------------------------------------------


def test_fields_of_json_are_columns_of_the_inferred_types(path, writer):
    for number in range(100):
        fields = {"level": "ERROR", "ms": number * 1.5 if number % 2 else number, "n": number, "ok": True, "value": "own"}
        writer.append(json.dumps(fields | {"tags": ["a"], "at": {"x": number, "y": None}}).encode())
    scan = jlog.scan(path, parse="json")
    table = scan.to_arrow()
    assert [str(table.schema.field(name).type) for name in ("level", "ms", "n", "ok", "json_value", "tags", "at")] == [
        "string", "double", "int64", "bool", "string", "list<item: string>", "struct<x: int64, y: string>",
    ]  # fmt: skip
    assert table.column("ms").to_pylist()[:4] == [0.0, 1.5, 2.0, 4.5]
    assert table.column("value").to_pylist() == values(path)
    assert scan.to_polars().filter(C("level") == "ERROR").select(C("at").struct.field("x")).collect().sum().item() == 4950
    connection = duckdb.connect()
    scan.to_duckdb(connection, "app")
    assert connection.sql('select sum("at".x), max(json_value) from app').fetchall() == [(4950, "own")]


HOSTILE = [
    b'{"n": 1, "s": "a", "l": [1], "f": 1}',
    b'{"n": "1", "s": 2, "l": ["x", 3, null], "f": true}',
    b'{"n": 1.0, "s": null, "l": {}, "f": 1e3}',
    b'{"n": true, "s": ["a"], "l": null, "f": "x"}',
    b'{"n": 9223372036854775808, "s": "\\ud800", "f": 1' + b"0" * 400 + b"}",
    b'{"n": 5, "n": 6}',
    b'{"n": 7}{"n": 8}',
    b'{"n": 7}\n{"n": 8}',
    b'{"n": NaN}',
    b'{"s": "\xff"}',
    b'{"s": "a\nb"}',
    b' {"n": 9} ',
    b"[1]",
    b"1",
    b"null",
    b"",
    b"{",
    b"not JSON",
    b"[" * 100_000,
    None,
    b'{"n": 10, "other": 1}',
]
EXPECTED = [
    (1, "a", [1], 1.0), (None, None, [None, 3, None], None), (None, None, None, 1000.0), (None, None, None, None),
    (None, None, None, None), (6, None, None, None), *[(None,) * 4] * 5, (9, None, None, None), *[(None,) * 4] * 8,
    (10, None, None, None),
]  # fmt: skip
TYPES = {"n": "int64", "s": "string", "l": pyarrow.list_(pyarrow.int64()), "f": "float64"}


@pytest.mark.parametrize("together", [True, False])
def test_what_does_not_fit_is_null_in_its_row_which_stays(path, writer, together):
    """Whatever else a batch contains: each value alone gives the same."""
    found = []
    for at, value in enumerate(HOSTILE):
        writer.append(value)
        if not together:
            found += jlog.scan(path, start=at, parse="json", schema=TYPES).to_arrow().select(list(TYPES)).to_pylist()
    if together:
        found = jlog.scan(path, parse="json", schema=TYPES).to_arrow().select(list(TYPES)).to_pylist()
    assert [tuple(row.values()) for row in found] == EXPECTED


def test_a_schema_is_anything_with_an_arrow_schema_and_times_come_on_request(path, writer):
    writer.append(b'{"at": "2026-11-25T12:00:00Z", "day": "2026-11-25", "plain": "2026-11-25 12:00:00"}')
    writer.append(b'{"at": "2026-11-25T12:00:00", "day": "x", "plain": 5}')
    types = {"at": pyarrow.timestamp("us", "UTC"), "day": pyarrow.date32(), "plain": pyarrow.timestamp("us")}
    expected = [
        {"at": BEGIN, "day": BEGIN.date(), "plain": BEGIN.replace(tzinfo=None)},
        {"at": None, "day": None, "plain": None},
    ]
    for schema in (pyarrow.schema(types), {"at": "timestamp[us, UTC]", "day": "date32", "plain": "timestamp[us]"}):
        assert jlog.scan(path, parse="json", schema=schema).to_arrow().select(list(types)).to_pylist() == expected
    writer.append(b'{"at": "9999-01-01T00:00:00Z"}')  # no nanoseconds of 64 bits
    table = jlog.scan(path, parse="json", schema={"at": "timestamp[ns, UTC]"}).to_arrow()
    found = table.column("at").cast(pyarrow.timestamp("us", "UTC"))
    assert found.to_pylist() == [BEGIN, None, None]
    frame = polars.Schema({"at": polars.String})
    assert jlog.scan(path, parse="json", schema=frame).to_arrow().column("at")[1].as_py() == "2026-11-25T12:00:00"


def test_a_value_in_the_type_of_a_schema_keeps_its_digits_or_is_null(path, writer):
    texts = ["1969-12-31T23:59:59.999999999Z", "2026-11-25 13:00:00.1+01:00", "2262-04-11T23:47:16.854775807Z"]
    texts += ["2262-04-11T23:47:16.854775808Z", "tomorrow"]
    for text, number in zip(texts, (1.5, 1e300, -1e300, math.inf, 3e38), strict=True):
        writer.append(json.dumps({"at": text, "n": number}).encode())
    table = jlog.scan(path, parse="json", schema={"at": "timestamp[ns, UTC]", "n": "float32"}).to_arrow()
    noon_ns = time_us(0) * 1000
    assert table.column("at").cast("int64").to_pylist() == [-1, noon_ns + 100_000_000, (1 << 63) - 1, None, None]
    assert table.column("n").to_pylist() == [1.5, None, None, math.inf, pytest.approx(3e38)]


def test_many_columns_take_no_more_memory_than_their_texts(path, writer):
    for _ in range(200):
        writer.append(json.dumps({f"field {number}": "x" * 500 for number in range(200)}).encode())
    statement = (
        "import resource, sys, jlog\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))\n"
        "print(jlog.scan(sys.argv[1], parse='json').to_arrow().column('field 199')[199])"
    )
    found = subprocess.run([sys.executable, "-c", statement, path], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("x" * 500 + "\n", "")


def test_a_field_never_takes_the_name_of_another_column(path, writer):
    writer.append(b'{"value": 1, "json_value": 2, "json_json_value": 3, "key": 4}')
    (found,) = jlog.scan(path, parse="json").to_arrow().to_pylist()
    assert {name: value for name, value in found.items() if name.startswith("json_")} == {
        "json_json_json_value": 1,
        "json_value": 2,
        "json_json_value": 3,
        "json_key": 4,
    }


def test_a_field_without_a_name_has_a_column_that_can_be_chosen(path, writer):
    writer.append(b'{"": 1, "a": 2}')
    scan = jlog.scan(path, parse="json")
    assert scan.to_polars().select("json_").collect().item() == 1
    assert duckdb_sql.execute(duckdb.connect(), "SELECT json_ FROM app", {"app": scan}).fetchall() == [(1,)]


def test_columns_that_differ_in_case_alone_are_the_same_ones_in_each_statement(path, writer):
    writer.append(b'{"Level": 1, "level": 2, "level_1": 3}')
    scan = jlog.scan(path, parse="json")
    for statement in (
        "SELECT level_1 FROM app",
        "SELECT level_1 FROM (FROM app)",
        "SELECT any_value(COLUMNS('^level_1$')) FROM app",
    ):
        assert duckdb_sql.execute(duckdb.connect(), statement, {"app": scan}).fetchall() == [(2,)]


def test_a_schema_that_cannot_be_used_is_refused_with_the_name_of_the_field(path, writer):
    twice = pyarrow.schema([("n", pyarrow.int8()), ("n", pyarrow.int8())])
    for schema, said in (
        ({"n": "nonsense"}, "'nonsense' for the field 'n'"),
        ({"n": 5}, "5 for the field 'n'"),
        (twice, "'n' more"),
    ):
        with pytest.raises(ValueError, match=said):
            jlog.scan(path, parse="json", schema=schema)


def test_text_and_json_together(path, writer):
    writer.append(b'{"a": 1}', key=b"k")
    scan = jlog.scan(path, text=True, parse="json")
    assert scan.to_arrow().select(["key", "value", "a"]).to_pylist() == [{"key": "k", "value": '{"a": 1}', "a": 1}]
    for name, expected in (("key", "k"), ("value", '{"a": 1}'), ("a", 1)):
        assert scan.to_polars().select(name).collect().item() == expected


WIDE = [{"level": "INFO", **{f"user-{number}-{name}": number for name in range(40)}} for number in range(50)]


def test_whole_numbers_keep_all_their_digits(path, writer):
    values = [
        {"large": (1 << 64) - 1 - number, "beyond": (1 << 64) + number, "mixed": 0.5 if number % 2 else (1 << 53) + number + 1}
        for number in range(10)
    ]
    writer.extend([json.dumps(value | {"in": [value["beyond"]]}).encode() for value in values])
    scan = jlog.scan(path, parse="json")
    kinds = [str(scan.pyarrow_schema.field(name).type) for name in ("large", "beyond", "mixed", "in")]
    assert kinds == ["uint64", "string", "string", "list<item: string>"]
    found = scan.to_arrow().select(["large", "beyond", "mixed", "in"]).to_pylist()
    assert [row["large"] for row in found] == [value["large"] for value in values]
    assert [row["beyond"] for row in found] == [str(value["beyond"]) for value in values]
    assert [row["in"] for row in found] == [[str(value["beyond"])] for value in values]
    assert [row["mixed"] for row in found] == [str(value["mixed"]) for value in values]
    statement = "SELECT count(DISTINCT large), sum(beyond::HUGEINT) FROM app"
    total = sum(value["beyond"] for value in values)
    assert duckdb_sql.execute(duckdb.connect(), statement, {"app": scan}).fetchall() == [(10, total)]
    floats = jlog.scan(path, parse="json", schema={"beyond": "float64"}).to_arrow().column("beyond")
    assert floats[0].as_py() == float(1 << 64)


def test_nan_and_infinity_are_numbers_in_columns_of_floats(path, writer):
    writer.extend(
        [b'{"level": "INFO", "ratio": NaN, "in": {"x": 1}}', b'{"level": "INFO", "ratio": -Infinity, "in": {"x": 2}}']
    )
    table = jlog.scan(path, parse="json").to_arrow()
    assert table.column("level").to_pylist() == ["INFO", "INFO"]
    assert table.column("in").to_pylist() == [{"x": 1}, {"x": 2}]
    assert list(map(repr, table.column("ratio").to_pylist())) == ["nan", "-inf"]


def test_a_nul_in_the_name_of_a_field_stands_as_an_escape_in_that_of_its_column(path, writer):
    writer.append(json.dumps({"a\0b": 1, "a\\u0000b": 2, "in": {"\0": 3}}).encode())
    scan = jlog.scan(path, parse="json")
    (found,) = scan.to_polars().collect().to_dicts()
    assert [found[name] for name in ("json_a\\u0000b", "a\\u0000b", "in")] == [1, 2, {"\\u0000": 3}]
    assert scan.to_polars().select("a\\u0000b").collect().height == 1


def test_fields_beyond_the_limit_are_in_one_map_which_is_told_once(path, writer):
    writer.extend([json.dumps(value | {"attributes": value}).encode() for value in WIDE])
    scan = jlog.scan(path, parse="json", max_columns=10)
    with pytest.warns(UserWarning, match="more than 10 fields.*'json_rest'"):
        frame = scan.to_polars().collect()
    table = scan.to_arrow()  # a second warning would be an error
    assert len(table.schema.names) == 5 + 10 + 1
    rest, attributes = (dict(table.column(name)[7].as_py()) for name in ("json_rest", "attributes"))
    shown = {name: table.column(name)[7].as_py() for name in table.schema.names if name.startswith("user-")}
    assert {**{name: int(text) for name, text in rest.items()}, **{n: v for n, v in shown.items() if v is not None}} == {
        name: value for name, value in WIDE[7].items() if name != "level"
    }
    assert {name: json.loads(text) for name, text in attributes.items()} == WIDE[7]
    assert frame.height == 50


def test_a_map_takes_all_fields_of_an_object_and_of_several_with_one_name_the_last(path, writer):
    writer.append(b'{"all": {"a": 1.10, "\\u0062": [1, {}], "a": "x"}, "other": 1}')
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    (found,) = jlog.scan(path, parse="json", schema={"all": kind}).to_arrow().column("all").to_pylist()
    assert found == [("a", '"x"'), ("b", "[1, {}]")]


@pytest.mark.parametrize("time_us", [10**18, -(10**18), 253_402_300_799_999_999, (1 << 63) - 1])
def test_a_time_beyond_those_of_python_is_no_bound(timed, time_us):
    limit = polars.lit(time_us, dtype=polars.Int64).cast(polars.Datetime("us", "UTC"))
    for condition in (C("timestamp") < limit, C("timestamp") > limit, C("timestamp").is_between(limit, limit)):
        expected = jlog.scan(timed).to_polars().collect().filter(condition).height
        assert jlog.scan(timed).to_polars().filter(condition).collect().height == expected


# --- Damage and notebooks ----------------------------------------------------------------------------------------


def test_batches_are_parsed_side_by_side_and_an_error_comes_in_its_place():
    both = threading.Barrier(2, timeout=HUNG_SECONDS)

    def parse(number):
        if number < 2:
            both.wait()
        return number

    def batches():
        yield from range(3)
        raise ValueError("damaged")

    found = json_fields.side_by_side(parse, batches())
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(found)


@pytest.mark.damage
def test_damage_is_an_error_of_each_engine(timed):
    damage_block(timed, 3)
    scan = jlog.scan(timed)
    with pytest.raises(jlog.CorruptJournal):
        scan.to_arrow()
    with pytest.raises((jlog.CorruptJournal, polars.exceptions.ComputeError), match="checksum"):
        scan.to_polars().collect()
    with pytest.raises(duckdb.Error, match="checksum"):
        duckdb_sql.execute(duckdb.connect(), "select count(value) from app", {"app": scan}).fetchall()
    with pytest.raises(duckdb.Error, match="checksum"):
        as_view(duckdb.connect(), "select count(value) from app where key is not null", {"app": scan}).fetchall()


def test_notebooks_show_tables_in_which_everything_is_escaped(path):
    evil = b"<script>alert(1)</script>"
    with jlog.Writer(path, **SMALL) as writer:
        writer.extend([evil] * 100, keys=[b"\xff&"] * 100, headers=[[("<b>", b'"')]] * 100, timestamps_us=[2**63 - 1] * 100)
        jlog.Journal(path).add_subscriber("<i>billing")
        with jlog.Reader(path) as reader:
            shown = [jlog.Journal(path), reader.read(), jlog.scan(path), jlog.scan(path, parse="json")]
        for one in shown:
            html = one._repr_html_()
            assert "&lt;script&gt;" in html
            assert html.count("<tr>") >= 10
            assert "<script" not in html
            assert "<b>" not in html
            assert "<i>billing" not in html
    assert "does not exist" in jlog.scan(path.parent / "none")._repr_html_()


@pytest.mark.parametrize("parse", [None, "json"])
def test_a_notebook_shows_the_first_and_the_last_records(path, parse):
    with jlog.Writer(path) as writer:
        for count in range(1, 25):
            writer.append(b'{"n": %d}' % count)
            rows = re.findall(
                r"<tr><td>(\d+)</td>.*?<td>([^<]*|<i>null</i>)</td></tr>", jlog.scan(path, parse=parse)._repr_html_()
            )
            assert [int(row[0]) for row in rows] == sorted({*range(min(count, 5)), *range(max(0, count - 5), count)})
            if parse:
                assert [int(row[1]) for row in rows] == [int(row[0]) + 1 for row in rows]
    part = jlog.scan(path, start=5, end=10, parse=parse)._repr_html_()
    assert re.findall(r"<tr><td>(\d+)</td>", part) == ["5", "6", "7", "8", "9"]


def test_a_notebook_shows_checkpoints(path):
    jlog.Writer(path).close()
    jlog.Journal(path).set_checkpoint("half-way", 0)
    assert "<td>half-way</td>" in jlog.Journal(path)._repr_html_()


def test_tab_offers_what_is_documented(path):
    assert {name for name in dir(jlog) if not name.startswith("_")} == {name for name in jlog.__all__ if name[0] != "_"}
    offered = [name for name in dir(jlog.scan(path)) if not name.startswith("_")]
    assert offered == ["end", "path", "start", "tail", "text", "to_arrow", "to_duckdb", "to_pandas", "to_polars"]


def test_a_scan_stays_with_its_journal_where_the_working_directory_changes(tmp_path, monkeypatch):
    for name in ("a", "b"):
        with jlog.Writer(tmp_path / name / "log") as writer:
            writer.append(name.encode())
    monkeypatch.chdir(tmp_path / "a")
    scan = jlog.scan("log")
    frame = scan.to_polars()
    monkeypatch.chdir(tmp_path / "b")
    assert scan.to_arrow()["value"].to_pylist() == frame.collect()["value"].to_list() == [b"a"]

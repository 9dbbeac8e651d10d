"""A query gives the same whether reading takes over a part of it or reads everything."""

from __future__ import annotations

import operator
import random
from datetime import datetime, timedelta, timezone

import duckdb
import polars
import pytest

import exhaustive
import jlog
from jlog.query import duckdb_sql
from jlog.query.bounds import EVERYTHING

BASE = datetime(2026, 11, 25, 12, tzinfo=timezone.utc)
BASE_US = int(BASE.timestamp()) * 1_000_000
RECORDS = 400
COLUMNS = ["sequence", "timestamp", "key", "value"]
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne}


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """Timestamps that writers gave, in no order, a microsecond apart, before 1970 too; and a gap-free run of the clock's."""
    chance = random.Random(32)
    path = tmp_path_factory.mktemp("pushing") / "j"
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=8 << 10) as writer:
        for number in range(RECORDS):
            given = BASE_US + number * 10 + chance.choice([0, 0, 0, 1, -25, 40])
            writer.append(
                b"v%d" % chance.randrange(5),
                key=chance.choice([None, b"k"]),
                timestamp_us=None if number > 380 else -number if number == 7 else given,
            )
    return jlog.scan(path)


def numbers(chance):
    return chance.choice([chance.randrange(-2, RECORDS + 3), 0, RECORDS - 1, RECORDS, -(2**63), 2**63 - 1])


def times(chance):
    return BASE + timedelta(microseconds=chance.randrange(-60, RECORDS * 10 + 60))


# Constants in every form, and what is not a constant: random() is another one for each row, but within (0, 1).
SEQUENCES = ["{}", "{}.5", "({} + 1)", "'{}'", "{}::hugeint", "least({}, 99)", "length('{}')", "({} + floor(random()))"]
TIMES = [
    "{}",
    "timestamptz {}",
    "({}::timestamptz + interval 5 microseconds)",
    "make_timestamptz({1})",
    "to_timestamp({1} / 1000000.0)",
    "make_timestamp({1})",
    "make_timestamp_ns({1} * 1000 + 500)",
    "date_trunc('second', {}::timestamptz)",
    "{}::timestamptz::date",
    "(date '2026-11-25' + to_microseconds({1} % 86400000000))",
    "(now() - interval 1 hour)",
    "('epoch'::timestamptz + to_microseconds({1}))",
    "(make_timestamptz({1}) + to_microseconds(floor(random())::bigint))",
    "(select make_timestamptz({1}))",
    "'infinity'::timestamptz",
]


def sql_of(chance, depth):
    """A random condition."""
    kind = chance.randrange(10 if depth else 7)
    if kind >= 7:
        joined = f" {chance.choice(['AND', 'OR'])} ".join(sql_of(chance, depth - 1) for _ in range(chance.randrange(2, 4)))
        return f"{chance.choice(['', '', 'NOT '])}({joined})"
    column = chance.choice(["sequence", "timestamp"])

    def literal():
        if column == "sequence":
            return chance.choice(SEQUENCES).format(chance.randrange(-2, RECORDS + 3))
        zone = chance.choice([timezone.utc, timezone(timedelta(hours=5, minutes=30))])
        at = times(chance)
        us = (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
        return chance.choice(TIMES).format(f"'{at.astimezone(zone).isoformat(sep=' ')}'", us)

    if kind == 0:
        return f"{column} {chance.choice(['', 'NOT '])}BETWEEN {literal()} AND {literal()}"
    if kind == 1:
        return f"{column} IN ({literal()}, {literal()}, {literal()})"
    if kind == 2:
        other = ["value = 'v1'::blob", "key IS NULL", "sequence % 3 = 1", "timestamp::date = '2026-11-25'", "random() < 2"]
        epoch_us, sequence = BASE_US + chance.randrange(RECORDS * 10), chance.randrange(RECORDS)
        return chance.choice([*other, f"epoch_us(timestamp) > {epoch_us}", f"sequence + 1 < {sequence}"])
    if kind == 3:
        return f"{literal()} {chance.choice(list(OPERATORS))} {column}"
    return f"{column} {chance.choice(list(OPERATORS))} {literal()}"


FORMS = [
    "SELECT {columns} FROM app WHERE {condition}",
    "WITH a AS (FROM app WHERE {condition}) SELECT {columns} FROM a",
    "WITH a AS (SELECT {columns}, headers FROM app WHERE {condition}) SELECT count(key) FROM a",
    "SELECT {columns} FROM app WHERE sequence IN (SELECT sequence FROM app WHERE {condition})",
    "SELECT {columns} FROM (SELECT {columns} FROM app ORDER BY sequence LIMIT 50) WHERE {condition}",
    "SELECT a.* FROM (SELECT {columns} FROM app WHERE {condition}) a LEFT JOIN (FROM app WHERE {other}) b USING (sequence)",
    "SELECT {columns} FROM app WHERE {condition} UNION ALL SELECT {columns} FROM app WHERE {other}",
]


def as_view(connection, statement, scans):
    for name, scan in scans.items():
        scan.to_duckdb(connection, name)
    return connection.execute(statement)


@pytest.mark.parametrize("seed", range(exhaustive.count(50, 3000)))
@pytest.mark.parametrize("way", [duckdb_sql.execute, as_view], ids=["jlogtool sql", "to_duckdb"])
def test_a_statement_gives_what_it_gives_over_a_table(scan, seed, way):
    chance = random.Random(seed)
    statement = chance.choice(FORMS).format(columns=", ".join(COLUMNS), condition=sql_of(chance, 2), other=sql_of(chance, 1))
    plain, pushed = duckdb.connect(), duckdb.connect()
    records = scan.to_arrow()
    plain.execute("CREATE TABLE app AS FROM records")
    try:
        expected = plain.execute(statement).fetchall()
    except duckdb.Error:
        with pytest.raises(duckdb.Error):
            way(pushed, statement, {"app": scan}).fetchall()
        return
    found = way(pushed, statement, {"app": scan}).fetchall()
    assert sorted(found, key=repr) == sorted(expected, key=repr), statement
    assert records.num_rows == RECORDS


def expression_of(chance, depth):
    kind = chance.randrange(10 if depth else 7)
    if kind >= 7:
        left, right = expression_of(chance, depth - 1), expression_of(chance, depth - 1)
        joined = left & right if chance.random() < 0.5 else left | right
        return ~joined if chance.random() < 0.2 else joined
    name = chance.choice(["sequence", "timestamp"])
    column = polars.col(name)

    def value():
        return numbers(chance) if name == "sequence" else times(chance)

    if kind == 0:
        return column.is_between(value(), value(), closed=chance.choice(["both", "left", "right", "none"]))
    if kind == 1:
        return column.is_in([value(), value(), value()])
    if kind == 2:
        value = polars.col("value")
        bytes_of = [value.bin.contains(b"%d" % chance.randrange(6)), value.bin.starts_with(b"v"), value.bin.ends_with(b"1")]
        return chance.choice([*bytes_of, value == b"v1", polars.col("key").is_null(), polars.col("sequence") % 3 == 1])
    if kind == 3 and name == "timestamp":
        return column > polars.lit(times(chance)).dt.cast_time_unit("ns")
    compare = chance.choice(list(OPERATORS.values()))
    return compare(value(), column) if kind == 4 else compare(column, value())


@pytest.mark.parametrize("seed", range(exhaustive.count(50, 3000)))
def test_a_lazy_frame_gives_what_a_frame_gives(scan, seed):
    chance = random.Random(seed)
    condition = expression_of(chance, 2)
    whole, lazy = polars.DataFrame(scan), scan.to_polars()
    ways = [
        lambda frame: frame.filter(condition),
        lambda frame: frame.filter(condition).select("value", "sequence"),
        lambda frame: frame.filter(condition).head(5),
        lambda frame: frame.head(30).filter(condition),
        lambda frame: frame.filter(condition).slice(3, 7),
        lambda frame: frame.filter(condition).tail(4),
    ]
    way = chance.choice(ways)
    engine = chance.choice(["in-memory", "streaming"])
    assert way(lazy).collect(engine=engine).equals(way(whole)), str(condition)


def test_some_of_the_random_conditions_are_pushed(scan):
    """Else the tests above would test nothing."""
    pushed = 0
    for seed in range(100):
        chance = random.Random(seed)
        connection = duckdb.connect()
        connection.begin()
        statement = f"SELECT count(*) FROM app WHERE {sql_of(chance, 1)}"
        try:
            needed = duckdb_sql.plan(connection, statement, {"app": scan})
        except duckdb.Error:
            continue
        pushed += "app" in needed and needed["app"].bounds != EVERYTHING
    assert pushed > 30

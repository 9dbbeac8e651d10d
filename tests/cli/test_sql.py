"""`jlogtool sql`."""

from __future__ import annotations

import os
import signal
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

import jlog
from behaviour.journals import damage_block
from cli.command import HUNG_SECONDS, do, run, run_afresh, start
from cli.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

NOON_US = int(datetime(2026, 11, 25, 12, tzinfo=timezone.utc).timestamp()) * 1_000_000
LEVELS = ["ERROR" if number % 3 == 0 else "INFO" for number in range(60)]


@pytest.fixture
def app(journal: Path) -> Path:
    """A JSON object each second after noon."""
    with jlog.Writer(journal) as writer:
        writer.extend(
            [b'{"level": "%s", "n": %d}' % (level.encode(), number) for number, level in enumerate(LEVELS)],
            headers=[[("host", b"a")]] * 60,
            timestamps_us=[NOON_US + number * 1_000_000 for number in range(60)],
        )
    return journal


def test_a_statement_over_the_fields_of_json(app: Path) -> None:
    statement = "SELECT level, count(*) AS n, sum(n) AS total FROM app GROUP BY 1 ORDER BY 1"
    found = do("sql", statement, f"app={app}", "--parse", "json")
    assert [line.split() for line in found.lines] == [
        [b"level", b"n", b"total"],
        [b"ERROR", b"20", b"570"],
        [b"INFO", b"40", b"1200"],
    ]


def test_a_schema_gives_fields_their_types(app: Path) -> None:
    statement = "SELECT typeof(n) AS kind FROM app LIMIT 1"
    found = do("sql", statement, f"app={app}", "--parse", "json", "--schema", '{"n": "uint64"}', "--format", "csv")
    assert found.lines == [b"kind", b"UBIGINT"]


def test_fields_beyond_the_limit_are_told_on_stderr(app: Path) -> None:
    statement = "SELECT count(DISTINCT json_rest['n']) AS n FROM app"
    found = run("sql", statement, f"app={app}", "--parse", "json", "--max-columns", "1", "--format", "csv")
    assert (found.code, found.lines) == (0, [b"n", b"60"])
    assert "more than 1 fields" in found.err


def test_a_terminal_has_a_line_for_each_row(app: Path) -> None:
    statement = "SELECT *, repeat('wide', 40) AS wide, n AS m FROM app ORDER BY sequence LIMIT 3"
    with terminal("sql", "--parse", "json", statement, f"app={app}", columns=80) as screen:
        text = screen.read_until(lambda text: "left out" in text)
    lines = text[text.index("sequence") :].splitlines()
    assert lines[0].split()[:2] == ["sequence", "timestamp"]
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "2"]
    assert [line.split()[-1] for line in lines[1:4]] == ["0", "1", "2"]
    assert all("wide" in line for line in lines[:4])
    assert "columns are left out: " in lines[4]


def test_a_record_that_cannot_be_text_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "j") as writer:
        writer.append(b"\xff")
    result = run("sql", "--parse", "json", "--text", "FROM j", f"j={tmp_path / 'j'}")
    assert result.code == 1
    assert result.err.endswith("leave text=True out\n")


def test_a_statement_that_is_not_utf_8_is_an_error_of_one_line(app: Path) -> None:
    result = run("sql", os.fsdecode(b"SELECT '\xff'"), f"app={app}")
    assert result.code == 2
    assert "not UTF-8" in result.err
    assert "Traceback" not in result.err


def test_jsonl_and_csv_show_bytes_as_text_or_base64(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"text, with a comma", key=b"\xff", headers=[("h", b"v")], timestamp_us=NOON_US)
        writer.append(None, timestamp_us=NOON_US)
    found = do("sql", "FROM app ORDER BY sequence", f"app={journal}", "--format", "jsonl").json_lines
    at = "2026-11-25T12:00:00.000000Z"
    assert found == [
        {"sequence": 0, "timestamp": at, "key": "/w==", "value": "text, with a comma", "headers": {"h": "v"}},
        {"sequence": 1, "timestamp": at, "key": None, "value": None, "headers": None},
    ]
    statement = "SELECT value, key, headers, 1.5, true, 'nan'::float FROM app ORDER BY sequence"
    assert do("sql", statement, f"app={journal}", "--format", "csv").lines[1:] == [
        b'"text, with a comma",/w==,"{""h"": ""v""}",1.5,true,',
        b",,,1.5,true,",
    ]


def test_parquet_and_other_formats_go_to_a_file_that_appears_whole(app: Path, tmp_path: Path) -> None:
    for name in ("out.parquet", "out.jsonl", "out.csv"):
        do("sql", "FROM app;", f"app={app}", "--format", name.partition(".")[2], "-o", tmp_path / name)
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column("value").to_pylist()[0] == b'{"level": "ERROR", "n": 0}'
    assert [len((tmp_path / name).read_bytes().splitlines()) for name in ("out.jsonl", "out.csv")] == [60, 61]
    assert run("sql", "SELECT error('no') FROM app", f"app={app}", "-o", tmp_path / "none").code == 1
    assert run("sql", "FROM app", f"app={app}", "--format", "parquet").code == 2
    assert not (tmp_path / "none").exists()
    assert not list(tmp_path.glob("*.part-*"))


def test_two_journals_are_joined_and_a_time_without_offset_is_of_this_zone(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jlog.Writer(tmp_path / "other") as writer:
        writer.extend([b"x"] * 5)
    statement = "SELECT count(*) AS n FROM app JOIN other USING (sequence)"
    sources = (f"app={app}", f"other={tmp_path / 'other'}", "--format", "jsonl")
    assert do("sql", statement, *sources).json == {"n": 5}
    statement = (
        "SET TimeZone = 'Asia/Tokyo'; SELECT count(*) AS n FROM app WHERE timestamp >= '2026-11-25 21:00:50'"  # 12:00:50 UTC
    )
    assert do("sql", statement, *sources).json == {"n": 10}


def test_jsonl_has_every_column_of_a_join(app: Path) -> None:
    statement = "SELECT a.n, b.n, 3 AS n_1 FROM app a JOIN app b ON b.n = a.n + 1 WHERE a.n = 1"
    found = do("sql", statement, f"app={app}", "--parse", "json", "--format", "jsonl")
    assert found.json == {"n": 1, "n_1": 2, "n_1_1": 3}


def test_from_and_to_limit_the_records(app: Path) -> None:
    limits = ("--from", "2026-11-25T12:00:10Z", "--to", "2026-11-25T12:00:20Z")
    found = do("sql", "SELECT min(sequence) AS a, max(sequence) AS b FROM app", f"app={app}", *limits, "--format", "jsonl")
    assert found.json == {"a": 10, "b": 19}


@pytest.mark.damage
def test_damage_is_left_out_with_a_line_for_each_place_and_exit_code_3(segments: Path) -> None:
    for number in (3, 20):
        damage_block(segments, number)
    statement = "SELECT count(*) AS n FROM app a JOIN app b USING (sequence) WHERE a.value IS NOT NULL"
    found = run("sql", statement, f"app={segments}", "--format", "jsonl")
    assert (found.code, found.json) == (3, {"n": 38})
    assert [line.partition("; ")[2] for line in found.err.splitlines()] == ["record 3 is lost", "record 20 is lost"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["SELEC", "app={app}"], 2, "syntax error"),
        (["", "app={app}"], 2, "the statement is empty"),
        (["FROM nowhere", "app={app}"], 2, "nowhere"),
        (["SELECT nothing FROM app", "app={app}"], 2, "nothing"),
        (["FROM app", "{app}"], 2, "is not NAME=JOURNAL"),
        (["FROM app", "app={app}", "app={app}"], 2, "two journals have the name app"),
        (["FROM app", "app={app}", "App={app}"], 2, "two journals have the name App, app"),
        (["FROM app", "app={app}/none"], 1, "does not exist"),
        (["FROM app", "app={app}", "--from", "mark"], 1, "has no checkpoint 'mark'"),
        (["SELECT 'x'::int FROM app", "app={app}"], 1, "Could not convert"),
    ],
)
def test_what_is_wrong_is_told_in_its_exit_code(app: Path, arguments: list[str], code: int, message: str) -> None:
    found = run("sql", *[argument.format(app=app) for argument in arguments])
    assert found.code == code
    assert message in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_statement_that_would_take_hours(app: Path, tmp_path: Path, number: int, code: int) -> None:
    spilled = tmp_path / "spilled"
    spilled.mkdir()
    statement = (
        f"COPY (SELECT 1) TO '{tmp_path}/begun'; SELECT count(*) FROM range(1000000000000) t(i), app WHERE i % 7 = sequence"
    )
    process = start("sql", statement, f"app={app}", env={**os.environ, "TMPDIR": str(spilled)})
    begun = threading.Event()
    while not (tmp_path / "begun").exists() and process.poll() is None:
        begun.wait(0.01)
    process.send_signal(number)
    process.communicate(timeout=HUNG_SECONDS)
    assert process.returncode == code
    assert not list(spilled.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_also_while_nobody_takes_its_output(app: Path, tmp_path: Path, number: int) -> None:
    spilled = tmp_path / "spilled"
    spilled.mkdir()
    statement = "SELECT i FROM range(100000000) t(i), app"
    with start("sql", statement, f"app={app}", "--format", "csv", env={**os.environ, "TMPDIR": str(spilled)}) as process:
        assert process.stdout.read(1) == b"i"
        process.send_signal(number)
        assert process.wait(HUNG_SECONDS) == 128 + number
        assert process.stderr.read() == b""
    assert not list(spilled.iterdir())


@pytest.mark.parametrize(
    ("zone", "clock"),
    [
        ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-07-01 14:00:00+02"),
        ("EST5EDT,M3.2.0,M11.1.0", "2026-07-01 08:00:00-04"),
        ("<+03>-3", "2026-07-01 15:00:00+03"),
        (":/usr/share/zoneinfo/Asia/Tokyo", "2026-07-01 21:00:00+09"),
        ("Asia/Tokyo", "2026-07-01 21:00:00+09"),
        ("UTC", "2026-07-01 12:00:00+00"),
    ],
)
def test_a_time_without_offset_is_of_this_zone_however_tz_is_written(
    app: Path, monkeypatch: pytest.MonkeyPatch, zone: str, clock: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    statement = f"SELECT '2026-07-01T12:00:00Z'::TIMESTAMPTZ::VARCHAR AS a, '{clock[:19]}'::TIMESTAMPTZ AS b"
    found = run_afresh("sql", statement, f"app={app}", "--format", "jsonl")
    assert found.json == {"a": clock, "b": "2026-07-01T12:00:00.000000Z"}


def test_a_zone_that_duckdb_does_not_have_is_told(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "<+0330>-3:30")
    found = run_afresh("sql", "FROM app", f"app={app}")
    assert (found.code, "DuckDB knows no time zone that is this machine's, +0330; name one in TZ" in found.err) == (2, True)

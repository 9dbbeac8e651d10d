"""Retention and the archive on the command line."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import do, run, run_afresh, run_on_terminal

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = [
    *("--keep-read", "--max-bytes", "1M", "--max-age", "7d", "--drop-unread"),
    *("--subscriber-max-age", "1d12h", "--limit-bytes", "2M", "--archive", "s3://logs/archive", "--archive-on-roll"),
]
RETENTION = jlog.Retention(
    delete_read=False,
    max_bytes=1 << 20,
    max_age=timedelta(days=7),
    keep_for_subscribers=False,
    subscriber_max_age=timedelta(hours=36),
    limit_bytes=2 << 20,
    archive="s3://logs/archive",
    archive_on_roll=True,
)


def retention_of(journal: Path) -> jlog.Retention:
    return jlog.Journal(journal).options.retention


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return (tmp_path / "archive").as_uri()


@pytest.fixture
def archived(segments: Path, archive: str) -> Path:
    """A journal whose first 30 records an archive may have."""
    do("append", segments, "--archive", archive)
    do("subscriber", "add", segments, "one", "--start", 35)
    return segments


def test_create_takes_everything_that_retention_has(journal: Path) -> None:
    do("create", journal, *OPTIONS)
    assert retention_of(journal) == RETENTION


def test_append_changes_what_it_is_told_and_no_more(journal: Path) -> None:
    do("append", journal, *OPTIONS)
    assert retention_of(journal) == RETENTION
    do("append", journal, stdin=b"1\n")
    assert retention_of(journal) == RETENTION
    do("append", journal, "--max-bytes", "none", "--archive", "none", "--remove-read", "--max-age", "30s")
    assert retention_of(journal) == jlog.Retention(
        max_age=timedelta(seconds=30),
        keep_for_subscribers=False,
        subscriber_max_age=timedelta(hours=36),
        limit_bytes=2 << 20,
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--max-age", "7"),
        ("--max-bytes", "much"),
        ("--max-bytes", "0"),
        ("--max-bytes", "2M", "--limit-bytes", "1M"),
        ("--archive", "/var/archive"),
        ("--archive", "nowhere://x"),
    ],
)
@pytest.mark.parametrize("command", ["create", "append"])
def test_an_impossible_option_is_an_error_of_usage(journal: Path, command: str, options: tuple[str, ...]) -> None:
    """It creates no journal."""
    assert run(command, journal, *options).code == 2
    assert not journal.exists()


def test_info_says_what_is_kept(journal: Path) -> None:
    do("create", journal, *OPTIONS)
    found = do("info", journal, "--json").json
    assert found["retention"] == {
        "delete_read": False,
        "max_bytes": 1 << 20,
        "max_age": 604_800,
        "keep_for_subscribers": False,
        "subscriber_max_age": 129_600,
        "limit_bytes": 2 << 20,
        "archive": "s3://logs/archive",
        "archive_on_roll": True,
    }
    shown = do("info", journal).out
    for said in (
        b"1.0 MiB",
        b"7d00h old",
        b"unread too",
        b"1d12h",
        b"full at 2.0 MiB",
        b"to s3://logs/archive when they are sealed",
    ):
        assert said in shown


def test_info_names_who_has_expired(segments: Path) -> None:
    kept = jlog.Retention(subscriber_max_age=timedelta(microseconds=1))
    jlog.Writer(segments, retention=kept).close()
    do("subscriber", "add", segments, "gone", "--start", 5)
    (dead,) = do("info", segments, "--json").json["dead"]
    assert (dead["name"], dead["expired"], dead["held_bytes"]) == ("gone", True, 0)
    assert b"gone (no commit for" in do("info", segments).out


def test_clean_says_why(segments: Path) -> None:
    do("subscriber", "add", segments, "one", "--start", 15)
    do("append", segments, "--max-bytes", "1", "--drop-unread")
    found = do("clean", segments, "--dry-run", "--json").json
    reasons = ["read", "max_bytes", "max_bytes", "max_bytes"]
    assert [segment["first_sequence"] for segment in found] == [0, 10, 20, 30]
    assert [segment["reason"] for segment in found] == reasons
    assert b"max_bytes" in do("clean", segments, "--dry-run").out


def test_clean_archives_and_dump_reads_it_there(archived: Path, archive: str) -> None:
    assert len(do("clean", archived, "--dry-run", "--json").json) == 3
    assert jlog.Journal(archived).first_sequence == 0
    assert len(do("clean", archived, "--json").json) == 3
    assert jlog.Journal(archived).first_sequence == 30
    assert do("dump", archive).lines == [b"%d" % number for number in range(30)]
    assert do("dump", archive, "--from", 7, "--to", 9).lines == [b"7", b"8"]
    assert do("dump", archive, "--grep", "2").lines == [b"2", b"12", *(b"%d" % number for number in range(20, 30))]
    directory = archive.removeprefix("file://")
    assert do("dump", directory, "--reverse", "--limit", 2).lines == [b"29", b"28"]
    for place in (archive, directory):
        assert do("tail", place, "-n", 2).lines == [b"28", b"29"]
        assert do("tail", place, "-n", 1, "--grep", "1").lines == [b"21"]
        info = do("info", place, "--json").json
        assert [info[name] for name in ("uuid", "first_sequence", "next_sequence", "records")] == [
            jlog.Journal(archived).uuid,
            0,
            30,
            30,
        ]
        verify = do("verify", place, "--json").json
        assert (verify["ok"], verify["records"], verify["segments"]) == (True, 30, info["segments"])
        assert b"sound" in do("verify", place).out


def test_clean_on_a_terminal_does_the_same(archived: Path, archive: str) -> None:
    code, shown = run_on_terminal("clean", archived)
    assert code == 0
    assert b"000.seg" in shown
    assert jlog.archive.Archive(archive).next_sequence == 30


def test_an_archive_out_of_reach_is_one_line_and_ends_with_1(archived: Path, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(b"a file is in its place")
    result = run("clean", archived)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "cannot be" in result.err
    assert jlog.Journal(archived).first_sequence == 0


def test_restore_brings_a_journal_back(archived: Path, archive: str, tmp_path: Path) -> None:
    do("clean", archived)
    do("restore", archive, tmp_path / "back")
    assert do("dump", tmp_path / "back").lines == [b"%d" % number for number in range(30)]
    assert do("verify", tmp_path / "back", "--json").json["ok"]
    again = run("restore", archive, tmp_path / "back")
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert run("restore", (tmp_path / "nothing").as_uri(), tmp_path / "b").code == 1
    assert run("restore", tmp_path, tmp_path / "b").code == 2
    assert sorted(os.listdir(tmp_path)) == ["archive", "back", "journal"]


def test_without_fsspec_it_says_what_to_install(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "fsspec.py").write_text("raise ImportError('it is not installed')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'without'}:{os.environ.get('PYTHONPATH', '')}")
    result = run_afresh("create", journal, "--archive", "file:///var/archive")
    assert (result.code, "pip install 'pyjlog[archive]'" in result.err) == (1, True)
    assert "pip install 'pyjlog[archive]'" in run_afresh("dump", "s3://bucket/archive").err
    assert run_afresh("create", journal).code == 0


def test_a_segment_that_was_changed_in_the_archive_is_damage(archived: Path, archive: str) -> None:
    do("clean", archived)
    directory = os.path.join(archive.removeprefix("file://"), jlog.Journal(archived).uuid)
    name = next(name for name in os.listdir(directory) if name.endswith(".seg"))
    with open(os.path.join(directory, name), "ab") as file:
        file.write(b"more")
    found = run("verify", archive, "--json")
    assert found.code == 3
    (damage,) = found.json["damage"]
    assert damage["reason"] == "it is not what was archived"
    assert found.json["records"] == 30 - damage["records_lost"]


def test_a_call_that_an_archive_cannot_serve_says_what_to_do(archived: Path, archive: str) -> None:
    do("clean", archived)
    for arguments, said in (
        (("tail", "-f", archive), "follow the journal that archives there"),
        (("dump", "--blocks", archive), "`jlogtool restore` creates one"),
        (("stats", "s3://bucket/archive"), "The URL of an archive is for"),
    ):
        found = run(*arguments)
        assert (found.code, said in found.err) == (2, True), found.err

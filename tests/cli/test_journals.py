"""`jlogtool create`, `info`, `ls` and `rm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jlog
from cli.command import do, run, run_on_terminal

if TYPE_CHECKING:
    from pathlib import Path

INFO = {
    "path", "uuid", "format_version", "first_sequence", "next_sequence", "records", "size_bytes", "raw_bytes",
    "segments", "compression", "precommit", "sync", "retention", "subscribers", "checkpoints", "skipped",
}  # fmt: skip


def test_create_makes_an_empty_journal_with_these_options(journal: Path) -> None:
    do("create", journal, "--segment-bytes", "1M", "--precommit", "64KiB", "--keep-read")
    opened = jlog.Journal(journal)
    assert len(opened) == 0
    assert (opened.options.segment_bytes, opened.options.precommit) == (1 << 20, 64 << 10)
    assert opened.options.retention.delete_read is False


def test_create_leaves_alone_what_is_there(numbers: Path) -> None:
    assert run("create", numbers).code == 1
    assert len(jlog.Journal(numbers)) == 100


def test_create_refuses_a_value_that_is_not_allowed(journal: Path) -> None:
    for option in (
        ["--segment-bytes", "1"],
        ["--segment-bytes", "1X"],
        ["--precommit", "7"],
        ["--sync", "maybe"],
    ):
        assert run("create", journal, *option).code == 2
    assert not journal.exists()


def test_info_has_everything_that_scripts_rely_on(numbers: Path) -> None:
    do("subscriber", "add", numbers, "one", "--start", 10)
    do("checkpoint", "set", numbers, "mark", 20)
    found = do("info", numbers, "--json").json
    assert found.keys() >= INFO
    assert (found["first_sequence"], found["next_sequence"], found["records"]) == (0, 100, 100)
    assert found["subscribers"] == [{"name": "one", "sequence": 10, "lag": 90, "busy": False}]
    assert found["checkpoints"] == [{"name": "mark", "sequence": 20, "lag": 80}]
    assert (found["path"], found["skipped"]) == (str(numbers), [])


def test_info_for_people_has_the_same_names(numbers: Path) -> None:
    assert {line.split()[0].decode() for line in do("info", numbers).lines} >= INFO


def test_roll_begins_a_segment_and_needs_a_record_for_it(numbers: Path) -> None:
    for _ in range(2):
        do("roll", numbers)
        sealed, begun = jlog.Journal(numbers).segments()
        assert (sealed.sealed, sealed.records, begun.records) == (True, 100, 0)


def test_roll_makes_no_journal(journal: Path) -> None:
    assert run("roll", journal).code == 1
    assert not journal.exists()


def test_ls_finds_every_journal_below(tmp_path: Path) -> None:
    for name in ("a", "deep/er/b"):
        do("append", tmp_path / name, stdin=b"1\n2\n")
    do("subscriber", "add", tmp_path / "a", "slow")
    do("subscriber", "add", tmp_path / "a", "fast", "--start", "end")
    first, second = do("ls", tmp_path, "--json").json
    assert (first["path"], first["records"], first["lag"]) == (str(tmp_path / "a"), 2, 2)
    assert [at["name"] for at in first["subscribers"]] == ["fast", "slow"]
    assert (second["path"], second["subscribers"]) == (str(tmp_path / "deep/er/b"), [])
    assert len(do("ls", tmp_path).lines) == 3


def test_ls_looks_below_the_current_directory_unless_told(numbers: Path) -> None:
    (found,) = run("ls", "--json", cwd=numbers.parent).json
    assert found["path"] == "./journal"


def test_ls_goes_on_after_a_journal_that_it_cannot_read(tmp_path: Path) -> None:
    do("append", tmp_path / "good", stdin=b"1\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal.meta").write_bytes(b"nonsense")
    result = run("ls", tmp_path, "--json")
    (tmp_path / "bad" / "journal.meta").unlink()
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert [found["path"] for found in result.json] == [str(tmp_path / "good")]


def test_rm_leaves_what_is_not_the_journals_and_names_it(numbers: Path) -> None:
    (numbers / "notes.txt").write_text("not the journal's")
    with jlog.Writer(numbers / "inner") as inner:
        inner.append(b"acknowledged")
        result = run("rm", "--yes", numbers)
        assert (result.code, result.err) == (
            0,
            f"jlogtool: {numbers} is still there, with files that are not the journal's: inner, notes.txt\n",
        )
        assert sorted(path.name for path in numbers.iterdir()) == ["inner", "notes.txt"]
        inner.append(b"goes on")
    assert len(jlog.Journal(numbers / "inner")) == 2


def test_rm_needs_yes_where_nobody_can_be_asked(numbers: Path) -> None:
    assert run("rm", numbers).code == 2
    assert numbers.exists()
    do("rm", numbers, "--yes")
    assert not numbers.exists()


def test_rm_asks_on_a_terminal(numbers: Path) -> None:
    code, shown = run_on_terminal("rm", numbers, typed=b"n\n")
    assert (code, numbers.exists()) == (1, True)
    assert b"100 records" in shown
    code, _ = run_on_terminal("rm", numbers, typed=b"y\n")
    assert (code, numbers.exists()) == (0, False)


def test_rm_leaves_alone_what_is_in_use(numbers: Path) -> None:
    with jlog.Writer(numbers):
        assert run("rm", numbers, "--yes").code == 1
    assert len(jlog.Journal(numbers)) == 100

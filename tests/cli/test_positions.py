"""`jlogtool subscriber`, `checkpoint` and `rewind`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import do, run

if TYPE_CHECKING:
    from pathlib import Path

NAMES_NOT_ALLOWED = ["", ".hidden", "a/b", "begin", "end", "12", "-3", "2026-11-20", "x" * 201, "a\nb"]


def subscribers(journal: Path) -> dict[str, int]:
    return {name: position.sequence for name, position in jlog.Journal(journal).subscribers().items()}


def checkpoints(journal: Path) -> dict[str, int]:
    return {name: position.sequence for name, position in jlog.Journal(journal).checkpoints().items()}


def test_subscriber_ls_tells_where_each_stands(numbers: Path) -> None:
    do("subscriber", "add", numbers, "audit", "--start", "end")
    with jlog.Reader(numbers, "billing") as reader:
        reader.read(max_records=10)
        reader.commit()
        assert do("subscriber", "ls", numbers, "--json").json == [
            {"name": "audit", "sequence": 100, "lag": 0, "busy": False},
            {"name": "billing", "sequence": 10, "lag": 90, "busy": True},
        ]


def test_checkpoint_ls_tells_the_same_without_busy(numbers: Path) -> None:
    do("checkpoint", "set", numbers, "half", 50)
    assert do("checkpoint", "ls", numbers, "--json").json == [{"name": "half", "sequence": 50, "lag": 50}]


@pytest.mark.parametrize("kind", ["subscriber", "checkpoint"])
def test_a_journal_without_any_has_an_empty_list(numbers: Path, kind: str) -> None:
    assert do(kind, "ls", numbers, "--json").json == []


def test_a_table_is_not_cut_off_where_no_terminal_limits_it(numbers: Path) -> None:
    name = "n" * 200
    do("subscriber", "add", numbers, name)
    heading, row = do("subscriber", "ls", numbers).out.decode().splitlines()
    assert heading.split() == ["name", "sequence", "lag", "busy"]
    assert row.split() == [name, "0", "100", "no"]


@pytest.mark.parametrize(("start", "sequence"), [("begin", 0), ("end", 100), ("7", 7), ("half", 50), ("2000-01-01T00:00Z", 0)])
def test_a_subscriber_starts_at_any_position(numbers: Path, start: str, sequence: int) -> None:
    do("checkpoint", "set", numbers, "half", 50)
    do("subscriber", "add", numbers, "new", "--start", start)
    assert subscribers(numbers) == {"new": sequence}


def test_a_subscriber_starts_at_the_beginning_unless_told(numbers: Path) -> None:
    do("subscriber", "add", numbers, "new")
    assert subscribers(numbers) == {"new": 0}


def test_a_copy_stands_where_the_other_one_does(numbers: Path) -> None:
    do("subscriber", "add", numbers, "one", "--start", 42)
    do("subscriber", "copy", numbers, "one", "two")
    assert subscribers(numbers) == {"one": 42, "two": 42}


def test_set_moves_a_subscriber(numbers: Path) -> None:
    do("subscriber", "add", numbers, "one")
    do("subscriber", "set", numbers, "one", 9)
    assert subscribers(numbers) == {"one": 9}


def test_rm_removes_subscribers(numbers: Path) -> None:
    for name in ("one", "two", "three"):
        do("subscriber", "add", numbers, name)
    do("subscriber", "rm", numbers, "one", "three")
    assert subscribers(numbers) == {"two": 0}


def test_rm_removes_none_where_one_is_unknown(numbers: Path) -> None:
    do("subscriber", "add", numbers, "one")
    assert run("subscriber", "rm", numbers, "one", "nobody").code == 1
    assert subscribers(numbers) == {"one": 0}


def test_set_makes_and_moves_a_checkpoint_and_rm_removes_it(numbers: Path) -> None:
    do("checkpoint", "set", numbers, "mark", "end")
    do("checkpoint", "set", numbers, "mark", 3)
    assert checkpoints(numbers) == {"mark": 3}
    do("checkpoint", "rm", numbers, "mark")
    assert checkpoints(numbers) == {}


def test_rewind_sets_a_subscriber_back(numbers: Path) -> None:
    do("checkpoint", "set", numbers, "mark", 30)
    do("subscriber", "add", numbers, "one", "--start", "end")
    do("rewind", numbers, "one", "mark")
    assert subscribers(numbers) == {"one": 30}


def test_a_subscriber_that_is_being_read_is_left_alone(numbers: Path) -> None:
    do("checkpoint", "set", numbers, "mark", 30)
    with jlog.Reader(numbers, "one"):
        for command in (["set", numbers, "one", 5], ["rm", numbers, "one"]):
            result = run("subscriber", *command)
            assert (result.code, result.err.count("\n")) == (1, 1)
        assert run("rewind", numbers, "one", "mark").code == 1
    assert subscribers(numbers) == {"one": 0}


@pytest.mark.parametrize("name", NAMES_NOT_ALLOWED)
@pytest.mark.parametrize("command", ["subscriber add", "checkpoint set"])
def test_a_name_that_is_not_allowed_is_an_error_of_usage(numbers: Path, command: str, name: str) -> None:
    position = ["end"] if command == "checkpoint set" else []
    assert run(*command.split(), numbers, "--", name, *position).code == 2


@pytest.mark.parametrize("name", ["a b", "kafka:orders", "zwölf", "-dash", "[red]", "v1.2"])
def test_a_name_that_is_allowed_is_listed_as_it_is(numbers: Path, name: str) -> None:
    do("subscriber", "add", numbers, "--", name)
    assert [row["name"] for row in do("subscriber", "ls", numbers, "--json").json] == [name]
    assert name in do("subscriber", "ls", numbers).out.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        "subscriber rm JOURNAL nobody",
        "subscriber set JOURNAL nobody 1",
        "subscriber copy JOURNAL nobody new",
        "subscriber add JOURNAL there",
        "subscriber add JOURNAL new --start nowhere",
        "checkpoint rm JOURNAL nowhere",
        "rewind JOURNAL there nowhere",
        "rewind JOURNAL nobody nowhere",
    ],
)
def test_a_missing_or_existing_name_is_one_line_and_exit_code_1(numbers: Path, arguments: str) -> None:
    do("subscriber", "add", numbers, "there")
    result = run(*[numbers if word == "JOURNAL" else word for word in arguments.split()])
    assert (result.code, result.err.count("\n")) == (1, 1)


def test_a_sequence_after_the_end_is_an_error_of_usage(numbers: Path) -> None:
    assert run("subscriber", "add", numbers, "new", "--start", 101).code == 2
    assert run("checkpoint", "set", numbers, "new", 101).code == 2

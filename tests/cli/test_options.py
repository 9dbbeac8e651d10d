"""`jlogtool options`, and the same options of `create` and `append`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jlog
from cli.command import do, run
from jlog.options import COMPRESSIONS, ROLLS, SYNCS

if TYPE_CHECKING:
    from pathlib import Path

# Every value that can be chosen, and one of each number.
GIVEN: list[tuple[str, Any, Any]] = [
    *(("compression", value, value) for value in COMPRESSIONS),
    *(("roll", value, value) for value in ROLLS),
    *(("sync", value, value) for value in SYNCS),
    ("sync_interval", "0.25", 0.25),
    ("segment_bytes", "1M", 1 << 20),
]
EACH = pytest.mark.parametrize(("name", "text", "value"), GIVEN)


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@EACH
def test_create_append_and_options_set_what_they_are_given(tmp_path: Path, name: str, text: str, value: Any) -> None:
    do("create", tmp_path / "created", option(name), text)
    do("append", tmp_path / "appended", option(name), text, stdin=b"one\n")
    do("create", tmp_path / "changed")
    assert do("options", tmp_path / "changed", option(name), text).out == b""
    for journal in ("created", "appended", "changed"):
        assert getattr(jlog.Journal(tmp_path / journal).options, name) == value


def test_without_an_option_it_shows_them_all(numbers: Path) -> None:
    shown = do("options", numbers, "--json").json
    assert shown["segment_bytes"] == 64 << 20
    assert {line.split()[0].decode() for line in do("options", numbers).lines} == shown.keys()
    assert b"64.0 MiB" in do("options", numbers).out


def test_options_that_are_not_given_stay_as_they_are(journal: Path) -> None:
    do("create", journal, "--segment-bytes", "1M", "--sync-interval", "5")
    before = do("options", journal, "--json").json
    after = do("options", journal, "--segment-bytes", "2M", "--json").json
    assert after == before | {"segment_bytes": 2 << 20}


def test_a_change_holds_for_a_process_that_writes_already(journal: Path) -> None:
    with jlog.Writer(journal, precommit=0) as writer:
        writer.append(b"x" * 5000)
        do("options", journal, "--segment-bytes", "4K")
        writer.append(b"x" * 5000)
        writer.append(b"x" * 5000)
    assert len(jlog.Journal(journal).segments()) == 3


def test_the_buffer_grows_and_never_shrinks(numbers: Path) -> None:
    do("options", numbers, "--precommit", "1M")
    assert jlog.Journal(numbers).options.precommit == 1 << 20
    for less in ("64K", "0"):
        result = run("options", numbers, "--precommit", less)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "never shrinks" in result.err


def test_the_buffer_does_not_grow_beside_a_writer(numbers: Path) -> None:
    with jlog.Writer(numbers):
        result = run("options", numbers, "--precommit", "1M")
    assert (result.code, "while no process" in result.err) == (1, True)


@pytest.mark.parametrize(
    "given",
    ["--segment-bytes 1", "--segment-bytes many", "--sync maybe", "--sync-interval 0", "--precommit 7"],
)
def test_a_value_that_is_not_allowed_changes_nothing(numbers: Path, given: str) -> None:
    """It is an error of usage."""
    before = jlog.Journal(numbers).options
    assert run("options", numbers, *given.split()).code == 2
    assert jlog.Journal(numbers).options == before


def test_options_makes_no_journal(journal: Path) -> None:
    assert run("options", journal).code == 1
    assert run("options", journal, "--segment-bytes", "1M").code == 1
    assert not journal.exists()

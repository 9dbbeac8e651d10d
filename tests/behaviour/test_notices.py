"""Errors beside a call are logged, and none of them looks like a failure of the call, whatever logging itself does."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jlog


class Raising(logging.Handler):
    """A program's handler whose own work fails."""

    calls = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.calls += 1
        raise RuntimeError("the log server is away")


@pytest.fixture
def handler() -> Iterator[Raising]:
    found, logger = Raising(), logging.getLogger("jlog")
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)


def make_cleaning_fail(path: Path) -> Callable[[], None]:
    """Returns what makes it work again."""
    table, away = path / "subscribers", path / "away"
    table.rename(away)
    table.touch()

    def mend() -> None:
        table.unlink()
        away.rename(table)

    return mend


def test_an_append_that_has_rolled_succeeds_whatever_a_handler_raises(tmp_path: Path, handler: Raising) -> None:
    path = tmp_path / "j"
    with jlog.Writer(path, segment_bytes=4096) as writer:
        mend = make_cleaning_fail(path)
        assert [writer.append(b"x" * 1500) for _ in range(10)] == list(range(10))
        mend()
    assert handler.calls > 0


def deep(number: int, call: Callable[[], object]) -> object:
    return deep(number - 1, call) if number else call()


def test_a_call_near_the_recursion_limit_raises_only_if_it_has_appended_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A generator that Python cannot close so deep is reported to the hook, and pytest's own needs more stack than is left.
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    with jlog.Writer(tmp_path / "j", segment_bytes=16 << 10, precommit=4096) as writer:
        values, refused = [b"v" * 3000] * 5, 0
        for depth in range(sys.getrecursionlimit() - 60, sys.getrecursionlimit()):
            before = writer.next_sequence
            try:
                deep(depth, lambda: writer.extend(values))
            except RecursionError:
                refused += 1
                assert writer.next_sequence == before
        assert 0 < refused < 60

"""What is held: the contests of `jlogtool bench` with what they are to reach, and some more."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from jlog.bench import suite
from jlog.bench.contest import Contest, Settings, Way
from jlog.bench.writing import ours, ours_together, plain_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS = {"append": "≥ 2.0×", "extend": "≥ 1.5×", "processes": "≥ 1.2×", "values": "≥ 6×"}


@contextmanager
def extend_100(settings: Settings) -> Iterator[tuple[Way, Way]]:
    yield Way("extend, 100 at a time", ours(settings.load, 100)), Way("write each", plain_loop(settings.load))


@contextmanager
def processes_extend_100(settings: Settings) -> Iterator[tuple[Way, Way]]:
    with ExitStack() as stack:
        yield (
            Way("extend, 100 at a time, 2 processes", ours_together(stack, 2, settings.load, 100)),
            Way("the same, 1 process", ours_together(stack, 1, settings.load, 100)),
        )


CONTESTS = [
    *(replace(contest, target=TARGETS.get(contest.name, "")) for contest in suite.contests()),
    Contest("extend-100", extend_100),
    Contest("processes-extend-100", processes_extend_100, "> 1.0×"),
]

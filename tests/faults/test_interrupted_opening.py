"""A signal's handler that raises at any moment of a call that opens files: every descriptor has an owner, and is closed."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import jlog
from faults.moments import Moments, Stopped
from jlog.system.files import Directory, HeldPath, open_file, open_stream, read_small

# A file that its finalizer closes warns of that; as an error, the warning would be kept, and the file with it.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

CALLS: dict[str, Callable[[str], object]] = {
    "a file": lambda path: open_file(os.path.join(path, "bounds")),
    "a stream": lambda path: open_stream(os.path.join(path, "bounds")),
    "what is not a file": open_file,
    "a small file": lambda path: read_small(os.path.join(path, "journal.meta"), 1 << 20),
    "a directory": lambda path: Directory(path, "subscribers"),
    "a directory that is made": lambda path: Directory(path, "made", make=True),
    "a held directory": HeldPath,
    "a reader": jlog.Reader,
    "a subscriber": lambda path: jlog.Reader(path, "s"),
}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", CALLS)
def test_an_exception_at_any_moment_leaves_no_descriptor_open(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "j")
    with jlog.Writer(path) as writer:
        writer.append(b"x")
    gc.collect()  # what tests before this one have left
    before, at, struck = descriptors(), 0, True
    while struck:
        at += 1
        moments = Moments(at)
        with suppress(Stopped, jlog.CorruptJournal):
            moments.during(lambda: CALLS[kind](path))
        if descriptors() > before:
            gc.collect()
        struck = moments.struck is not None
        assert descriptors() <= before, moments.struck
    assert at > 5


@pytest.mark.parametrize(
    "call",
    [lambda journal: journal.set_subscriber("s", 5), lambda journal: journal.rewind("s", "c")],
    ids=["set_subscriber", "rewind"],
)
def test_a_name_that_an_interrupted_call_has_held_is_free_though_the_exception_is_kept(
    tmp_path: Path, call: Callable[[jlog.Journal], object]
) -> None:
    with jlog.Writer(tmp_path / "j") as writer:
        writer.extend([b"x"] * 10)
        journal = jlog.Journal(tmp_path / "j")
        journal.add_subscriber("s")
        journal.set_checkpoint("c", 3)
        at, struck = 0, True
        while struck:
            at += 1
            moments = Moments(at)
            kept: Stopped | None = None  # as a debugger keeps it, and with it what the call has opened
            try:
                moments.during(lambda: call(journal))
            except Stopped as error:
                kept = error
            struck = moments.struck is not None
            journal.set_subscriber("s", 5)
            del kept
    assert at > 5

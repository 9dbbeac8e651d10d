"""Journals that the tests of the command line share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jlog
from chromium import browser  # noqa: F401 - a fixture
from cli.consoles import HOSTILE, NAME, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a test's journal goes; nothing is there yet."""
    return tmp_path / "journal"


@pytest.fixture
def numbers(journal: Path) -> Path:
    """A journal of the values b"0" to b"99"."""
    with jlog.Writer(journal) as writer:
        writer.extend([b"%d" % number for number in range(100)])
    return journal


@pytest.fixture
def segments(journal: Path) -> Path:
    """The values b"0" to b"39", a block for each: ten in each of four sealed segments, none in the open one."""
    with jlog.Writer(journal, precommit=0) as writer:
        for number in range(40):
            writer.append(b"%d" % number)
            if number % 10 == 9:
                writer.roll()
    return journal


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """A directory with a journal of hostile records."""
    with jlog.Writer(tmp_path / NAME) as writer:
        writer.append(HOSTILE, key=HOSTILE, headers=[("<i>", HOSTILE)])
        writer.append(b"\x1b[2J\x1b]0;owned\x07")
        writer.append(b'{"order": {"tea": 2}}')
        writer.append(bytes(range(256)))
        writer.append(None)
        writer.extend([b"number %d" % number for number in range(5, 200)])
    return tmp_path


@pytest.fixture
def console(journals: Path) -> Iterator[str]:
    """The address of a console of these journals, which changes nothing."""
    with serving(journals) as address:
        yield address


@pytest.fixture
def log(tmp_path: Path, journal: Path) -> Path:
    jlog.Journal.create(journal)
    directory = tmp_path / "log"
    directory.mkdir(mode=0o755)
    return directory / "app.log"

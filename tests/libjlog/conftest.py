"""Shared by the tests of libjlog's journals."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import jlog
from jlog.libjlog import Import, ImportResult


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Where a test's journal of libjlog goes; nothing is there yet."""
    return tmp_path / "source"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def values(journal: Path) -> list[bytes | None]:
    with jlog.Reader(journal) as reader:
        return list(reader.values())


def subscribers(journal: Path) -> dict[str, int]:
    return {name: at.sequence for name, at in jlog.Journal(journal).subscribers().items()}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of change of every file."""
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


@dataclass
class Imported:
    """The result of an import, and what it has reported."""

    result: ImportResult
    damage: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_all(source: Path, journal: Path, **options: Any) -> Imported:
    damage: list[str] = []
    warnings: list[str] = []
    notes: list[str] = []
    told = {"on_damage": damage.append, "on_warning": warnings.append, "on_note": notes.append}
    return Imported(Import(source, journal, **told, **options).run(), damage, warnings, notes)


def import_quietly(source: Path, journal: Path, **options: Any) -> ImportResult:
    """Everything must be intact, and there must be nothing to tell."""
    found = import_all(source, journal, **options)
    assert (found.damage, found.warnings, found.notes) == ([], [], [])
    return found.result

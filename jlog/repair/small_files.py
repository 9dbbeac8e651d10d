"""Repairs of the small files of a journal, each of them on its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from jlog._core.format.dual_slot import both_copies
from jlog._core.read.rebuild import COPIES_AT
from jlog._core.recover.recovery import sync_directory
from jlog._core.segments.index import build_index, read_index, write_index
from jlog._core.segments.segment import named
from jlog.errors import CorruptJournal
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.repair.quarantine import Quarantine
from jlog.storage.damage import bad_sectors_are_damage
from jlog.storage.meta import DIRECTORIES, Meta
from jlog.system.files import Directory, naming, open_file, write_whole

TEMPORARY = "next.repair"  # under this name a file is no part of a journal
BEING_MADE = ("next.", ".journal.meta")  # how the names of such files begin


@dataclass(frozen=True)
class Action:
    """What a repair has done to a file; in a dry run, what it would do."""

    path: str
    text: str


@dataclass
class Actions:
    """What is done to the journal at `path`, in order. In a dry run nothing is."""

    path: str
    dry_run: bool
    done: list[Action] = field(default_factory=list)

    def do(self, name: str, text: str, function: Callable[..., object], *arguments: Any) -> None:
        self.done.append(Action(self.file(name), text))
        if not self.dry_run:
            function(*arguments)

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self.path)


def mend_directories(actions: Actions) -> None:
    for name in DIRECTORIES:
        if not os.path.isdir(actions.file(name)):
            actions.do(name, "made anew: it was missing", _make_directory, actions.path, name)


def _make_directory(path: str, name: str) -> None:
    Directory(path, name, make=True).close()
    sync_directory(path)


def mend_positions(actions: Actions, meta: Meta, first_kept: int) -> None:
    """One copy is made anew from the other. Where both are damaged nobody knows where it stood: at the first record it holds
    everything back, as it did while it was damaged."""
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in position_files.names(actions.path, kind):
            file = PositionFile(actions.path, meta, kind, name)
            try:
                with bad_sectors_are_damage():
                    file.read()
                    mend_copies(actions, meta, f"{kind}s/{name}")
            except CorruptJournal:
                text = f"set to {first_kept}, the first record kept: where it stood cannot be read"
                actions.do(f"{kind}s/{name}", text, _set, actions, file, first_kept)
            finally:
                file.close()


def _set(actions: Actions, file: PositionFile, sequence: int) -> None:
    actions.quarantine.keep(file.path)
    file.write(sequence)
    file.sync()


def mend_copies(actions: Actions, meta: Meta, name: str, *, bounds: bool = False) -> None:
    """Of a file that has one whole copy at least."""
    with open(actions.file(name), "rb" if actions.dry_run else "r+b", opener=open_file) as file:
        copies = both_copies(file.fileno(), meta.uuid, bounds=bounds)
        for at, copy, other in zip(COPIES_AT, copies, reversed(copies), strict=True):
            if copy is None and other is not None:
                text = "its damaged copy is made anew from the other one"
                actions.do(name, text, _put, file, other, at)


def _put(file: IO[bytes], content: bytes, at: int) -> None:
    with naming(file.name):
        write_whole(file.fileno(), content, at)
        os.fdatasync(file.fileno())


def mend_indexes(actions: Actions, meta: Meta, ends: dict[int, int], written: set[int]) -> None:
    """`ends`: where the blocks of each sealed segment end; `written`: those that were written anew, their indexes not yet. One
    that is missing elsewhere is no damage: whoever needs it builds it for himself."""
    for entry in sorted(os.listdir(actions.path)):
        segment = named(entry, "idx")
        if segment is None or segment in written:
            continue
        if segment not in ends:
            actions.do(entry, "removed: it is of no sealed segment", os.unlink, actions.file(entry))
        elif not _index_is_right(actions.path, meta, segment, ends[segment]):
            actions.do(entry, "made anew", _make_index, actions.path, meta, segment, ends[segment])

    for segment in sorted(written & ends.keys()) if not actions.dry_run else ():
        _make_index(actions.path, meta, segment, ends[segment])


def _index_is_right(path: str, meta: Meta, segment: int, end: int) -> bool:
    found = read_index(path, segment, meta.uuid)
    return found is not None and found.entries == build_index(path, segment, meta.uuid, end).entries


def _make_index(path: str, meta: Meta, segment: int, end: int) -> None:
    write_index(path, segment, meta.uuid, end, TEMPORARY)


def remove_unfinished(actions: Actions) -> None:
    """Files that somebody was killed over while he made them."""
    for folder in ("", *DIRECTORIES):
        path = actions.file(folder)
        for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
            begun = name.startswith("." if folder else BEING_MADE)
            entry = os.path.join(folder, name)
            if begun and os.path.isfile(actions.file(entry)):
                actions.do(entry, "removed: it was never finished", os.unlink, actions.file(entry))

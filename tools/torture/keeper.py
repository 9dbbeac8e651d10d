"""A keeper: cleans, archives, verifies, backs up, restores and repairs copies, beside all other processes. It writes down the
records that it reads in copies, like a subscriber without a name."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import jlog
from jlog import archive
from torture.errands import run_errands
from torture.records import Wrong
from torture.subscriber import saw

if TYPE_CHECKING:
    from pathlib import Path

    from torture.gate import Gate
    from torture.log import Log


class Errand(NamedTuple):
    """work: a directory for a copy."""

    spec: dict[str, Any]
    log: Log
    work: str

    @property
    def path(self) -> str:
        return str(self.spec["path"])


def keep(spec: dict[str, Any], gate: Gate, log: Log) -> None:
    chance = Random(f"{spec['seed']} {spec['name']}")
    known = {"clean": _clean, "archive": _archive, "verify": _verify, "look": _look, "backup": _back_up, "restore": _restore}
    actions = [action for name, action in known.items() if name not in spec["without"]] + 2 * [_clean]

    def run(work: Path) -> None:
        try:
            chance.choice(actions)(Errand(spec, log, str(work)))
        except jlog.JournalLocked:
            log("! 0")

    run_errands(spec, gate, log, chance, 0.05, run)


def _clean(errand: Errand) -> None:
    jlog.Journal(errand.path).clean()


def _archive(errand: Errand) -> None:
    if errand.spec["archive"]:
        jlog.Journal(errand.path).archive()


def _verify(errand: Errand) -> None:
    report = jlog.Journal(errand.path).verify()
    if not report.ok:
        raise Wrong(f"verify, beside writers: {report}")


def _look(errand: Errand) -> None:
    journal = jlog.Journal(errand.path)
    journal.clean(dry_run=True)
    journal.stats()
    journal.state()
    journal.info()


def _back_up(errand: Errand) -> None:
    """Checks that the copy has every record that was there before. A repair of it finds nothing to do, and the copy goes on
    by itself."""
    before = jlog.Journal(errand.path).next_sequence
    copy = jlog.Journal(errand.path).backup(errand.work)
    if copy.next_sequence < before:
        raise Wrong(f"the backup ends at {copy.next_sequence}, and {before} had been reached before")
    _read_copy(errand)
    if not copy.repair().ok:
        raise Wrong("a backup needed a repair")
    with jlog.Writer(errand.work, retention=jlog.Retention(delete_read=False)) as writer:
        writer.append(b"after the backup")


def _read_copy(errand: Errand) -> None:
    with jlog.Reader(errand.work) as reader:
        errand.log("o", reader.position)
        saw(errand.log, reader)


def _restore(errand: Errand) -> None:
    if not errand.spec["archive"]:
        return
    try:
        archive.restore(f"file://{errand.spec['archive']}", errand.work)
    except jlog.JournalNotFound:
        return  # nothing was archived so far
    _read_copy(errand)

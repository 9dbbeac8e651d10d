"""A killed journal as others see it, before anybody opens it again: copied, seen under another boot id, repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import jlog
from crash.tampering import another_boot, copy, copy_of_killed, flip
from filesystems import fast_disk
from processes.units import Unit, check_units, values_of


def under_another_boot_id(journal: Path, target: Path) -> Path:
    """Changes the copy to what a container with another boot id sees."""
    another_boot(copy_of_killed(journal, target))
    return target


def repaired(journal: Path, target: Path) -> Path:
    """A copy whose oldest segment's header is damaged, which costs no record."""
    flip(min(copy(journal, target).glob("*.seg")), 80, 3)
    report = jlog.Journal.repair_at(target)
    assert report.ok, report
    assert report.lost == [], report
    return target


Way = Callable[[Path, Path], Path]
WAYS: tuple[Way, ...] = (copy, under_another_boot_id, repaired)


def check_killed(path: Path, acknowledged: Iterable[Unit], ways: Iterable[Way] = WAYS) -> list[tuple[int, bytes]]:
    """Does check_units with the journal and with what each of the ways makes of it. Nothing acknowledged is missing, and an
    append there gets a number that no record had."""
    acknowledged = list(acknowledged)
    records = check_units(path, acknowledged)
    for way in ways:
        with TemporaryDirectory(prefix="jlog-copy-", dir=fast_disk()) as folder:
            found = way(path, Path(folder) / path.name)
            before = check_units(found, acknowledged)
            assert before[: len(records)] == records, way
            with jlog.Writer(found) as writer:
                sequence = writer.append(values_of("after", 0)[0])
            assert all(sequence > number for number, _ in before), way
            after = check_units(found, acknowledged)
            assert after[: len(before)] == before, way
    return records

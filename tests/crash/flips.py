"""A flipped bit in a sealed segment that meets a power loss, a copy or another boot: it costs a block, and is told."""

from __future__ import annotations

from pathlib import Path
from random import Random

import jlog
from crash.tampering import copy, flip, lose_unsynced, quarantined
from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from processes.units import values_of

Records = dict[int, bytes]
SECTOR = 512


def records_past_damage(journal: Path) -> Records:
    found: Records = {}
    with jlog.Reader(journal) as reader:
        while True:
            try:
                for record in reader:
                    found[record.sequence] = record.value
                return found
            except jlog.CorruptJournal:
                reader.skip_damage()


def flip_in_sealed(journal: Path, dice: Random) -> Path | None:
    """Flips a bit in one of the sealed segments that have records. Returns its file; None where there is no such segment. One
    that has a sector of zeros, as bulk loading pads it, does not count: a power loss could have taken that sector."""
    sealed = [
        segment
        for segment in jlog.Journal(journal).segments()
        if segment.sealed and segment.records and not _has_empty_sector(Path(segment.path).read_bytes())
    ]
    if not sealed:
        return None
    segment = dice.choice(sealed)
    # Not its header: a writer refuses to go on in a segment whose header is damaged, and the journal may end in this one.
    flip(Path(segment.path), dice.randrange(SEGMENT_HEADER_BYTES, segment.size_bytes), dice.randrange(8))
    return Path(segment.path)


def _has_empty_sector(content: bytes) -> bool:
    return any(not content[at : at + SECTOR].strip(b"\0") for at in range(0, len(content), SECTOR))


def check_flips(journal: Path, scratch: Path, dice: Random) -> bool:
    """Checks copies of a journal that no process has open: the bit flips after the power loss, and then another power loss
    comes after the bit has flipped. Returns False where the journal has no sealed segment."""
    wanted = records_past_damage(journal)
    flipped = copy(journal, scratch / "flipped")
    file = flip_in_sealed(flipped, dice)
    if file is None:
        return False
    lost = _check(flipped, wanted, file.name)
    with jlog.Writer(flipped, retention=jlog.Retention(delete_read=False)) as writer:
        synced = writer.extend(values_of("synced", 0, 3))
        writer.sync()
        wanted |= dict(zip(range(synced, synced + 3), values_of("synced", 0, 3), strict=True))
        writer.extend(values_of("unsynced", 0, 3))
        again = lose_unsynced(flipped, scratch / "again")
    assert _check(again, wanted, file.name) == lost
    assert jlog.Journal.repair_at(again).sound
    assert records_past_damage(again).items() >= {number: wanted[number] for number in wanted if number not in lost}.items()
    return True


def _check(journal: Path, wanted: Records, file: str) -> set[int]:
    """Returns the sequences that are lost: at most those of one block, which verify tells."""
    before = quarantined(journal)
    report, found = jlog.Journal(journal).verify(), records_past_damage(journal)
    lost = wanted.keys() - found.keys()
    assert all(found[number] == wanted[number] for number in wanted.keys() - lost)
    assert {Path(damage.path).name for damage in report.damage} == {file}, report
    assert sum(damage.records_lost for damage in report.damage) == len(lost), (report, lost)
    assert not lost or max(lost) - min(lost) == len(lost) - 1, lost
    assert report.records == len(found), report
    assert quarantined(journal) == before
    return set(lost)

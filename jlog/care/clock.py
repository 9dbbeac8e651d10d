"""How far a journal's newest time is ahead of the clock, after a record was appended under a clock that was wrong."""

from jlog._core.buffer.precommit import CLOCK_ADVICE, CLOCK_AHEAD_US, read_floor_us
from jlog.errors import CorruptJournal
from jlog.storage.damage import bad_sectors_are_damage
from jlog.storage.meta import Meta
from jlog.storage.segments import segments_now
from jlog.system.clock import now_us

__all__ = ["CLOCK_ADVICE", "ahead_seconds", "is_ahead"]


def is_ahead(written_us: int) -> bool:
    """Says whether this time is ahead of the clock by more than clocks differ."""
    return written_us > now_us() + CLOCK_AHEAD_US


def ahead_seconds(path: str, meta: Meta) -> int:
    """Returns how far the time that the next record gets at least is ahead of the clock; 0 if it is not far ahead, or if
    damage hides it: verify() lists that by itself."""
    try:
        with bad_sectors_are_damage():
            floor_us = read_floor_us(path, meta.uuid) or _last_written_us(path, meta)
    except (CorruptJournal, FileNotFoundError):  # damaged, or removed meanwhile
        return 0
    return (floor_us - now_us()) // 1_000_000 if is_ahead(floor_us) else 0


def _last_written_us(path: str, meta: Meta) -> int:
    """Returns the clock's time of the newest block; 0 where the open segment has no record, since it then begins with the
    clock's time."""
    segments = segments_now(path, meta)
    return (segments[-1].block_written_us or 0) if segments and segments[-1].records else 0

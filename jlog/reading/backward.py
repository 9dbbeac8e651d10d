"""Reading towards the beginning, also across damage, which can be read only from its beginning on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jlog._core.records.record import Record
from jlog.errors import CorruptJournal, JournalError
from jlog.reading.sources import seek_before_the_end
from jlog.storage.damage import Damage

if TYPE_CHECKING:
    from jlog.reading.sources import RecordSource

READ_BYTES = 64 << 20


@dataclass(frozen=True)
class _Met:
    """Damage, and the sequence after it."""

    error: CorruptJournal
    lost: Damage
    next_sequence: int


class BackwardReading:
    def __init__(self, source: RecordSource) -> None:
        self._source = source
        self._met: _Met | None = None  # the damage that the last call has raised for

    def read(self, max_records: int) -> list[Record]:
        """Returns at most so many records before the position, newest first, and moves the position before them. Raises
        CorruptJournal, without moving it, where damage is directly before the position."""
        end = int(self._source.cursor.position)
        found: list[Record] = []
        met = None
        while met is None and len(found) < max_records:
            records, met, before = self._read_before(end, max_records - len(found))
            if before == end:
                break
            found += reversed(records)
            end = before if met is None else met.next_sequence
        seek_before_the_end(self._source, end)
        if met is not None and not found:
            self._met = met
            raise met.error
        return found

    def skip_damage(self) -> Damage | None:
        """Goes back before the damage that read() has raised for; None where it has not, or the position has moved since."""
        met, self._met = self._met, None
        if met is None or met.next_sequence != self._source.cursor.position:
            return None
        with suppress(CorruptJournal):  # the position is set all the same
            seek_before_the_end(self._source, met.lost.first_sequence)
        return met.lost

    def _read_before(self, end: int, count: int) -> tuple[Sequence[Record], _Met | None, int]:
        """Returns so many records before `end` and where they begin; where there is damage among them, those after it, and all
        of the damage."""
        first = int(self._source.cursor.first_sequence)
        before = end
        while True:
            start = self._source.gaps.step_back(end, count, first)
            if start == end:
                return [], None, end
            records, met = self._read_between(start, end)
            if records or met is None or met.lost.first_sequence > start or start in (first, before):
                return records, met, start
            before = start  # once more the same: a gap is right before the damage
            count *= 2  # the damage may begin further back

    def _read_between(self, start: int, end: int) -> tuple[Sequence[Record], _Met | None]:
        cursor = self._source.cursor
        records: list[Record] = []
        met, stands_there = None, False
        while not stands_there or cursor.reached < end:
            try:
                if not stands_there:
                    stands_there = True
                    seek_before_the_end(self._source, start)
                    continue
                batch = self._source.read(end - cursor.reached, READ_BYTES, 0)
                if not len(batch):
                    break
                records += batch
            except CorruptJournal as error:
                met = _Met(error, self._skip(error), min(int(cursor.reached), end))
                records.clear()
        return [record for record in records if start <= record.sequence < end], met

    def _skip(self, error: CorruptJournal) -> Damage:
        try:
            return self._source.skip_damage()
        except CorruptJournal:
            raise
        except JournalError:
            raise error from None  # no block is damaged, but the control page: there is nothing to skip

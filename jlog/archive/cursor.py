"""A position in an archive, and in the living journal after it where there is one: the counterpart of a journal's Cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from jlog._core.read.cursor import Cursor
from jlog._core.read.position import ReadPosition
from jlog._core.records.record import RecordBatch
from jlog._core.segments.segment import SegmentFile
from jlog.archive.archive import Archive
from jlog.archive.local_copy import FIRST_BYTES, RANGE_BYTES, LocalCopy
from jlog.archive.manifest import ArchivedSegment
from jlog.errors import CorruptJournal, JournalError, JournalNotFound, PositionLost
from jlog.storage.damage import Damage, skip_damage

Items = TypeVar("Items")


class ArchiveCursor(ReadPosition):
    """Reads one segment after the other. With `live`, reading goes on in the journal after the last archived segment, and goes
    back to the archive where retention was faster."""

    def __init__(self, archive: Archive, live: Cursor | None = None) -> None:
        super().__init__(archive.url)
        self._archive = archive
        self._live = live
        self._copy: LocalCopy | None = None
        self._decoder: Any = None
        self._cursor: Cursor | None = None  # that of the copy, or the living one

    @property
    def current(self) -> Cursor:
        """The cursor at the position. Raises JournalClosed if this one is closed, in whichever thread that was."""
        cursor = self._cursor  # before the check: close() may come after it
        self.check_open()
        assert cursor is not None
        return cursor

    def decode_with(self, decoder: Any) -> None:
        """Gives this decoder to all records. Called before there is a position."""
        self._decoder = decoder
        if self._live is not None:
            self._live.decode_with(decoder)

    def _wake(self) -> None:
        for cursor in (self._cursor, self._live):
            if cursor is not None:
                cursor.close()

    def _release(self) -> None:
        self._wake()
        self._cursor = None
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    # --- Position ---------------------------------------------------------------------------------------------------

    def _where(self) -> int:
        return int(self.current.position)

    def _go_back(self, sequence: int) -> None:
        self.seek(sequence)

    @property
    def first_sequence(self) -> int:
        if self._live is None:
            return self._archive.first_sequence
        # The living journal is asked first: a segment that is removed after this has been archived before.
        first = int(self._live.first_sequence)
        try:
            return self._archive.first_sequence
        except JournalNotFound:
            return first

    @property
    def next_sequence(self) -> int:
        return self._archive.next_sequence if self._live is None else int(self._live.next_sequence)

    @property
    def journal_end(self) -> int:
        return self._archive.next_sequence if self._live is None else int(self._live.journal_end)

    def seek(self, sequence: int) -> None:
        """Moves the position. Raises PositionLost where the segment is missing, ValueError for a sequence beyond the end."""
        if self._live is None:
            self._seek_in(self._archive.at(sequence), sequence)
            return
        try:
            self._seek_live(sequence)
        except PositionLost as lost:
            self._seek_removed(sequence, lost)

    def _seek_live(self, sequence: int) -> None:
        assert self._live is not None
        while True:
            try:
                self._live.seek(sequence)
                break
            except FileNotFoundError:
                if sequence >= self._live.first_sequence:
                    raise
                continue  # removed in the meantime
        self._go_on_in(None, self._live)

    def _seek_removed(self, sequence: int, lost: PositionLost) -> None:
        """Goes to a sequence that retention has removed from the journal. Raises `lost` where it is not archived."""
        while True:
            try:
                segment = self._archive.at(sequence)
            except (JournalNotFound, ValueError):
                raise lost from None
            if sequence < segment.end_sequence or self._live_after(segment) is not None:
                break
            if self._archive.after(segment) is None:
                raise lost
        self._seek_in(segment, sequence)

    def _seek_in(self, segment: ArchivedSegment, sequence: int, end: int | None = None) -> None:
        """Goes to this sequence, or to the first one of the segment if that is later. Nothing is fetched from `end` on."""
        sequence = max(sequence, segment.first_sequence)
        copy = self._enter(segment, sequence, end)
        with self.reading():
            try:
                copy.seek(self.current, sequence)
            except CorruptJournal:
                if copy.is_whole:
                    raise
                copy.fetch_whole()
                self._cursor = copy.cursor(sequence)
                self._cursor.seek(sequence)

    def _enter(self, segment: ArchivedSegment, sequence: int, end: int | None, read_ahead: int = FIRST_BYTES) -> LocalCopy:
        """Goes to a block at or before this sequence. Nothing is read yet."""
        copy = self._copy
        if copy is None or copy.segment != segment:
            copy = LocalCopy(self._archive.folder, segment, read_ahead, self._decoder)
        try:
            cursor = copy.cursor(sequence, end)
        except BaseException:
            if copy is not self._copy:
                copy.close()
            raise
        self._go_on_in(copy, cursor)
        return copy

    def _go_on_in(self, copy: LocalCopy | None, cursor: Cursor) -> None:
        # Both at once: a call that is interrupted between the two would have taken the segment's end for the archive's.
        left, self._copy, self._cursor = self._copy, copy, cursor
        if left is not None and left is not copy:
            left.close()

    # --- From one segment to the next -------------------------------------------------------------------------------

    def advance(self, end: int | None = None) -> bool:
        """Goes on after the blocks that are here: to the next ones of the segment, or to the next segment. Returns False where
        there is none. Nothing is fetched from the sequence `end` on."""
        copy = self._copy
        if copy is None:
            return False
        before = copy.segment
        if not copy.is_whole and self.reached < before.end_sequence:
            if self.reached != copy.end_sequence:
                return self.see_whole()  # the index does not state where these blocks end
            self._seek_in(before, self.reached, end)
            return True
        known = self._archive.known_after(before)  # an archive may have so many segments that listing them takes long
        if known is not None:
            with suppress(JournalError):
                self._enter_next(copy, known, end)
                return True
        while True:
            segment = self._archive.after(before)
            if segment is not None:
                self._enter_next(copy, segment, end)
                return True
            if self._live is None:
                return False
            following = self._live_after(before)
            if following is not None:
                try:
                    self._seek_live(following)
                    return True
                except PositionLost:
                    continue  # archived and removed in the meantime
            if self._archive.after(before) is None:
                raise self._archive.missing(before.end_sequence, int(self._live.first_sequence))

    def _enter_next(self, before: LocalCopy, segment: ArchivedSegment, end: int | None) -> None:
        """Goes on at the first record of the next segment. Nothing is fetched from the sequence `end` on."""
        read_ahead = before.read_ahead
        if end is not None:
            read_ahead = RANGE_BYTES if segment.end_sequence <= end else FIRST_BYTES
        self._enter(segment, segment.first_sequence, end, read_ahead)

    def _live_after(self, before: ArchivedSegment) -> int | None:
        """Returns the sequence at which the living journal goes on after this segment; None where it does not have the next
        record."""
        assert self._live is not None
        first = int(self._live.first_sequence)
        if first <= before.end_sequence:
            return before.end_sequence
        try:
            file = SegmentFile(self._live.path, first, self._live.uuid)
        except FileNotFoundError:
            return None
        place = file.previous_segment, file.previous_end_sequence
        return first if place == (before.first_sequence, before.end_sequence) else None

    def back_to_archive(self, lost: PositionLost) -> None:
        """Goes on in the archive, since retention has removed the journal's next record. Raises `lost` where it is not
        archived."""
        if self._live is None or self._cursor is not self._live:
            raise lost
        self._seek_removed(self.reached, lost)

    def named(self, error: CorruptJournal) -> CorruptJournal:
        """Returns the error with the name of the archive's file, if it was found in a copy of that."""
        return error if self._copy is None else self._copy.named(error)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Names the archive's file in the error of a damage that is found meanwhile."""
        try:
            yield
        except CorruptJournal as error:
            raise self.named(error) from None

    def items_of(self, kind: Callable[[Cursor], Items]) -> Items:
        """Returns what hands out the records of the current cursor."""
        with self.reading():
            return kind(self.current)

    def see_whole(self) -> bool:
        """Goes on in the whole segment, if only a part of it was fetched: what looked like damage there is read again, and
        what follows the damage is needed too. Returns False where the whole segment is here."""
        copy = self._copy
        if copy is None or copy.is_whole:
            return False
        position = self.reached
        copy.fetch_whole()
        cursor = copy.cursor(position)
        try:
            with self.reading():
                cursor.seek(position)
        except CorruptJournal:
            self._cursor = cursor
            raise
        self._cursor = cursor
        return True

    # --- Handing out ------------------------------------------------------------------------------------------------

    def read(self, max_records: int, max_bytes: int) -> RecordBatch:
        """Returns the next records; an empty batch at the end."""
        while True:
            try:
                with self.reading():
                    batch = self.current.read(max_records, max_bytes)
            except CorruptJournal:
                if not self.see_whole():
                    raise
                continue
            except PositionLost as lost:
                self.back_to_archive(lost)
                continue
            if len(batch) or not self.advance():
                return batch

    def skip_damage(self) -> Damage:
        """Goes on after the damage at the position, or after the segment where none of the rest can be read."""
        copy = self._copy
        if copy is None:
            return skip_damage(self.current)
        with suppress(CorruptJournal):
            self.see_whole()
        try:
            found = skip_damage(self.current)
        except CorruptJournal as error:
            lost = copy.segment.end_sequence - self.reached
            found = Damage(error.path, error.offset, error.reason, self.reached, lost)
            if not self.advance():
                raise
        return Damage(copy.segment.path, found.offset, found.reason, found.first_sequence, found.records_lost)

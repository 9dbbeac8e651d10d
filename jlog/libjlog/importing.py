"""Imports a journal of libjlog, once or for as long as its writer goes on. The source is only read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from jlog._core.format.checksum import crc32c
from jlog._core.system.lock import LockFile
from jlog.errors import JournalError, JournalNotFound
from jlog.flow.options import nothing
from jlog.flow.stop import Stop, Stopped
from jlog.journal import Journal
from jlog.libjlog.flushed import flush_begin
from jlog.libjlog.format import METASTORE, PRE_COMMIT
from jlog.libjlog.position import CHECK_BYTES, HELD, STANDING_MAX, STATE_KEY, ImportPosition, decode, kept_places
from jlog.libjlog.source import SegmentFile, Source
from jlog.libjlog.stream import Piece, Stream, buffer_stream, segment_stream
from jlog.libjlog.subscribers import SubscriberPlaces
from jlog.storage.attaching import hold_as_sink
from jlog.system.filesystem import journal_path
from jlog.writer import EncodedRecords, Writer, extend_body

POLL_SECONDS = 0.05  # between two looks at a source that is followed: nothing tells when a mapped buffer changes
PLACE_SECONDS = 1.0  # between two looks at its subscribers
ROUNDS = 20  # in which a source that changes all the time is caught up with


@dataclass
class ImportResult:
    """The result of an import."""

    records: int = 0
    damage: int = 0  # damaged places
    subscribers: int = 0


class Import:
    """Imports the journal of libjlog at `source` into the journal at `journal`, which is created if there is none.

    Messages become records with their times, also those in the pre-commit buffer, and subscribers become subscribers. The
    position in the source is stored together with the records: another import goes on where this one stops, however it stops.

    follow: goes on until stop(), which a signal handler may call.
    moved: accepts that the source lies at another place than before.
    on_damage, on_warning, on_note: called with a line for each damaged place, for each thing that is imported differently from
        the source, and for a last message that is not complete.
    on_progress: called with each number of bytes that were imported.
    options: those of a Writer.

    Raises JournalNotFound or UnsupportedFormat where the source is not a journal of libjlog, and JournalError where another
    source was imported into the journal. Then it has changed nothing.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        journal: str | os.PathLike[str],
        *,
        follow: bool = False,
        moved: bool = False,
        on_damage: Callable[[str], None] = nothing,
        on_warning: Callable[[str], None] = nothing,
        on_note: Callable[[str], None] = nothing,
        on_progress: Callable[[int], None] = nothing,
        **options: Any,
    ) -> None:
        self.result: ImportResult = ImportResult()
        self._follow = follow
        self._on_damage, self._on_warning, self._on_note = on_damage, on_warning, on_note
        self.on_progress = on_progress
        self._stop = Stop()
        self._told: set[str] = set()
        self._ends: dict[int, int] = {}  # of segments, as they were last read
        self._torn: dict[str, str] = {}  # last messages that are not complete, by their files
        self._standing: set[int] = set()  # segments in which subscribers stand
        self._stored: ImportPosition | None = None
        self._seen: tuple[int, int, int] | None = None  # the buffer_mark() whose messages are imported
        path = journal_path(journal)
        self._source = Source(source)
        try:
            self._check_apart(path)
            self._source.check()
            self._position = self._resumed(path, moved)
            self._writer = Writer(path, **options)
        except BaseException:
            self._source.close()
            raise
        self._lock: LockFile | None = None
        try:
            self._lock = hold_as_sink(self._writer.path)
            self._journal = Journal(path)
            self._position = self._resumed(path, moved)  # another import may have ended since
            self._places = SubscriberPlaces(self._journal, self._warn)
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        self._stop.request()

    @property
    def size_bytes(self) -> int:
        """Bytes of the source's segments that are not imported yet."""
        return self._source.size_from(self._position.segment, self._position.offset)

    def run(self) -> ImportResult:
        try:
            if self._source.metastore_damage:
                self._damage(f"{os.path.join(self._source.path, METASTORE)}: offset 0: {self._source.metastore_damage}")
            with suppress(Stopped):
                self._run()
            for text in self._torn.values():
                self._on_note(text)
            if self._position != self._stored:
                self._store(EncodedRecords(), self._position)
            self._writer.sync()  # the source may be removed now
            return self.result
        finally:
            self.close()

    def _run(self) -> None:
        placed_at = -PLACE_SECONDS
        while True:
            is_last = self._stop.requested or not self._follow
            is_due = is_last or time.monotonic() > placed_at + PLACE_SECONDS
            # They are read before the messages are, so that they cannot be beyond these.
            checkpoints = self._checkpoints() if is_due else {}
            self._hold_for(checkpoints)
            is_new = self._catch_up(is_last=is_last)
            if is_last or not self._stop.requested:
                if is_due:
                    self._place_subscribers(checkpoints)
                    placed_at = time.monotonic()
                if is_last:
                    return
                if not is_new:
                    self._stop.wait(POLL_SECONDS)

    def close(self) -> None:
        self._source.close()
        try:
            self._writer.close()
        finally:
            if self._lock is not None:
                self._lock.close()

    # --- Where it goes on -----------------------------------------------------------------------------------------------

    def _check_apart(self, path: str) -> None:
        source, target = os.path.realpath(self._source.path), os.path.realpath(path)
        if os.path.commonpath([source, target]) == source:
            raise JournalError(f"{path} lies in the source {self._source.path}, which is only read; name another directory")

    def _resumed(self, path: str, moved: bool) -> ImportPosition:
        try:
            stored = Journal(path).state().get(STATE_KEY)
        except JournalNotFound:
            stored = None
        source = self._source
        if stored is None:
            first = min(source.segments(), default=0)
            return ImportPosition(
                first, 0, identity=source.identity(), magic=source.layout.magic, big_endian=source.layout.big_endian
            )
        position = decode(stored)
        different = self._difference(position, moved)
        if different:
            raise JournalError(
                f"{source.path} is not the journal that was imported into {path} before: {different}. Import it into another "
                "journal"
            )
        return position.moved(identity=source.identity())

    def _difference(self, position: ImportPosition, moved: bool) -> str:
        """Says how the source differs from the one that was imported; nothing if it may be the same."""
        source, now = self._source, self._source.identity()
        if not moved and all(position.identity.get(name) != value for name, value in now.items()):
            return f"that was {position.identity.get('path')}; --moved says that it lies at another place now"
        if (position.magic, position.big_endian) != (source.layout.magic, source.layout.big_endian):
            return "its messages have another format"
        segments = source.segments()
        if position.segments and (not segments or segments[-1] < position.segment):
            return f"it has no segment {position.segment:08x} any more, and none after it"
        if position.segment in segments and source.segment(position.segment).size() < position.offset:
            return f"segment {position.segment:08x} has fewer than the {position.offset} bytes that were imported"
        if position.check is not None and position.check[0] in segments:
            segment, offset, crc = position.check
            if source.segment(segment).crc(max(0, offset - CHECK_BYTES), offset) != crc:
                return f"segment {segment:08x} has other bytes before {offset}"
        return ""

    # --- Segments -------------------------------------------------------------------------------------------------------

    def _catch_up(self, *, is_last: bool) -> bool:
        """Imports everything that is there now. Returns whether there was anything."""
        records = self.result.records
        for _ in range(ROUNDS):
            if self._stop.requested and not is_last:
                break
            segments = self._source.look(self._position.segment)
            for segment in segments:
                self._import_segment(segment, is_newest=segment == segments[-1], is_last=is_last)
            if self._import_buffer(is_last=is_last):
                break
        return self.result.records > records

    def _import_segment(self, segment: int, *, is_newest: bool, is_last: bool) -> None:
        try:
            file = self._source.segment(segment)
        except FileNotFoundError:
            self._damage(f"{self._source.path}: segment {segment:08x} was removed before it was imported")
            return
        end = file.size()
        if segment != self._position.segment:
            self._enter(segment)
            self._source.close_before(segment)
        elif segment not in self._position.segments:
            self._position = self._with_segment(segment, self._writer.next_sequence)
        self._ends[segment] = end
        if self._position.ahead and not self._find_ahead(file, end, is_newest):
            return
        if self._position.offset >= end:
            return
        self._torn.pop(file.path, None)
        stream = segment_stream(self._source.path, file, end, may_grow=is_newest and not is_last)
        for piece in stream.pieces(self._source.layout, self._position.offset):
            offset = piece.end
            if piece.gap is not None and piece.gap.is_torn and not is_newest:
                offset = end  # nobody will complete it
            position = self._position.moved(offset=offset)
            self._append(piece, stream, position.moved(check=self._check_at(file, offset)), is_newest=is_newest)
            if self._stop.requested and not is_last:
                return
            self._stop.slice()  # raises Stopped when the time to stop is over

    def _enter(self, segment: int) -> None:
        """Goes to the next segment. The messages that are ahead come at its beginning, if they have not come before."""
        position = self._position
        if position.segment not in self._ends and position.segments:
            self._damage(
                f"{self._source.path}: segment {position.segment:08x} was removed before the messages from offset "
                f"{position.offset} on were imported, if it had any"
            )
        elif segment > position.segment + 1 and position.segments:
            self._warn(f"{self._source.path}: there is no segment from {position.segment + 1:08x} to {segment - 1:08x}")
        sequence = position.ahead_sequence if position.ahead else self._writer.next_sequence
        self._position = self._with_segment(segment, sequence).moved(segment=segment, offset=0)

    def _with_segment(self, segment: int, sequence: int) -> ImportPosition:
        return self._position.with_segment(segment, sequence, None, self._standing)

    def _find_ahead(self, file: SegmentFile, end: int, is_newest: bool) -> bool:
        """Passes over the messages that were imported from the buffer, once they are in the segment. Returns whether there is
        more to read in it."""
        position = self._position
        there = end - position.offset
        if there == 0 or (there < position.ahead and is_newest):
            return False  # they are in the buffer still, or being flushed
        if file.crc(position.offset, position.offset + position.ahead) == position.ahead_crc:
            offset = position.offset + position.ahead
            self._position = position.moved(offset=offset, ahead=0, ahead_crc=0, check=self._check_at(file, offset))
        else:
            self._forget_ahead()
        return True

    def _forget_ahead(self) -> None:
        self._warn(
            f"{self._source.path}: messages that were imported from the pre-commit buffer are not in the segment after them; "
            f"{self._position.ahead} bytes may come twice"
        )
        self._position = self._position.moved(ahead=0, ahead_crc=0)

    def _check_at(self, file: SegmentFile, offset: int) -> tuple[int, int, int] | None:
        crc = file.crc(max(0, offset - CHECK_BYTES), offset) if offset else None
        return self._position.check if crc is None else (file.segment, offset, crc)

    # --- The pre-commit buffer ------------------------------------------------------------------------------------------

    def _import_buffer(self, *, is_last: bool) -> bool:
        """Imports the messages in the buffer. Returns whether it could: otherwise there is more in the segments."""
        mark = self._source.buffer_mark()
        if mark is not None and mark == self._seen and not is_last:
            return True
        found = self._source.buffer()
        if found is None:
            return not self._source.segments()
        position = self._position
        if (found.newest, found.end) != (position.segment, self._ends.get(position.segment)):
            return False
        if found.overrun:
            self._damage(
                f"{os.path.join(self._source.path, PRE_COMMIT)}: offset 0: it states {found.overrun} bytes more than it has"
            )
        if position.ahead:
            if crc32c(found.content[: position.ahead]) != position.ahead_crc or len(found.content) < position.ahead:
                self._forget_ahead()
                return False
            begin, done = position.offset, position.ahead
        else:
            file = self._source.segment(found.newest)
            unused = partial(self._source.unused, len(found.content))
            magic = self._source.layout.magic_bytes()
            begin = flush_begin(file, found.content, unused, magic, position.offset, found.end)
            done = max(0, position.offset - begin)
            if begin < found.end:
                self._torn.pop(file.path, None)  # the rest of the message is in the buffer
        stream = buffer_stream(self._source.path, found.content, may_grow=not is_last)
        self._import_content(stream, found.content, begin, done)
        self._seen = found.newest, found.end, len(found.content) + found.overrun
        return True

    def _import_content(self, stream: Stream, content: bytes, begin: int, done: int) -> None:
        self._torn.pop(stream.path, None)
        first = self._position.ahead_sequence if self._position.ahead else self._writer.next_sequence
        for piece in stream.pieces(self._source.layout, done):
            if piece.messages or piece.end > done:
                ahead = self._position.moved(
                    offset=begin, ahead=piece.end, ahead_crc=crc32c(content[: piece.end]), ahead_sequence=first
                )
            else:
                ahead = self._position
            self._append(piece, stream, ahead, is_newest=True)

    # --- What is written ------------------------------------------------------------------------------------------------

    def _append(self, piece: Piece, stream: Stream, position: ImportPosition, *, is_newest: bool) -> None:
        gap = piece.gap
        if gap is not None:
            text = f"{stream.path}: offset {gap.begin + stream.first_offset}: {gap.reason}"
            if gap.is_torn and is_newest:
                self._torn[stream.path] = f"{text}; it is the last one, and is left out until it is complete"
            else:
                lost = (gap.end if not gap.is_torn else stream.end) - gap.begin
                self._damage(f"{text}; {lost} bytes are left out")
                position = self._with_damage(position, piece.messages)
        if piece.messages or position != self._position:
            self._store(piece.body, position)
            self.result.records += piece.messages
            self.on_progress(piece.end - piece.begin)

    def _with_damage(self, position: ImportPosition, messages: int) -> ImportPosition:
        first, sound = position.segments[position.segment]
        if sound is not None:
            return position
        sound = self._writer.next_sequence + messages - first
        return position.with_segment(position.segment, first, sound, self._standing)

    def _store(self, body: EncodedRecords, position: ImportPosition) -> None:
        extend_body(self._writer, body, {STATE_KEY: position.encode()})
        self._position = self._stored = position

    # --- Subscribers ----------------------------------------------------------------------------------------------------

    def _checkpoints(self) -> dict[bytes, tuple[int, int]]:
        found, problems = self._source.checkpoints()
        for problem in problems:
            self._warn(problem)
        self._standing = set(sorted({segment for segment, _ in found.values()})[:STANDING_MAX])
        self.result.subscribers = len(found)
        return found

    def _hold_for(self, checkpoints: dict[bytes, tuple[int, int]]) -> None:
        """Creates new subscribers before the records that they have not read are imported. What is stored says that they are
        the import's own, also if it is killed before they are at their places."""
        names = self._places.missing(self._position, checkpoints)
        if names:
            end = int(self._writer.next_sequence)
            held = {name.hex(): (HELD, HELD, end) for name in names}
            self._store(EncodedRecords(), self._position.moved(subscribers=kept_places({**self._position.subscribers, **held})))
            self._places.hold(names, end)

    def _place_subscribers(self, checkpoints: dict[bytes, tuple[int, int]]) -> None:
        places = kept_places(self._places.place(self._position, checkpoints))
        if places != self._position.subscribers:
            self._store(EncodedRecords(), self._position.moved(subscribers=places))

    # --- What is told ---------------------------------------------------------------------------------------------------

    def _damage(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.result.damage += 1
            self._on_damage(text)

    def _warn(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._on_warning(text)

"""Refused records, and the dead letters that keep them at a place of their own: a journal or a topic."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from jlog.errors import JournalFull, PositionLost
from jlog.flow.ends import NoRoom, Place, Refused, Sink, Source, SourcePosition
from jlog.flow.normal import TIME_US_MAX
from jlog.flow.options import FlowOptions
from jlog.flow.records import Headers, NewRecord, RecordLike, columns_of
from jlog.journal import Journal
from jlog.reading.reader import Reader
from jlog.writer import Writer

REASON, RECORD = "jlog.refused", "jlog.record"  # headers of a dead letter
SINK, PLACE = "jlog.sink", "jlog.place"  # by which its flow finds it again
BYTES = "jlog.bytes"  # of one whose value was too large for its place: the size of the record
REASON_BYTES = 1_000  # longest reason: the error of a function may quote the whole record


class Made(NamedTuple):
    """A record to write, and the one of the source that it was made of, with its number in the batch, from 0."""

    record: RecordLike
    number: int
    origin: Any


class End(NamedTuple):
    """The refused record before which a transaction ends, with its number in the batch, from 0."""

    number: int
    where: str
    reason: str
    sequence: int | None
    cause: Exception | None = None


def dead_letter(record: RecordLike, where: str, reason: str, more: Headers = ()) -> NewRecord:
    """Returns the dead letter of a record, which has all of its parts and says why it is there. more: further headers."""
    try:
        own: Headers = [header for header in record.headers or () if "\0" not in header[0]]
    except Refused:
        own = ()  # their names are why it is refused: they cannot be said
    # It keeps its own time, unless that lies in the future or fits nowhere, which may be why it is here.
    time_us = record.timestamp_us
    if time_us is not None and not -TIME_US_MAX <= time_us <= time.time() * 1e6:
        time_us = None
    about = [(REASON, _encoded(reason)[:REASON_BYTES]), (RECORD, _encoded(where))]
    return NewRecord(record.value, record.key, [*own, *about, *more], time_us)


def _encoded(text: str) -> bytes:
    """Returns the text as UTF-8. An error may quote bytes, and a path may have some, that are not."""
    return text.encode(errors="backslashreplace")


def is_about(header: tuple[str, bytes | None]) -> bool:
    """Returns whether a dead letter has this header beside those of its record."""
    return header[0] in (REASON, RECORD, SINK, PLACE)


class LetterBox(Protocol):
    """A place for dead letters. It stores those of one transaction as a whole, or none of them."""

    def open(self) -> Iterable[RecordLike]:
        """Makes sure that no other process writes there for this flow any more. Returns all of its letters that were stored
        since confirm() counted the last time, and maybe others."""

    def store(self, letters: Sequence[NewRecord]) -> None:
        """Stores the letters, so that they survive a power loss. Raises Retry where it is not known whether that was done."""

    def confirm(self) -> None:
        """Is called when the flow will not come to the records of the stored letters again. It counts from the next store()
        on."""

    def close(self) -> None: ...


class DeadLetters:
    """The dead letters of a flow. They are stored before the sink commits. So a flow that is killed between the two refuses the
    same records again, and finds that their letters are there: each refused record has one letter.

    The headers of each name its record's place in the source and the sink, since several flows may have one place for their
    letters.
    """

    def __init__(self, box: LetterBox, source: Source, sink: Sink) -> None:
        self._box = box
        self._sink = _encoded(sink.where)
        self._source = source
        self.bytes: int = 0  # of the letters that are not stored yet, without their headers
        self._letters: list[NewRecord] = []  # of the open transaction, not stored yet
        self._added: Counter[Place] = Counter()  # the open transaction's. One record may have become several
        self._stored: Counter[Place] = Counter()  # of records to which the flow may come again

    def open(self, committed: SourcePosition) -> None:
        """Finds the letters of records that the source position is not past."""
        self.drop()
        self._stored = Counter()
        for letter in self._box.open():
            about = dict(letter.headers)
            if about.get(SINK) == self._sink:
                part, of, position = json.loads(about[PLACE] or b"")
                self._stored[part, of, position] += 1
        self._confirm(committed)

    def add(self, record: RecordLike, where: str, reason: str, origin: Any) -> None:
        """Adds a letter to the open transaction, unless an earlier attempt has stored it. origin: the record of the source."""
        place = self._source.place(origin)
        self._added[place] += 1
        if self._added[place] > self._stored[place]:
            more = [(SINK, self._sink), (PLACE, json.dumps(place).encode())]
            self._letters.append(dead_letter(record, where, reason, more))
            self.bytes += len(record.value or b"") + len(record.key or b"")

    def store(self) -> None:
        """Stores the letters of the open transaction."""
        if self._letters:
            self._box.store(self._letters)
            self._letters = []
        self._stored |= self._added

    def confirm(self, committed: SourcePosition) -> None:
        """Is called when the sink has committed the transaction, up to this source position."""
        self.drop()
        if self._stored:
            self._confirm(committed)

    def _confirm(self, committed: SourcePosition) -> None:
        self._stored = Counter(
            {place: count for place, count in self._stored.items() if self._source.is_ahead(place, committed)}
        )
        if not self._stored:
            self._box.confirm()

    def drop(self) -> None:
        """Forgets the letters of the open transaction that are not stored."""
        self._letters = []
        self.bytes = 0
        self._added = Counter()

    def close(self) -> None:
        self._box.close()


def name_of_flow(source: Source, sink: Sink) -> str:
    """Names the flow between the two among those that have one place for their letters."""
    return hashlib.sha256(_encoded(f"{source.identity} to {sink.where}")).hexdigest()[:16]


class JournalBox:
    """The journal at `path`, which is created if there is none. Several flows may share it.

    A checkpoint says from where on its letters may be those of a transaction that the sink has not committed. It also keeps
    retention from removing them before that.
    """

    def __init__(self, path: str | os.PathLike[str], flow: str, **options: Any) -> None:
        self._writer = Writer(path, **options)
        self._journal = Journal(self._writer.path)
        self._checkpoint = f"letters:{flow}"
        self._confirmed = False

    def open(self) -> Iterable[RecordLike]:
        known = self._journal.checkpoints().get(self._checkpoint)
        self._confirmed = known is None
        if known is None:
            return
        with suppress(PositionLost), Reader(self._journal.path, start=known.sequence) as reader:
            yield from reader

    def store(self, letters: Sequence[NewRecord]) -> None:
        if self._confirmed:
            self._journal.set_checkpoint(self._checkpoint, self._journal.next_sequence)
            self._confirmed = False
        try:
            self._writer.extend(*columns_of(letters))
        except JournalFull as error:
            raise NoRoom(str(error)) from None
        self._writer.sync()

    def confirm(self) -> None:
        self._confirmed = True

    def close(self) -> None:
        self._writer.close()


def letters_in_journal(source: Source, sink: Sink, options: FlowOptions) -> DeadLetters:
    """Opens the dead letters of the flow between the two, in a journal."""
    assert options.dead_letter is not None
    path = os.fspath(options.dead_letter)
    if os.path.realpath(path) == os.path.realpath(sink.where):
        raise ValueError(f"{path} is the sink: dead letters need a journal of their own")
    if os.path.exists(os.path.join(path, "journal.meta")) and Journal(path).uuid == source.identity:
        raise ValueError(
            f"{path} is the source: each dead letter would be moved, and refused again; dead letters need a journal of their "
            f"own"
        )
    return DeadLetters(JournalBox(path, name_of_flow(source, sink)), source, sink)

"""Writes a journal as one of libjlog, which the C library reads."""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from jlog._core.system.durable import sync_directory
from jlog._core.system.file import OpenFile
from jlog.errors import JournalError, JournalExists
from jlog.flow.options import nothing
from jlog.journal import Journal
from jlog.libjlog.format import (
    ALMOST_SAFE,
    COMPRESSED_MAGIC,
    METASTORE,
    PLAIN_MAGIC,
    POINTER_BYTES,
    PRE_COMMIT,
    SEGMENTS_MAX,
    UNIT_LIMIT,
    checkpoint_file,
    order,
    original_name,
    segment_name,
)
from jlog.reading.reader import Reader
from jlog.record import Record
from jlog.storage.damage import Damage, batches_to, past_damage
from jlog.storage.gaps import count_assigned
from jlog.system.files import naming, write_whole
from jlog.system.filesystem import journal_path

BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20
SECONDS_MAX = (1 << 32) - 1
LZ4 = 1
FILE_NAME_MAX = 255


@dataclass
class ExportResult:
    """The result of an export. The fields from `keys` on count what the format has no place for."""

    records: int = 0
    segments: int = 0
    subscribers: int = 0
    damage: int = 0
    keys: int = 0
    headers: int = 0
    nulls: int = 0
    times: int = 0
    gaps: int = 0
    long_names: list[str] = field(default_factory=list)  # subscribers that are left out


def export_journal(
    journal: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    compression: str = "none",
    unit_limit: int = UNIT_LIMIT,
    big_endian: bool = False,
    on_damage: Callable[[Damage], None] = nothing,
    on_note: Callable[[str], None] = nothing,
    on_progress: Callable[[int], None] = nothing,
) -> ExportResult:
    """Writes the records, times and subscribers of a journal, as it is now, into the new or empty directory `target`. Changes
    nothing in the journal.

    compression: "none" or "lz4". unit_limit: bytes at which a segment ends. big_endian: for a machine with that byte order.
    on_damage: called for each damaged place, after which it goes on. on_note: called with a line for everything that libjlog's
    format has no place for. on_progress: called with each number of records.

    Raises JournalExists where the directory is not empty. One that was left by an export that was killed has no metastore.
    """
    opened = Journal(journal)
    if unit_limit < 1 or unit_limit > SECONDS_MAX:
        raise ValueError(f"unit_limit must be 1 to {SECONDS_MAX} bytes, not {unit_limit}")
    path = journal_path(target)
    real, own = os.path.realpath(path), os.path.realpath(opened.path)
    if os.path.commonpath([real, own]) == own:
        raise JournalError(f"{path} lies in the journal {opened.path}; name another directory")
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path) or os.listdir(path):
            raise JournalExists(f"{path} is not an empty directory; export into a new one", path) from None
    export = _Export(opened, path, compression, unit_limit, big_endian, on_damage, on_progress)
    export.write_records()
    export.write_subscribers()
    export.write_metastore()
    for note in notes(export.result, opened):
        on_note(note)
    return export.result


class _Export:
    def __init__(
        self,
        journal: Journal,
        path: str,
        compression: str,
        unit_limit: int,
        big_endian: bool,
        on_damage: Callable[[Damage], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self.result = ExportResult()
        self._journal, self._path, self._unit_limit = journal, path, unit_limit
        self._on_damage, self._on_progress = on_damage, on_progress
        self._order = order(big_endian)
        if compression not in ("none", "lz4"):
            raise ValueError(f"compression must be none or lz4, not {compression!r}")
        self._lz4 = compression == "lz4"
        self._magic = COMPRESSED_MAGIC | LZ4 if self._lz4 else PLAIN_MAGIC
        self._subscribers = {name: at.sequence for name, at in journal.subscribers().items()}
        self._starts: list[int] = [journal.first_sequence]  # the sequence at which each segment begins
        self._marks: dict[int, int] = {}  # of a subscriber's position: the records before it in its segment
        self._waiting = sorted(set(self._subscribers.values()))
        self._in_segment = 0  # records
        self._bytes = self._written = 0  # of the segment: with and without what waits in a batch
        self._file = self._create(segment_name(0))

    # --- Records --------------------------------------------------------------------------------------------------------

    def write_records(self) -> None:
        try:
            end = self._journal.next_sequence
            first = self._journal.first_sequence
            self.result.gaps = end - first - count_assigned(self._journal.gaps(), first, end)
            with Reader(self._journal.path) as reader:
                read = batches_to(end, reader, BATCH_RECORDS, BATCH_BYTES)
                for batch in past_damage(read, reader.skip_damage, self._note_damage):
                    self._write_batch(batch)
                    self._on_progress(len(batch))
            self._sync()
        finally:
            self._file.close()
        self._pass_marks(end + 1)
        self.result.segments = len(self._starts)

    def _note_damage(self, damage: Damage) -> None:
        self.result.damage += 1
        self._on_damage(damage)

    def _write_batch(self, batch: Iterable[Record]) -> None:
        pieces: list[bytes] = []
        header = struct.Struct(f"{self._order}{'5I' if self._lz4 else '4I'}")
        waiting = self._waiting[0] if self._waiting else None
        for record in batch:
            sequence = record.sequence
            if waiting is not None and waiting <= sequence:
                self._pass_marks(sequence)
                waiting = self._waiting[0] if self._waiting else None
            value = record.value
            if value is None:
                self.result.nulls += 1
                value = b""
            if record.key is not None:
                self.result.keys += 1
            if record.headers:
                self.result.headers += 1
            seconds, microseconds = divmod(record.timestamp_us, 1_000_000)
            if not 0 <= seconds <= SECONDS_MAX:
                self.result.times += 1
                seconds, microseconds = (0, 0) if seconds < 0 else (SECONDS_MAX, 999_999)
            if self._lz4:
                stored = _compress(value)
                head = header.pack(self._magic, seconds, microseconds, len(value), len(stored))
            else:
                stored, head = value, header.pack(self._magic, seconds, microseconds, len(value))
            if self._bytes >= self._unit_limit:
                self._write(pieces)
                pieces.clear()
                self._roll(sequence)
            pieces += (head, stored)
            self._bytes += len(head) + len(stored)
            self._in_segment += 1
        self.result.records += len(batch)  # type: ignore[arg-type]
        self._write(pieces)

    def _write(self, pieces: list[bytes]) -> None:
        content = b"".join(pieces)
        with naming(self._segment_path()):
            write_whole(self._file.fd, content, self._written)
        self._written += len(content)

    def _sync(self) -> None:
        with naming(self._segment_path()):
            os.fsync(self._file.fd)

    def _segment_path(self) -> str:
        return os.path.join(self._path, segment_name(len(self._starts) - 1))

    def _roll(self, sequence: int) -> None:
        if len(self._starts) == SEGMENTS_MAX:
            raise OSError(errno.EFBIG, "libjlog's segment numbers are used up; export with larger segments", self._path)
        self._sync()
        file = self._create(segment_name(len(self._starts)))  # where it fails, write_records() closes the one before
        self._file.close()
        self._file = file
        self._starts.append(sequence)
        self._in_segment = self._bytes = self._written = 0

    # --- Subscribers and the rest ---------------------------------------------------------------------------------------

    def _pass_marks(self, sequence: int) -> None:
        """Notes the place of each subscriber whose position is not beyond this sequence."""
        while self._waiting and self._waiting[0] <= sequence:
            self._marks[self._waiting.pop(0)] = self._in_segment

    def write_subscribers(self) -> None:
        for name, position in self._subscribers.items():
            file = checkpoint_file(original_name(name))
            if len(file) > FILE_NAME_MAX:
                self.result.long_names.append(name)
                continue
            segment = max(0, self._segment_of(position))
            self._write_file(file, struct.pack(f"{self._order}2I", segment, self._marks[position]))
            self.result.subscribers += 1

    def _segment_of(self, position: int) -> int:
        """Returns the segment that was written when the records before the position had been."""
        # A segment begins with the record at its sequence: a position there has read all of the segment before.
        return bisect_right(self._starts, max(position - 1, self._starts[0])) - 1

    def write_metastore(self) -> None:
        self._write_file(PRE_COMMIT, bytes(POINTER_BYTES))
        newest = len(self._starts) - 1
        self._write_file(METASTORE, struct.pack(f"{self._order}4I", newest, self._unit_limit, ALMOST_SAFE, self._magic))
        sync_directory(self._path)

    def _create(self, name: str) -> OpenFile:
        return OpenFile(os.path.join(self._path, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o640)

    def _write_file(self, name: str, content: bytes) -> None:
        with self._create(name) as file, naming(os.path.join(self._path, name)):
            write_whole(file.fd, content, 0)
            os.fsync(file.fd)


def _compress(value: bytes) -> bytes:
    import lz4.block

    compressed: bytes = lz4.block.compress(value, store_size=False)
    return compressed


def notes(result: ExportResult, journal: Journal) -> list[str]:
    """Says what libjlog's format has no place for."""
    lost = {
        "keys": "the key of {} is left out: libjlog has no keys",
        "headers": "the headers of {} are left out: libjlog has none",
        "nulls": "the null value of {} is an empty message: libjlog has no null",
        "times": "the time of {} does not fit into libjlog's 32 bits of seconds, and is the nearest one that does",
    }
    found = [text.format(counted(getattr(result, name), "record")) for name, text in lost.items() if getattr(result, name)]
    if result.gaps:
        found.append(f"{result.gaps} sequences have no record; libjlog counts on without gaps")
    found += [f"subscriber {name!r} is left out: its name is too long for a file of libjlog's" for name in result.long_names]
    checkpoints = sorted(journal.checkpoints())
    if checkpoints:
        found.append(f"checkpoints are left out, since libjlog has none: {', '.join(checkpoints)}")
    return found


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"

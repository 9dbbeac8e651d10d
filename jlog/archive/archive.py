"""The archive of one journal: lists its segments, checks them, and takes new ones."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from jlog._core.segments.index import index_content
from jlog._core.segments.segment import index_name, segment_name
from jlog.archive.indexes import index_is_damaged
from jlog.archive.local_copy import LocalCopy
from jlog.archive.manifest import (
    MANIFEST_BYTES_MAX,
    ArchivedSegment,
    describe,
    from_json,
    gaps_between,
    is_whole,
    manifest_name,
)
from jlog.archive.places import MANIFEST, META, find, folder_of
from jlog.archive.store import PART, ArchiveFolder
from jlog.errors import CorruptJournal, JournalError, JournalNotFound, PositionLost
from jlog.positions.names import timestamp_us_of
from jlog.storage.damage import Damage
from jlog.storage.meta import BYTES_MAX, NAME, Meta, parse_meta, read_meta
from jlog.storage.segments import Segment
from jlog.system.files import read_small
from jlog.system.filesystem import is_url

NO_INDEX = "the index is damaged, and readers fetch the whole segment; remove the file"


class Archive:
    """The archived segments of one journal.

    url: the one that `Retention(archive=)` names; or, where several journals are archived there, that and the journal's uuid.
    journal: the path of the journal that archives below `url`. The archive may be empty yet, and store() adds segments to it.

    Raises JournalNotFound where no journal is archived there, and JournalError where several are, or where the place cannot be
    reached.
    """

    def __init__(self, url: str, *, journal: str | None = None) -> None:
        self._names: dict[str, int | None] = {}
        self._numbers: list[int] = []  # first sequences of the segments among these names, sorted
        self._known: dict[int, ArchivedSegment] = {}
        self._path = journal or ""  # store() is called only where a journal is given
        self._read_back: set[ArchivedSegment] = set()
        self._claimed = False
        self._parts: list[str] = []  # files that killed uploads have left
        self._is_listed = False
        if journal is not None:
            uuid = read_meta(journal).uuid
            self.folder: ArchiveFolder = folder_of(url, journal, uuid)
            self._uuid = uuid
            return
        if url.lower().startswith("kafka:"):
            raise JournalError(f"{url} is a Kafka topic, not an archive; read it with jlog.open_reader")
        if not is_url(url):
            raise ValueError(f"an archive is named by a URL such as file:///var/archive or s3://bucket, not {url!r}")
        self.folder, names = find(ArchiveFolder(url))
        self._note_all(names)
        if not self._numbers:
            raise self._empty()
        self._uuid = bytes.fromhex(self.described(self._numbers[:1])[0].uuid)

    def __repr__(self) -> str:
        return f"<jlog.archive.Archive {self.url!r}>"

    @property
    def url(self) -> str:
        return self.folder.url

    @property
    def uuid(self) -> str:
        return self._uuid.hex()

    def meta(self) -> Meta:
        """Returns the journal's Meta, as it was when it archived last."""
        return parse_meta(self.folder.read([META], BYTES_MAX)[0], self.folder.url_of(META))

    # --- Contents ---------------------------------------------------------------------------------------------------

    def segments(self) -> list[ArchivedSegment]:
        """Lists the archived segments as they are now, oldest first."""
        return self.described(self.numbers())

    def numbers_with_newer(self) -> list[int]:
        """Returns the first sequences of the segments that were listed last, and of those that now follow them without a gap.
        It lists nothing, since that takes long in a large archive. A segment after a gap is found only by a new listing."""
        while numbers := self.listed():
            (last,) = self.described(numbers[-1:])
            content = self.folder.read_if_there(manifest_name(last.end_sequence), MANIFEST_BYTES_MAX) if last.records else None
            if content is None:
                break
            self._note(manifest_name(last.end_sequence), len(content))
            self.described([last.end_sequence], [content])
        return numbers

    def between(self, start: int, end: int) -> list[ArchivedSegment]:
        """Lists the segments, and returns those that have sequences of this range, oldest first."""
        numbers = self.numbers()
        found = self.described(numbers[max(0, bisect_right(numbers, start) - 1) : bisect_left(numbers, end)])
        return [segment for segment in found if segment.end_sequence > start]

    def numbers(self) -> list[int]:
        """Lists the archive, and returns the first sequences of the segments that are there as a whole."""
        self._note_all(self.folder.sizes())
        self._parts = [name for name in self._names if name.endswith(PART)]
        self._is_listed = True
        return self._numbers

    def listed(self) -> list[int]:
        """Returns the first sequences of the segments that were there when the archive was listed last."""
        return self._numbers

    def _note_all(self, names: dict[str, int | None]) -> None:
        self._names, self._numbers = names, sorted(int(match[1]) for match in map(MANIFEST.match, names) if match)

    def _note(self, name: str, size: int) -> None:
        """Notes a file that is there now, so that a run of many segments lists the archive once."""
        match = None if name in self._names else MANIFEST.match(name)
        if match:
            insort(self._numbers, int(match[1]))
        self._names[name] = size

    def described(self, numbers: list[int], contents: list[bytes] | None = None) -> list[ArchivedSegment]:
        """Returns the segments with these first sequences. The description of each is read once, a request each. `contents`:
        those of their manifests, where they were read already."""
        unknown = [number for number in numbers if number not in self._known]
        if unknown:
            names = [manifest_name(number) for number in unknown]
            contents = contents or self.folder.read(names, MANIFEST_BYTES_MAX)
            for number, name, content in zip(unknown, names, contents, strict=True):
                path = self.folder.url_of(segment_name(number))
                self._known[number] = from_json(content, self.folder.url_of(name), path)
                if self._known[number].first_sequence != number:
                    raise CorruptJournal(self.folder.url_of(name), 0, "it describes another segment than its name says")
        return [self._known[number] for number in numbers]

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest archived record."""
        return self._some()[0]

    @property
    def next_sequence(self) -> int:
        """Sequence after the last archived record."""
        return self.described(self._some()[-1:])[0].end_sequence

    def _some(self) -> list[int]:
        numbers = self.numbers()
        if not numbers:
            raise self._empty()
        return numbers

    def _empty(self) -> JournalNotFound:
        return JournalNotFound(f"{self.url} contains no archived segment", self.url)

    def gaps(self) -> list[tuple[int, int]]:
        """Returns the gaps: first sequence and next sequence of each range of sequences that have no record and never will."""
        return gaps_between(self.segments())

    def find(self, time: datetime) -> int:
        """Returns the sequence of the first record at or after `time`, or the end where all records are earlier."""
        segments = self.described(self._some())
        found = self.first_at(segments, time)
        return segments[-1].end_sequence if found is None else found

    def first_at(self, segments: list[ArchivedSegment], time: datetime) -> int | None:
        """Returns the sequence of the first record in these segments at or after `time`; None where all are earlier."""
        timestamp_us = timestamp_us_of(time)
        for segment in segments:
            if segment.max_timestamp_us is not None and segment.max_timestamp_us >= timestamp_us:
                with LocalCopy(self.folder, segment) as copy:
                    found = copy.find_time(timestamp_us)
                if found < segment.end_sequence:
                    return found
        return None

    def info(self) -> dict[str, Any]:
        """Returns what `jlogtool info --json` prints."""
        segments = self.segments()
        return {
            "path": self.url,
            "uuid": self.uuid,
            "first_sequence": self.first_sequence,
            "next_sequence": self.next_sequence,
            "records": sum(segment.records for segment in segments),
            "size_bytes": sum(segment.size_bytes for segment in segments),
            "segments": len(segments),
            "skipped": [{"first_sequence": first, "next_sequence": last} for first, last in self.gaps()],
        }

    def verify(self) -> list[Damage]:
        """Reads every file back, and compares it with what was archived. Reports also segments that are missing, and segments
        that were damaged before they were archived. Returns an empty list where all is sound."""
        found = []
        before: ArchivedSegment | None = None
        for segment in self.segments():
            if before is not None and not segment.follows(before):
                missing = segment.first_sequence - before.end_sequence
                lacking = f"the segments after sequence {before.end_sequence} are missing"
                found.append(Damage(self.url, 0, lacking, before.end_sequence, missing))
            reason = self._problem(segment)
            if reason is not None:
                found.append(Damage(segment.path, 0, reason, segment.first_sequence, segment.records))
            elif index_is_damaged(self.folder, segment):
                path = self.folder.url_of(index_name(segment.first_sequence))
                found.append(Damage(path, 0, NO_INDEX, segment.first_sequence, 0))
            before = segment
        return found

    def _problem(self, segment: ArchivedSegment) -> str | None:
        if segment.name not in self._names:
            return "the file is missing"
        if not is_whole(segment, *self.folder.size_and_crc(segment.name)):
            return "it is not what was archived"
        return None if segment.sound else "it was damaged before it was archived"

    # --- Finding segments -------------------------------------------------------------------------------------------

    def at(self, sequence: int) -> ArchivedSegment:
        """Returns the segment that this sequence lies in; for a sequence in a gap the next one, for the end the last one.
        Raises PositionLost where the segment is missing, ValueError for a sequence beyond the end."""
        numbers = self._some()
        index = bisect_right(numbers, sequence)
        if index == 0:
            raise self.missing(sequence, numbers[0])
        found = self.described(numbers[index - 1 : index + 1])
        if sequence < found[0].end_sequence:
            return found[0]
        if len(found) == 2:
            return self._next(found[0], found[1], sequence)
        if sequence > found[0].end_sequence:
            raise ValueError(f"{self.url} ends at sequence {found[0].end_sequence}; {sequence} is beyond it")
        return found[0]

    def known_after(self, before: ArchivedSegment) -> ArchivedSegment | None:
        """Returns the next segment by what was listed last; None where it was not there. It may have been removed since."""
        numbers = self.listed()
        index = bisect_right(numbers, before.first_sequence)
        with suppress(JournalError):
            if index < len(numbers) and self.described([numbers[index]])[0].follows(before):
                return self._known[numbers[index]]
        return None

    def after(self, before: ArchivedSegment) -> ArchivedSegment | None:
        """Returns the next segment; None at the end. Raises PositionLost where it is missing."""
        numbers = self._some()
        index = bisect_right(numbers, before.first_sequence)
        if index == len(numbers):
            return None
        return self._next(before, self.described([numbers[index]])[0], before.end_sequence)

    def _next(self, before: ArchivedSegment, found: ArchivedSegment, sequence: int) -> ArchivedSegment:
        if not found.follows(before):
            raise self.missing(sequence, found.first_sequence)
        return found

    def missing(self, sequence: int, there: int) -> PositionLost:
        return PositionLost(
            f"{self.url} does not have the records from {sequence} to {there - 1}; seek to {there} to go on", there
        )

    # --- Taking segments --------------------------------------------------------------------------------------------

    def store(self, segment: Segment, progress: Callable[[int], None] | None = None) -> None:
        """Copies a sealed segment here, and reads it back. A segment that is here already, whole and the same, is only read
        back. On return it is safe to remove from the journal. Raises FileNotFoundError where it was removed meanwhile."""
        self._claim()
        wanted, index = describe(segment, read_meta(self._path), self.folder.url_of(os.path.basename(segment.path)))
        known = self._known_as(wanted)
        if known is not None and (known.size_bytes, known.crc32c) != (wanted.size_bytes, wanted.crc32c):
            raise self._other_copy(known)
        if not self._holds(wanted):
            self._read_back.discard(wanted)
            try:
                self.folder.put(segment.path, wanted.name, progress)
            except JournalError:
                os.stat(segment.path)
                # Another process may have been first, and have removed this upload as that of a killed one.
                self.numbers()
                if not self._holds(wanted):
                    raise
            self._note(wanted.name, wanted.size_bytes)
            if not self._holds(wanted):
                raise JournalError(
                    f"{wanted.path}: its copy in the archive has other bytes, so nothing was removed; check the archive's "
                    "storage, then clean again"
                )
        index_file, manifest = index_name(wanted.first_sequence), manifest_name(wanted.first_sequence)
        if index is not None:
            self._store_index(index_file, index_content(index, wanted.first_sequence, self._uuid))
        if known is None:
            self._put_small(wanted.to_json(), manifest)
            self._known[wanted.first_sequence] = wanted
            self._note(manifest, len(wanted.to_json()))
        for name in (wanted.name, index_file, manifest):
            self.folder.discard_parts(name, self._parts)

    def _holds(self, wanted: ArchivedSegment) -> bool:
        """Says whether the archived file is whole. It is read back once."""
        if self._names.get(wanted.name) != wanted.size_bytes:
            return False
        if wanted in self._read_back:
            return True
        found = is_whole(wanted, *self.folder.size_and_crc(wanted.name))
        if found:
            self._read_back.add(wanted)
        return found

    def _store_index(self, name: str, content: bytes) -> None:
        """Stores the index, unless it is there already. It has a checksum of its own, and is not read back."""
        is_there = self._names.get(name) == len(content)
        if not is_there or self.folder.read_if_there(name, len(content)) != content:
            self._put_small(content, name)

    def _put_small(self, content: bytes, name: str) -> None:
        try:
            self.folder.put_bytes(content, name)
        except JournalError:
            # Another process may have been first, and have removed this upload as that of a killed one.
            if self.folder.read_if_there(name, len(content)) != content:
                raise

    def has(self, segments: Iterable[Segment]) -> list[bool]:
        """Says of each sealed segment whether it is here, by the names and sizes of files. store() and clean() compare more."""
        there = set(self.numbers())
        return [
            one.first_sequence in there and self._names.get(segment_name(one.first_sequence)) == one.size_bytes
            for one in segments
        ]

    def _claim(self) -> None:
        """Checks that this folder is the journal's own, by the journal's `journal.meta` beside the segments. A copy of a
        journal has the same uuid but other records: it must not mix its segments with these."""
        if self._claimed:
            return
        ours = read_meta(self._path)
        content = read_small(os.path.join(self._path, NAME), BYTES_MAX)
        if META in self.folder.sizes():
            there = self.folder.read([META], BYTES_MAX)[0]
            if parse_meta(there, self.folder.url_of(META)).epochs != ours.epochs:
                raise JournalError(
                    f"{self.url} is the archive of another copy of this journal: {self._path} was copied, restored or "
                    "repaired since. Give it an archive of its own; or, if this journal replaces the other copy, remove "
                    f"{self.folder.url_of(META)}"
                )
            self._claimed = there == content
        if not self._claimed:
            self.folder.put_bytes(content, META)
            self._claimed = True

    def _known_as(self, wanted: ArchivedSegment) -> ArchivedSegment | None:
        """Returns the segment that is here under this name. Raises JournalError where other segments have some of its
        sequences."""
        numbers = self.listed() if self._is_listed else self.numbers()
        first = max(0, bisect_right(numbers, wanted.first_sequence) - 1)
        for known in self.described(numbers[first : bisect_left(numbers, max(wanted.end_sequence, wanted.first_sequence + 1))]):
            if known.first_sequence == wanted.first_sequence:
                return known
            if known.end_sequence > wanted.first_sequence:
                raise self._other_copy(known)
        return None

    def _other_copy(self, known: ArchivedSegment) -> JournalError:
        numbers = f"{known.first_sequence} to {known.end_sequence - 1}"
        return JournalError(
            f"{known.path} has the numbers from {numbers} and is not what {self._path} has under them: a copy of the journal "
            "archives there, or the segment was damaged since; nothing was removed: give this journal an archive of its own, "
            "or see what `jlogtool verify` says"
        )

"""Finds the journals to read, and where each begins and ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import jlog
from jlog.archive import Archive, ArchivedSegment, archive_of, segments
from jlog.errors import JournalNotFound, PositionLost
from jlog.spark.reading.options import EARLIEST, LATEST, Place, Places, ReadOptions
from jlog.storage.meta import read_meta
from jlog.storage.segments import Segment, segments_now
from jlog.system.filesystem import LOCAL, OVERRIDE, is_url, path_of_file, type_of


@dataclass(frozen=True)
class SparkJournal:
    """A journal, or an archive alone, under the name that the column `journal` and the offsets have: its path, or below a root
    the path from there."""

    name: str
    path: str
    archive: bool | str = False  # the argument `archive` of a Reader

    @property
    def is_archive(self) -> bool:
        return is_url(self.path)

    def reader(self, sequence: int) -> jlog.Reader:
        """Opens a reader at this sequence."""
        return jlog.Reader(self.path, start=sequence, archive=self.archive)

    def retained_from(self, sequence: int, *, fail_on_data_loss: bool) -> int:
        """Returns this sequence, or the oldest retained one where retention has removed it; or raises PositionLost then, with
        fail_on_data_loss."""
        if not self.is_archive and jlog.Journal(self.path).first_sequence <= sequence:
            return sequence  # without a look at the archive
        first = self.first_sequence()
        if sequence < first and fail_on_data_loss:
            raise lost(self, sequence, first)
        return max(sequence, first)

    def first_sequence(self) -> int:
        if self.is_archive:
            return Archive(self.path).first_sequence
        # The living journal is asked first: a segment that is removed after this has been archived before.
        first = jlog.Journal(self.path).first_sequence
        archive = archive_of(self.path, self.archive) if self.archive else None
        try:
            return first if archive is None else archive.first_sequence
        except JournalNotFound:
            return first  # the archive is empty yet

    def next_sequence(self) -> int:
        """Returns the end of all records."""
        if self.is_archive:
            return Archive(self.path).next_sequence
        return jlog.Journal(self.path).next_sequence

    def synced_end(self) -> int:
        """Returns the end, up to which the journal is synced now. Needs to write to the journal."""
        with jlog.Reader(self.path, start="end") as reader:
            reader.sync()
            return reader.position

    def durable_end(self) -> int:
        """Returns the end of the records that are known to be synced. Only reads."""
        with jlog.Reader(self.path, start="end", durable_only=True) as reader:
            return reader.position

    def reason_against_writing(self) -> str | None:
        """Says why this process cannot write to the journal; None where it can."""
        host = socket.gethostname()
        kind = type_of(self.path)
        if kind and kind not in LOCAL and not os.environ.get(OVERRIDE):
            return f"on {host} it lies on {kind}, and journals are written on their own host alone"
        names = ["", "bounds", "lock", "precommit", "subscribers"]
        paths = [path for name in names if os.path.exists(path := os.path.join(self.path, name))]
        if all(os.access(path, os.W_OK) for path in paths):
            return None
        if os.statvfs(self.path).f_flag & os.ST_RDONLY:
            return f"on {host} it is mounted read-only"
        return f"on {host} the user {os.geteuid()}, as whom Spark's driver runs, may not write to it"

    def find(self, place: Place, end: int) -> int:
        """Returns the sequence that a place means. Raises PositionLost where retention has removed it, ValueError where it lies
        behind the end."""
        if place == EARLIEST:
            return self.first_sequence()
        if place == LATEST:
            return end
        if isinstance(place, datetime):
            with jlog.Reader(self.path, archive=self.archive) as reader:
                reader.seek(place)
                return min(end, reader.position)
        assert isinstance(place, int)
        if place > end:
            raise ValueError(f"{self.path} ends at sequence {end}; {place} lies behind it")
        return place

    def segments_between(self, sequence: int, end: int) -> list[Segment | ArchivedSegment]:
        """Lists the segments from this sequence up to `end`, oldest first."""
        if self.is_archive:
            return [segment for segment in Archive(self.path).segments() if segment.end_sequence > sequence]
        live = segments_now(self.path, read_meta(self.path), sequence, end)
        if live[0].first_sequence <= sequence or not self.archive:
            return [*live]
        return [segment for segment in segments(self.path, self.archive) if segment.end_sequence > sequence]


def sources_of(options: ReadOptions) -> dict[str, SparkJournal]:
    """Returns the journals by name. Raises JournalNotFound where there is none."""
    found: dict[str, SparkJournal] = {}
    for name, path in _named(options):
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = _source(name, path, options.archive)
    if not found:
        assert options.pattern is not None
        raise JournalNotFound(
            f"no journal below {', '.join(options.paths)} has a path that {options.pattern.pattern!r}, a regular expression, "
            f"matches as a whole; {_what_is_below(options.paths[0])}",
            options.paths[0],
        )
    return found


def _named(options: ReadOptions) -> Iterator[tuple[str, str]]:
    for given in options.paths:
        root = _local(given)
        if not options.journals and options.pattern is None:
            yield root, root
        for name in options.journals:
            yield (name if len(options.paths) == 1 else os.path.join(root, name)), os.path.join(root, name)
        if options.pattern is not None:
            for path in journals_below(root):
                name = os.path.relpath(path, root)
                if options.pattern.fullmatch(name):
                    yield (name if len(options.paths) == 1 else path), path


def _local(path: str) -> str:
    """Turns a file: URL into a path. It may name a journal as well as an archive."""
    if path.lower().startswith("file:"):
        found = os.path.abspath(path_of_file(path, path[len("file:") :]))
        return path if "://" in path and not _is_journal(found) else found
    return path if is_url(path) else os.path.abspath(path)


def _is_journal(path: str) -> bool:
    return os.path.exists(os.path.join(path, "journal.meta"))


def _source(name: str, path: str, archive: bool | str) -> SparkJournal:
    if is_url(path):
        return SparkJournal(name, path)
    if not _is_journal(path):
        raise JournalNotFound(
            f"there is no journal at {path} on {socket.gethostname()}, where Spark's driver runs; {_what_is_below(path)}",
            path,
        )
    known = archive if archive is not True else archive_of(path, True) is not None
    return SparkJournal(name, path, known)


def _what_is_below(path: str) -> str:
    if not os.path.isdir(path):
        return "there is no such directory"
    names = [os.path.relpath(journal, path) for journal, _ in zip(journals_below(path), range(6), strict=False)]
    if not names:
        return "there is none below it either"
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"below it are {shown}: name them with the option journals or journalPattern"


def journals_below(root: str) -> Iterator[str]:
    """Yields the directories of the journals below `root`, in order."""
    for folder, below, names in os.walk(root):
        if "journal.meta" in names:
            below.clear()
            yield folder
        below.sort()


def place_of(places: Places | None, name: str, default: Place) -> Place:
    if isinstance(places, dict):
        return places.get(name, default)
    return default if places is None else places


def check_names(places: Places | None, sources: Mapping[str, SparkJournal]) -> None:
    """Raises ValueError where the JSON of a starting or ending place names a journal that is not read."""
    unknown = sorted(set(places) - set(sources)) if isinstance(places, dict) else []
    if unknown:
        raise ValueError(
            f"a place is given for {', '.join(unknown)}, which is not read; these are read: {', '.join(sorted(sources))}"
        )


def lost(source: SparkJournal, start: int, there: int) -> PositionLost:
    return PositionLost(
        f"{source.path}: the records from {start} to {there - 1} are gone: retention has removed them, or they were never "
        f"archived. The option failOnDataLoss=false goes on at {there}; a subscriber keeps what it has not read",
        there,
    )

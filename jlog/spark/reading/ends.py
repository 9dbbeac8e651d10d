"""Finds where journals end for this driver, cheaply enough to be asked many times a second, and how far a stream lags."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jlog
from jlog.errors import JournalNotFound
from jlog.spark.reading.plan import Range
from jlog.spark.reading.sources import SparkSource
from jlog.spark.reading.spark_archive import SparkArchive
from jlog.spark.reading.spark_journal import SparkJournal

# Where a look has to read files, the next one comes no sooner than this many times the seconds that it took.
PAUSE = 10
AT_ONCE = 16  # journals that are synced side by side
ARCHIVE_SECONDS = 1.0  # between two listings of an archive, which an object store charges for

logger: logging.Logger = logging.getLogger("jlog.spark")


@dataclass(frozen=True)
class End:
    """`durable`: the end of the records that are known to be synced. `next_sequence`: the end of all."""

    durable: int
    next_sequence: int


class EndFinder:
    """Remembers the ends that it has found. A journal that may be written to is synced up to its end."""

    def __init__(self) -> None:
        self._known: dict[str, End] = {}
        self._pauses: dict[str, float] = {}  # the time until which the end that is known is good enough
        self._told: set[str] = set()

    def find_all(self, sources: Iterable[SparkSource]) -> dict[str, End]:
        """Returns the ends by name. Journals with new records are synced several at once, since each sync waits for the
        disk."""
        found: dict[str, End] = {}
        new: list[SparkJournal] = []
        for source in sources:
            known = self._known.get(source.name)
            if isinstance(source, SparkArchive) or source.reason_against_writing is not None:
                found[source.name] = self._found_by_reading(source, known)
            elif known is None or source.next_sequence() != known.durable:
                new.append(source)
            else:
                found[source.name] = known
        if new:
            with ThreadPoolExecutor(min(AT_ONCE, len(new))) as pool:
                synced = list(pool.map(SparkJournal.synced_end, new))
            found.update((source.name, End(end, end)) for source, end in zip(new, synced, strict=True))
        self._known.update(found)
        return found

    def find(self, source: SparkSource) -> End:
        return self.find_all([source])[source.name]

    def _found_by_reading(self, source: SparkSource, known: End | None) -> End:
        began = time.monotonic()
        if known is None or began >= self._pauses[source.name]:
            known = self._read_archive(source) if isinstance(source, SparkArchive) else self._read(source)
            pause = (PAUSE + 1) * (time.monotonic() - began)
            self._pauses[source.name] = began + max(pause, ARCHIVE_SECONDS if isinstance(source, SparkArchive) else 0)
        return known

    def at_least(self, source: SparkSource, sequence: int) -> End:
        """Returns the end that is known, if it is not before this sequence; otherwise looks for it now."""
        known = self._known.get(source.name)
        if known is not None and known.next_sequence >= sequence:
            return known
        self._known.pop(source.name, None)
        return self.find(source)

    def _read_archive(self, source: SparkArchive) -> End:
        """Returns 0 as the end of an archive in which nothing is archived yet."""
        try:
            end = source.next_sequence()
            return End(end, end)
        except JournalNotFound:
            if source.name not in self._told:
                self._told.add(source.name)
                logger.warning("%s: nothing is archived there yet; the query waits for the first segment", source.path)
            return End(0, 0)

    def _read(self, source: SparkJournal) -> End:
        durable = source.durable_end()
        found = End(durable, max(durable, source.next_sequence()))
        if source.name not in self._told and found.durable < found.next_sequence:
            self._tell(source, found)
        return found

    def _tell(self, source: SparkJournal, end: End) -> None:
        """Logs once that records may never become readable here: nothing is durable, or no writer syncs by itself."""
        journal = jlog.Journal(source.path)
        if end.durable > journal.first_sequence and journal.options.sync != "none":
            return
        self._told.add(source.name)
        logger.warning(
            "%s: %s. So only durable records are read, and none of the %d records from sequence %d on is durable yet. They are "
            "read once a writing process has synced them; with sync='interval' it does so each second",
            source.path, source.reason_against_writing, end.next_sequence - end.durable, end.durable,
        )  # fmt: skip


class Backlogs:
    """The lag of a stream in each journal, for the progress that Spark reports. Remembers the ends of the planned
    batches, and counts the records after them only when these have changed."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._counted: dict[str, tuple[Range, dict[str, int]]] = {}

    def note(self, reached: dict[str, int]) -> None:
        self._reached.update(reached)

    def report(self, source: SparkSource, end: End) -> dict[str, Any]:
        """Returns the fields that the journal has in the progress, beside its position."""
        start = self._reached.get(source.name)
        found: dict[str, Any] = {}
        if start is not None:
            found.update(self._behind(Range(source, min(start, end.durable), end.durable)))
        if end.next_sequence > end.durable:
            found["recordsNotDurable"] = end.next_sequence - end.durable
        if isinstance(source, SparkArchive) and not source.is_empty:
            newest_us = source.newest.last_timestamp_us
            found["newestRecordAgeSeconds"] = None if newest_us is None else round(time.time() - newest_us / 1e6, 3)
        return found

    def _behind(self, wanted: Range) -> dict[str, int]:
        known = self._counted.get(wanted.source.name)
        if known is None or known[0] != wanted:
            records, size_bytes = wanted.size()
            counted = {"recordsBehindLatest": records, "bytesBehindLatest": size_bytes}
            known = self._counted[wanted.source.name] = (wanted, counted)
        return known[1]

"""Follows journals for a streaming query: Spark asks for the ends, plans a batch up to there, and commits it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from jlog.errors import JournalError, PositionLost
from jlog.spark.reading.columns import OutputColumns
from jlog.spark.reading.ends import Backlogs, EndFinder
from jlog.spark.reading.limits import TriggerLimits
from jlog.spark.reading.options import EARLIEST, LATEST, parse
from jlog.spark.reading.plan import Range, RangePiece, partitions_of, pieces_of
from jlog.spark.reading.scan import read_partition
from jlog.spark.reading.source_positions import SourcePosition, before_the_first, query_of, resume, source_position_of
from jlog.spark.reading.sources import SparkSource, bound_of, check_names, sources_of
from jlog.spark.reading.spark_archive import SparkArchive
from jlog.spark.reading.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2, which has no limits: a trigger takes all records
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = ReadMinRows = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

LOOK_SECONDS = 1.0  # between two looks for new journals below a root


logger: logging.Logger = logging.getLogger("jlog.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process while the query runs. Only read() runs in the tasks, and needs nothing but the options."""

    def __init__(self, schema: StructType, given: Mapping[str, str]) -> None:
        self._options = parse(given)
        self._columns = OutputColumns(schema)
        self._subscription = Subscription(
            self._options.subscriber, self._options.checkpoint, fail_on_data_loss=self._options.fail_on_data_loss
        )
        self._query: str | None = None  # the id of a query with a subscriber, once its checkpoint has told or gets it
        self._sources: dict[str, SparkSource] = {}
        self._looked = 0.0
        self._behind: set[str] = set()  # archives that the query waits for
        self._initial: SourcePosition | None = None
        self._ends = EndFinder()
        self._target: dict[str, int] | None = None  # the ends of an AvailableNow run
        self._limits = TriggerLimits(self._options)
        self._backlogs = Backlogs()

    # --- Progress -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> SourcePosition:  # noqa: N802
        """Is called twice; both answers are the same."""
        if self._initial is None:
            sources = self._look()
            check_names(self._options.start, sources)
            self._know_query({})
            ends = self._ends_of(sources)
            initial = self._positions(
                {name: 0 if self._is_empty(source) else self._begin(source, ends[name]) for name, source in sources.items()}
            )
            for source in sources.values():
                self._subscription.begin(source, self._query)
            self._initial = initial
            self._subscription.log_first()
        return self._initial

    def _begin(self, source: SparkSource, end: int) -> int:
        """Returns where a new query begins: at the bound that is given, else at the position of its subscriber, else at the
        first record."""
        stands = self._subscription.position(source) if self._options.start is None else None
        bound = bound_of(self._options.start, source.name, EARLIEST) if stands is None else stands
        found = source.find(bound, end)
        begin = source.retained_from(found, fail_on_data_loss=self._options.fail_on_data_loss)
        self._subscription.create(source, begin)
        return begin

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        sources = self._look()
        check_names(self._options.end, sources)
        ends = self._ends_of(sources)
        self._target = {name: self._target_of(source, ends[name]) for name, source in sources.items()}

    def _target_of(self, source: SparkSource, end: int) -> int:
        """Returns where an AvailableNow run ends: at the bound that is given, or at the present end where that comes first."""
        return end if self._is_empty(source) else source.find(bound_of(self._options.end, source.name, LATEST), end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns one limit, since Spark takes only one; where both are given, latestOffset applies the other itself."""
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_records_per_trigger is not None:
            return ReadMinRows(self._options.min_records_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: SourcePosition | None = None, limit: ReadLimit | None = None) -> SourcePosition:  # noqa: N802
        """Is called many times a second while no record comes. Its answer is synced: a checkpoint must never know of more."""
        if self._target is None and self._options.end is not None:
            raise ValueError(
                "endingSequence and endingTimestamp are for a stream that ends: give it trigger(availableNow=True), with Spark "
                "4.2 or newer; or read with spark.read"
            )
        sources = self._look(start or ())
        if self._target is not None:
            sources = {name: source for name, source in sources.items() if name in {*self._target, *(start or ())}}
        ends = self._ends_of(sources)
        if start is None:
            return self._positions(ends)
        start = self._renamed(start)
        self._know_query(start)
        found = {
            name: None if self._is_behind(source, start) else self._start_of(source, start, ends[name])
            for name, source in sources.items()
        }
        begins = {name: begin for name, begin in found.items() if begin is not None}
        left = {name: start.get(name, before_the_first()) for name in sources if name not in begins}
        left.update(self._gone(start))
        # The position where a new query begins is in no checkpoint yet.
        is_kept = query_of(start) is not None and start != self._initial
        self._subscription.move(((sources[name], begin) for name, begin in begins.items()), self._query, claim=is_kept)
        self._subscription.log_first()
        backlogs = {name: Range(sources[name], begin, max(begin, ends[name])) for name, begin in begins.items()}
        self._backlogs.note(begins)
        ends = {name: backlog.end for name, backlog in backlogs.items()}
        # Spark gives no limit for the last batch of an AvailableNow run.
        if limit is not None and type(limit) is not ReadAllAvailable:
            if self._target is None and self._limits.is_too_little(backlogs):
                return dict(sorted(start.items()))
            ends = self._limits.ends_within(backlogs)
        self._backlogs.note(ends)
        return dict(sorted({**self._positions(ends), **left}.items()))

    def _positions(self, ends: dict[str, int]) -> SourcePosition:
        """Returns the source position. Spark compares these as text, so equal ones are written alike."""
        sources = self._sources
        query = {} if self._query is None else {"query": self._query}
        return {
            name: before_the_first() if self._is_empty(sources[name]) else {**source_position_of(sources[name], end), **query}
            for name, end in sorted(ends.items())
        }

    def _know_query(self, known: SourcePosition) -> None:
        """Finds the id of the query in a position of its checkpoint. A query that has none there, as a new one, gets a random
        id, which the checkpoint has with the end of the next batch. Spark tells a source in Python nothing of its query.
        (Before Spark 4.2 it does not even tell where the next batch begins; a query without a known id is not compared.)"""
        if self._options.subscriber is not None:
            self._query = query_of(known) or self._query or secrets.token_hex(16)

    def _is_empty(self, source: SparkSource) -> bool:
        """Says whether this is an archive in which nothing is archived yet."""
        self._ends.at_least(source, 0)
        return isinstance(source, SparkArchive) and source.is_empty

    def reportLatestOffset(self) -> SourcePosition:  # noqa: N802
        """Returns the ends, for the progress that Spark reports, with the distance of the last batch's end from these. Spark
        neither stores nor compares them."""
        ends = {name: self._ends.at_least(source, 0) for name, source in self._sources.items()}
        found = self._positions({name: end.durable for name, end in ends.items()})
        for name, end in ends.items():
            found[name].update(self._backlogs.report(self._sources[name], end))
        return found

    def _look(self, known: Iterable[str] = ()) -> dict[str, SparkSource]:
        """Returns the journals by name. An AvailableNow run keeps those of its start, and looks again only for a journal that
        the checkpoint knows."""
        now = time.monotonic()
        again = now - self._looked > LOOK_SECONDS if self._target is None else not self._sources.keys() >= set(known)
        if not self._sources or (self._options.pattern is not None and again):
            last, self._looked = self._sources, now  # of which each one remembers what it has read
            found = sources_of(self._options)
            self._sources = {name: last[name] if source == last.get(name) else source for name, source in found.items()}
            for source in self._sources.values():
                self._check_subscriber(source)
        return self._sources

    def _check_subscriber(self, source: SparkSource) -> None:
        """Raises JournalError for a subscriber that this driver could not move."""
        if self._options.subscriber is None:
            return
        if isinstance(source, SparkArchive):
            raise JournalError(
                f"{source.path} is an archive, which has no subscribers: leave out the option subscriber. The checkpoint keeps "
                "the position, and no reader holds anything back in an archive"
            )
        reason = source.reason_against_writing
        if reason is not None:
            raise JournalError(
                f"{source.path}: the subscriber {self._options.subscriber} cannot follow this query: {reason}. Run the driver "
                "on the journal's host, as a user who may write to it; or leave out the option subscriber, and have retention "
                "keep the records for as long as the query needs them, or archive them"
            )

    def _ends_of(self, sources: Mapping[str, SparkSource]) -> dict[str, int]:
        ends = {name: end.durable for name, end in self._ends.find_all(sources.values()).items()}
        # An AvailableNow run reads nothing more of a journal that it knows from the checkpoint alone.
        return ends if self._target is None else {name: min(end, self._target.get(name, 0)) for name, end in ends.items()}

    def _renamed(self, source_positions: SourcePosition) -> SourcePosition:
        """Returns the source position with the present names of journals that have another path now. A journal is known by its
        uuid: under its new name alone it would be read from its first record again."""
        found = dict(source_positions)
        gone = {name for name, position in found.items() if name not in self._sources and position["uuid"] is not None}
        for name in self._sources.keys() - found.keys() if gone else ():
            source = self._sources[name]
            if self._is_empty(source):
                continue
            uuid, _ = source.history(self._ends.at_least(source, 0).durable)
            same = [old for old in gone if found[old]["uuid"] == uuid]
            if len(same) == 1:
                found[name] = found.pop(same[0])
                gone.remove(same[0])
        return found

    def _gone(self, source_positions: SourcePosition) -> SourcePosition:
        """Returns the journals that are not read any more."""
        gone = {name: source_position for name, source_position in source_positions.items() if name not in self._sources}
        if gone and self._options.fail_on_data_loss:
            raise JournalError(
                f"the query has read {', '.join(sorted(gone))}, which is missing now; the journals are "
                f"{', '.join(sorted(self._sources))}. Bring it back; or go on without it, with the option failOnDataLoss=false"
            )
        return gone

    def _start_of(self, source: SparkSource, source_positions: SourcePosition, end: int) -> int | None:
        """Returns where a batch up to `end` begins: at the first record, if the journal is new. Returns None where nothing of
        what the query begins with is archived yet."""
        source_position = source_positions.get(source.name)
        if isinstance(source, SparkArchive) and (source_position is None or source_position["uuid"] is None):
            return None if self._is_empty(source) else self._start_in_archive(source, source_position is None, end)
        if source_position is None:
            begin = source.first_sequence()
            self._subscription.create(source, begin)
            return begin
        there = self._ends.at_least(source, int(source_position["sequence"])).next_sequence
        return resume(source, source_position, there, fail_on_data_loss=self._options.fail_on_data_loss)

    def _is_behind(self, source: SparkSource, source_positions: SourcePosition) -> bool:
        """Says whether this archive has less than the query has had: before, it may have read the journal itself. Then the
        query waits for it."""
        position = source_positions.get(source.name)
        if not isinstance(source, SparkArchive) or position is None or position["uuid"] is None or self._is_empty(source):
            return False
        sequence = int(position["sequence"])
        end = self._ends.at_least(source, sequence).next_sequence
        if sequence <= end or source.history(end)[0] != position["uuid"]:
            return False
        if source.name not in self._behind:
            self._behind.add(source.name)
            logger.warning(
                "%s: the query has had the records before %d, and the archive ends at %d; the query waits for newer segments",
                source.path, sequence, end,
            )  # fmt: skip
        return True

    def _start_in_archive(self, source: SparkArchive, is_new: bool, end: int) -> int | None:
        """Returns where reading begins in an archive that was empty when the query began, or was not among the sources."""
        bound = EARLIEST if is_new else bound_of(self._options.start, source.name, EARLIEST)
        if isinstance(bound, int) and bound >= end:
            return None
        begin = source.find(EARLIEST if bound == LATEST else bound, end)
        begin = source.retained_from(begin, fail_on_data_loss=self._options.fail_on_data_loss)
        return begin if begin < end else None

    # --- A batch ------------------------------------------------------------------------------------------------------

    def partitions(self, start: SourcePosition, end: SourcePosition) -> list[InputPartition]:
        sources = self._look(end)
        start = self._renamed(start)
        self._query = query_of(end) or query_of(start) or self._query
        gone = self._gone(end)
        pieces: list[RangePiece] = []
        for name, source_position in end.items():
            if source_position == start.get(name) or name in gone:
                continue
            source, last = sources[name], int(source_position["sequence"])
            self._ends.at_least(source, last)
            begin = self._start_of(source, start, last)
            if begin is None:
                continue
            try:
                begin = source.retained_from(begin, fail_on_data_loss=self._options.fail_on_data_loss)
            except PositionLost as error:
                raise self._subscription.explained(source, begin, self._query, error) from None
            if begin > last and self._options.fail_on_data_loss:
                raise JournalError(
                    f"{source.path}: the query's first batch ends at sequence {last}, but startingSequence is at {begin} now: "
                    "the first run was killed, and Spark does not keep where it began. Remove the checkpoint and begin anew "
                    f"at a sequence, or with a subscriber, which keeps the place; failOnDataLoss=false goes on at {last}"
                )
            if begin < last:
                pieces += pieces_of(Range(source, begin, last))
        found: list[InputPartition] = [*partitions_of(pieces, self._options)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_partition(partition, self._columns, self._options)

    def commit(self, end: SourcePosition) -> None:
        """Is called when Spark needs no record before `end` any more."""
        there, query = self._sources, query_of(end)
        positions = ((there[name], int(at["sequence"])) for name, at in end.items() if name in there)
        self._subscription.move(positions, query or self._query, claim=query is not None)

    def stop(self) -> None:
        self._subscription.end()

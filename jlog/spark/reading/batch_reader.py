"""Reads a journal as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from jlog.spark.reading.columns import OutputColumns
from jlog.spark.reading.ends import EndFinder
from jlog.spark.reading.filters import FilterBounds
from jlog.spark.reading.options import EARLIEST, FAILFAST, LATEST, ReadOptions, parse
from jlog.spark.reading.plan import JournalPartition, Range, RangePiece, partitions_of, pieces_of, without_reading
from jlog.spark.reading.scan import read_partition
from jlog.spark.reading.sources import SparkSource, bound_of, check_names, sources_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


def batch_reader(schema: StructType, given: Mapping[str, str]) -> DataSourceReader:
    """Creates the reader. Spark refuses every query of a reader that knows filters while its setting for them is off, which is
    the default."""
    options = parse(given)
    return (FilteringReader if options.pushdown else BatchReader)(schema, options)


class BatchReader(DataSourceReader):
    """Reads from the starting to the ending bound, as they are when the query is planned."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._options = options
        self._columns = OutputColumns(schema)
        self._bounds = FilterBounds()

    def partitions(self) -> list[JournalPartition]:
        self._ends = EndFinder()
        sources = sources_of(self._options)
        for bounds in (self._options.start, self._options.end):
            check_names(bounds, sources)
        pieces: list[RangePiece] = []
        for source in sources.values():
            for wanted in self._ranges_of(source):
                segments = wanted.segments()
                if self._columns.are_known_without_reading and self._options.mode == FAILFAST:
                    wanted = without_reading(wanted, segments)
                pieces += pieces_of(wanted, segments)
        return partitions_of(pieces, self._options)

    def _ranges_of(self, source: SparkSource) -> list[Range]:
        options = self._options
        last = self._ends.find(source).durable if options.durable else source.next_sequence()
        end = source.find(bound_of(options.end, source.name, LATEST), last)
        start = source.find(bound_of(options.start, source.name, EARLIEST), last)
        start = source.retained_from(start, fail_on_data_loss=options.fail_on_data_loss)
        return [wanted for wanted in self._bounds.narrowed(Range(source, start, end)) if wanted.start < wanted.end]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        for batch in read_partition(partition, self._columns, self._options):
            yield self._bounds.among(batch)


class FilteringReader(BatchReader):
    """Leaves out records by filters on `sequence`, `timestamp` and `journal`. Spark filters the rest once more.

    Spark (as of 4.3) keeps the plan of the frame's last query that had filters, and uses it for other queries of the same frame
    too. So this is for frames that run only one query, and is used only if it is asked for.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for one in filters:
            self._bounds.add(one)
        return filters

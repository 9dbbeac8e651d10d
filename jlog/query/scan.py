"""`jlog.scan`: a lazy view of a journal, an archive or a topic, which can be read any number of times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.html import SHOWN_ROWS, records_table, table, time_text
from jlog.interfaces import ReaderProtocol
from jlog.positions.names import Start, check_start
from jlog.positions.start import Range
from jlog.query import parts
from jlog.query.bounds import EVERYTHING, MOST, TIMES_US, Bounds
from jlog.query.parts import Part
from jlog.reading.reader import ARROW_RECORDS, Reader
from jlog.record import (
    FIELDS,
    HEADERS_MAP,
    HEADERS_TEXT_MAP,
    ArrowBatch,
    Field,
    import_pyarrow,
    requested_fields,
    schema_of,
    stream_of,
)
from jlog.storage.damage import Damage, past_damage
from jlog.system.arguments import check_count, check_flag
from jlog.system.clock import EPOCH
from jlog.system.filesystem import is_url
from jlog.urls import open_reader, place_of

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow
    from typing_extensions import CapsuleType

    from jlog.query.duckdb_dataset import ScanDataset
    from jlog.query.json_fields import JsonFields

BATCH_BYTES = 16 << 20
MAX_COLUMNS = 1_000  # that are inferred
_DOCUMENTED = {"path", "start", "end", "tail", "text", "to_arrow", "to_duckdb", "to_pandas", "to_polars"}


def scan(
    path_or_url: str | os.PathLike[str],
    *,
    start: Start = "begin",
    end: Start = "end",
    text: bool = False,
    parse: str | None = None,
    schema: Any = None,
    max_columns: int = MAX_COLUMNS,
) -> Scan:
    """Returns a lazy view of a journal, an archive or a topic, for Arrow, Polars, DuckDB and pandas.

    It reads nothing itself, is not a subscriber, holds nothing back, and can be read any number of times, also while others
    append. Each reading begins and ends where start and end are then.

    start, end: as Reader's start: "begin", "end", a sequence, an aware datetime, an ISO string with a UTC offset, a timedelta
        (so long ago), or a checkpoint's name. The record at `end` is left out.
    text: value, key and headers are strings, and a record that is not UTF-8 is an error, with its sequence.
    parse: "json" adds a column for each field of the values, which are JSON objects. Needs pyarrow.
    schema: the fields and their types, in place of those that a sample of the records has: an object with __arrow_c_schema__,
        or a dict of names and names of Arrow types.
    max_columns: of the fields that a sample has, so many become columns, those within others included. The others are in the
        map `json_rest`, as texts in JSON, and a UserWarning says so.
    """
    check_flag("text", text)
    path = os.fspath(path_or_url)
    if path and not is_url(path) and place_of(path, archives=False) == path:
        path = os.path.abspath(path)  # it is opened later, perhaps from another working directory
    return Scan(path, check_start(start), check_start(end), text, _parser(parse, schema, max_columns))


def _parser(parse: str | None, schema: Any, max_columns: int) -> JsonFields | None:
    check_count("max_columns", max_columns)
    if parse is None:
        if schema is not None:
            raise ValueError("schema= is for parse='json': without it a scan has the columns of the records")
        return None
    if parse != "json":
        raise ValueError(f"parse must be 'json' or None, not {parse!r}")
    import_pyarrow()
    from jlog.query.json_fields import JsonFields

    return JsonFields(schema, max_columns)


@dataclass(frozen=True)
class Scan:
    """The view that jlog.scan() returns. It has __arrow_c_stream__, so that every library for Arrow takes it."""

    path: str
    start: Start = "begin"
    end: Start = "end"
    text: bool = False
    parser: JsonFields | None = None
    columns: tuple[str, ...] | None = None  # None: all
    bounds: Bounds = EVERYTHING
    newest: int | None = None  # so many records before `end` are enough; None: all
    by_extremes: bool = False  # of the timestamps, the earliest and the latest are enough
    on_damage: Callable[[Damage], None] | None = None  # takes what is skipped; None: damage is an error
    on_batch: Callable[[int], None] | None = None  # takes the number of records of each batch that was read

    def __repr__(self) -> str:
        return f"<jlog.Scan {self.path!r} from {self.start!r} to {self.end!r}>"

    # --- Libraries --------------------------------------------------------------------------------------------------

    def __arrow_c_schema__(self) -> CapsuleType:
        if self.parser is not None:
            capsule: CapsuleType = self.pyarrow_schema.__arrow_c_schema__()
            return capsule
        return schema_of(self.fields)

    def __arrow_c_stream__(self, requested_schema: CapsuleType | None = None) -> CapsuleType:
        """Returns the records as a stream, as Reader does, from the beginning each time."""
        if self.parser is not None:
            import pyarrow

            reader = pyarrow.RecordBatchReader.from_batches(self.pyarrow_schema, self.pyarrow_batches())
            capsule: CapsuleType = reader.__arrow_c_stream__(requested_schema)
            return capsule
        fields = requested_fields(requested_schema, self.fields)
        return stream_of(fields, self.batches(fields))

    def to_arrow(self) -> pyarrow.Table:
        """Returns all records, in memory. Raises what a Reader raises."""
        return import_pyarrow().Table.from_batches(self.pyarrow_batches(), self.pyarrow_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns all records, in memory. Needs pandas and pyarrow."""
        table = self.to_arrow()
        try:
            return table.to_pandas()
        except ModuleNotFoundError as error:
            raise ImportError(f"to_pandas() needs {error.name}: pip install pandas") from None

    def to_polars(self) -> polars.LazyFrame:
        """Returns a LazyFrame. Only the columns that a query needs are read, only the ranges of sequence and timestamp that its
        filters leave, and no more records than it takes. Records whose value lacks a text that a filter looks for are passed
        over. Needs polars: pip install 'pyjlog[polars]'."""
        from jlog.query.polars_frames import lazy_frame

        return lazy_frame(self)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyRelation:
        """Gives the connection a view of this name, which reads the records anew in each query. Returns it as a relation.

        Where pyarrow is installed, and without `parse`, only the columns that a query needs are read, and only the ranges of
        sequence and timestamp that its conditions leave."""
        connection.register(name, self._dataset() or self)
        return connection.view(name)

    def _dataset(self) -> ScanDataset | None:
        if self.parser is not None:
            return None  # DuckDB takes NaN for the greatest number, and Arrow's conditions do not
        try:
            from jlog.query.duckdb_dataset import ScanDataset
        except ImportError:
            return None
        return ScanDataset(self)

    def _repr_html_(self) -> str:
        try:
            with self._reader(self.start) as reader, self._reader(self.end) as at_end:
                end = at_end.position  # reading backward moves it
                first = [record for record in reader.read(SHOWN_ROWS) if record.sequence < end]
                last = [one for one in at_end.read_backward(SHOWN_ROWS)[::-1] if first and one.sequence > first[-1].sequence]
            if self.parser is not None:
                return self._parsed_table([record.sequence for record in first], [record.sequence for record in last])
        except (JournalError, OSError, ValueError) as error:
            return records_table(f"{self!r}: {error}", [])
        return records_table(repr(self), first, last)

    def _parsed_table(self, *ends: list[int]) -> str:
        """Returns a table with the columns of the fields too, of the records with these sequences."""
        rows: list[tuple[object, ...]] = []
        for sequences in filter(None, ends):
            if rows and rows[-1][0] != sequences[0] - 1:
                rows.append(("…",) * len(self.names()))
            part = self.narrowed(None, Bounds(sequences=(sequences[0], sequences[-1])))
            for batch in part.pyarrow_batches():
                times = map(time_text, batch.column("timestamp").cast("int64").to_pylist())
                others = [
                    column.to_pylist() for name, column in zip(self.names(), batch.columns, strict=True) if name != "timestamp"
                ]
                found = zip(others[0], times, *others[1:], strict=True)
                rows += [row for row in found if row[0] in sequences]
        return table(repr(self), self.names(), rows)

    def __dir__(self) -> list[str]:
        """Names what is documented; Tab offers that."""
        return [name for name in super().__dir__() if name.startswith("_") or name in _DOCUMENTED]

    # --- Columns ----------------------------------------------------------------------------------------------------

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The wanted columns of the records themselves."""
        found = {**FIELDS, "headers": HEADERS_TEXT_MAP if self.text else HEADERS_MAP}
        if self.text:
            found |= {name: found[name]._replace(format="u") for name in ("key", "value")}
        return tuple(field for field in found.values() if self.columns is None or field.name in self.columns)

    @cached_property
    def pyarrow_schema(self) -> pyarrow.Schema:
        import pyarrow

        own = pyarrow.schema(NoRecords(self.fields))
        if self.parser is None:
            return own
        return pyarrow.schema([*own, *self.parser.columns(self)])

    def names(self) -> list[str]:
        """Returns the names of its columns."""
        return [field.name for field in self.fields] if self.parser is None else list(self.pyarrow_schema.names)

    def without_records(self) -> Any:
        """Returns an object with the scan's columns and no record, for any library."""
        return NoRecords(self.fields) if self.parser is None else self.pyarrow_schema.empty_table()

    # --- Reading ----------------------------------------------------------------------------------------------------

    def narrowed(self, columns: Sequence[str] | None, bounds: Bounds) -> Scan:
        """Returns a scan with these columns alone, which may leave out the records outside the bounds."""
        wanted = None if columns is None else tuple(columns)
        both = self.bounds if self.newest is not None else self.bounds.both(bounds)  # of these, and not the newest of the rest
        return replace(self, columns=wanted, bounds=both)

    def tail(self, records: int) -> Scan:
        """Returns a scan of the newest records, so many of them. No others are read, which a library cannot tell this scan."""
        return replace(self, newest=check_count("records", records, 0))

    def __len__(self) -> int:
        """Counts the records from the headers of blocks, whose content is not read."""
        return sum(map(len, self.batches(parts.SEQUENCE)))

    def __bool__(self) -> bool:
        return True

    def told(self, on_damage: Callable[[Damage], None], on_batch: Callable[[int], None]) -> Scan:
        """Returns a scan that skips damage and tells about it, and about the number of records in each batch."""
        return replace(self, on_damage=on_damage, on_batch=on_batch)

    def pyarrow_batches(self, limit: int | None = None) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        if self.parser is None:
            return map(pyarrow.record_batch, self.batches(self.fields, limit))
        return self.parser.parsed(self, limit)

    def batches(self, fields: Sequence[Field], limit: int | None = None) -> Iterator[ArrowBatch]:
        """Iterates over the records, at most `limit` of them, but for the rest of the last batch."""
        left = most = MOST if limit is None else limit
        if self.bounds.is_empty or left == 0:
            return
        with self._reader(self.start) as reader:
            found = self._parts(reader, {field.name for field in fields}, lambda: most - left)
            for first, end, stand_in_us in found:
                if first > reader.position:
                    try:
                        reader.seek(first)
                    except ValueError:
                        return  # beyond the end
                size = min(ARROW_RECORDS, left)
                batches = reader.arrow_batches(fields, end, size, BATCH_BYTES, self.bounds.needle, stand_in_us)
                for batch in self._batches(reader, batches):
                    left -= len(batch)
                    yield batch
                    if left <= 0:
                        return

    def _batches(self, reader: ReaderProtocol, batches: Iterator[ArrowBatch]) -> Iterator[ArrowBatch]:
        """Yields the batches, and passes over damage where somebody is told of it."""
        skip = None if self.on_damage is None or not isinstance(reader, Reader) else reader.skip_damage
        for batch in past_damage(lambda: next(batches, None), skip, self.on_damage or bool):
            if self.on_batch is not None:
                self.on_batch(len(batch))
            yield batch

    def range(self) -> tuple[int, int]:
        """Returns the first sequence and the end as they are now, whatever the bounds are."""
        with self._reader(self.start) as reader, self._reader("end" if isinstance(self.end, int) else self.end) as at_end:
            end = at_end.position if not isinstance(self.end, int) else min(self.end, at_end.position)
            return reader.position, end

    def _reader(self, start: Start) -> ReaderProtocol:
        """Opens an anonymous reader."""
        place = place_of(self.path)
        return open_reader(place, start=start) if place.is_topic else Reader(place, start=start)

    def _end(self) -> int | None:
        """Returns the sequence before which reading ends; None for the end as it is now."""
        end = self.bounds.sequences[1] + 1
        if isinstance(self.end, int):
            end = min(end, self.end)
        elif self.end != "end":
            with self._reader(self.end) as reader:
                end = min(end, reader.position)
        return None if end > MOST else max(end, 0)

    def _parts(self, reader: ReaderProtocol, names: set[str], taken: Callable[[], int]) -> Iterator[Part]:
        """Yields the parts to read. taken: returns the number of records that were read so far."""
        if self.newest is not None:
            count = self.newest
            yield from parts.newest(reader, (reader.position, self._end()), lambda: count - taken())
            return
        by_headers = names == {"sequence"} and not self.bounds.needle
        by_extremes = self.by_extremes and not by_headers and names <= {"sequence", "timestamp"}
        for first, end in self._ranges(reader):
            if by_extremes and isinstance(reader, Reader):
                yield from parts.with_extremes(reader, (first, end))
            else:
                yield first, end, 0 if by_headers else None

    def _ranges(self, reader: ReaderProtocol) -> Iterator[Range]:
        """Yields the ranges of sequences, ascending, in which all records within the bounds are."""
        least, most = max(reader.position, self.bounds.sequences[0]), self._end()
        for first, end in self._time_ranges(reader):
            begin = max(first, least)
            stop = end if most is None else most if end is None else min(most, end)
            if stop is None or begin < stop:
                yield begin, stop

    def _time_ranges(self, reader: ReaderProtocol) -> list[Range]:
        since_us = self.bounds.times_us[0]
        if self.bounds.times_us == EVERYTHING.times_us:
            return [(0, None)]
        if isinstance(reader, Reader):
            return reader.time_ranges(self.bounds.times_us)
        if since_us <= 0 or since_us not in TIMES_US:
            return [(0, None)]
        # A topic says where the first record is that is late enough, and nothing of the times after it.
        with self._reader(EPOCH + timedelta(microseconds=since_us)) as at_time:
            return [(at_time.position, None)]


@dataclass(frozen=True)
class NoRecords:
    """Columns that a library for Arrow takes, without a record."""

    fields: tuple[Field, ...]

    def __arrow_c_schema__(self) -> CapsuleType:
        return schema_of(self.fields)

    def __arrow_c_stream__(self, requested_schema: CapsuleType | None = None) -> CapsuleType:
        return stream_of(self.fields, iter(()))

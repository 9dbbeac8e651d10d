"""The parts of a range of records that answer a question about its newest records, or about its times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from jlog.errors import CorruptJournal
from jlog.interfaces import ReaderProtocol
from jlog.positions.start import Range
from jlog.query.bounds import LEAST, MOST
from jlog.reading.reader import Reader
from jlog.record import FIELDS

# First sequence, exclusive end or None for that of the journal, and a timestamp that may stand in for those of the records, so
# that these need not be read; None: the records are read.
Part = tuple[int, int | None, int | None]
SEQUENCE = (FIELDS["sequence"],)


def newest(reader: ReaderProtocol, wanted: Range, missing: Callable[[], int]) -> Iterator[Part]:
    """Yields parts, the newest first, until no record of the range is missing any more. One is enough, unless damage hides some
    of its records."""
    begin, end = wanted
    reader.seek("end")
    at = reader.position if end is None else min(end, reader.position)
    while at > begin and missing() > 0:
        try:
            start = start_of_newest(reader, begin, at, missing())
            reader.seek(start)
        except CorruptJournal:  # whoever reads the records is told
            start = begin
            reader.seek(start)
        yield start, at, None
        at = start


def start_of_newest(reader: ReaderProtocol, begin: int, end: int, count: int) -> int:
    """Returns the sequence from which on so many records are before `end`; `begin` where there are fewer. In a gap, each step
    back is twice as long as the one before."""
    width = count
    while count > 0 and end > begin:
        start = max(begin, end - width)
        reader.seek(start)
        number = sum(map(len, reader.arrow_batches(SEQUENCE, end, stand_in_us=0)))
        if number > count < width:
            width = count  # the step was too long
            continue
        end, count = start, count - number
        width = count if number else 2 * width
    return max(end, begin)


def with_extremes(reader: Reader, wanted: Range) -> Iterator[Part]:
    """Yields parts that cover the range. Those whose records are read have the earliest of all, and the timestamp of the last
    record stands in for the others, of which none is later. Where that cannot be told, the range is read."""
    first, end = wanted
    time_us, ranges = 0, [wanted]
    with suppress(CorruptJournal):
        time_us, ranges = _ranges_of_extremes(reader, first, end)
    reader.seek(first)
    at, limit = first, MOST if end is None else end
    for begin, until in sorted((begin, MOST if until is None else until) for begin, until in ranges):
        begin, until = max(begin, at), min(until, limit)
        if begin < until:
            if at < begin:
                yield at, begin, time_us
            yield begin, None if until == MOST else until, None
            at = until
    if at < limit:
        yield at, end, time_us


def _ranges_of_extremes(reader: Reader, first: int, end: int | None) -> tuple[int, list[Range]]:
    """Returns the timestamp of the last record, and ranges that have the first one, and all records that may be earlier than
    the first or later than the last."""
    reader.seek("end")
    if end is not None and end < reader.position:
        reader.seek(end)
    last = reader.read_backward(1)
    if not last or last[0].sequence < first:
        return 0, [(first, end)]
    most_us = last[0].timestamp_us
    later = reader.time_ranges((most_us + 1, MOST)) if most_us < MOST else []
    reader.seek(first)
    least_us = reader.read(1)[0].timestamp_us
    earlier = reader.time_ranges((LEAST, least_us - 1)) if least_us > LEAST else []
    return most_us, [(first, first + 1), *earlier, *later]

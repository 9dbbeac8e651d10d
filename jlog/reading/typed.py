"""The sources of a Reader with a codec: the same records, which know how to decode their values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from jlog._core.records.record import Record, RecordBatch
from jlog._core.records.typed import AsyncTyped, Typing
from jlog.typed.codec import Codec, Decoder

if TYPE_CHECKING:
    from jlog.reading.event_loops import Waiter
    from jlog.reading.pace import Pace
    from jlog.reading.sources import RecordSource


def typing(decoder: Decoder) -> Callable[[Record], Record]:
    """Returns a function that gives a record this decoder."""
    return Typing(decoder)


class TypedRecords:
    """Hands out what another source does. All else is the other's."""

    def __init__(self, source: RecordSource, codec: Codec) -> None:
        self._source = source
        self._typing = Typing(Decoder(codec, str(source.path)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    # map() and Typing are compiled: no exception of a signal's handler comes between a record and the caller.

    def records(self) -> Iterator[Record]:
        return map(self._typing, self._source.records())

    def follow(self, timeout: float | None, pace: Pace | None) -> Iterator[Record]:
        return map(self._typing, self._source.follow(timeout, pace))

    def follow_async(self, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> AsyncIterator[Record]:
        return AsyncTyped(self._typing, self._source.follow_async(timeout, pace, waiters))

    def read(self, max_records: int, max_bytes: int, timeout: float | None) -> RecordBatch:
        return self._typing.batch(self._source.read(max_records, max_bytes, timeout))

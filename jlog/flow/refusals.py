"""What a flow knows of a record that the sink, or the function before it, refuses."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from jlog.flow.records import RecordLike

Policy = Literal["stop", "skip", "dead-letter"]


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

"""Records between a source and a sink: their protocol, the functions that change them, and batches by column."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, cast

Headers = Sequence[tuple[str, bytes | None]]


class RecordLike(Protocol):
    """Has the fields of a record: a jlog.Record, a record of Kafka's, or a NewRecord."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp_us(self) -> int | None: ...


class BatchLike(Protocol):
    """Records in order."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class NewRecord:
    """A record that is in no journal yet. timestamp_us None: the time when it is appended."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=tuple)
    timestamp_us: int | None = None

    @classmethod
    def like(cls, record: RecordLike, **changes: Any) -> NewRecord:
        """Returns a copy of `record` with these changes: NewRecord.like(record, value=b"…")."""
        return replace(cls(record.value, record.key, record.headers, record.timestamp_us), **changes)


Function = Callable[[Any], "RecordLike | bytes | Iterable[RecordLike | bytes] | None"]


class RecordColumns(NamedTuple):
    """Records by column, as Writer.extend takes them."""

    values: list[bytes | None]
    keys: list[bytes | None]
    headers: list[Headers]
    timestamps_us: list[int | None]

    @property
    def value_bytes(self) -> int:
        return sum(map(len, filter(None, self.values)))


def columns_of(batch: Iterable[RecordLike]) -> RecordColumns:
    columns = getattr(batch, "columns", None)
    if columns is not None:
        return cast("RecordColumns", columns())
    records = list(batch)
    return RecordColumns(
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        [record.timestamp_us for record in records],
    )


def load(name: str) -> Function:
    """Returns the function that "module:function" names. The module is also looked for in the working directory."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ValueError(f"{name!r} does not name a function; write module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # any error of the module itself too
        raise ValueError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"{name!r} is not a function")
    function: Function = found
    return function

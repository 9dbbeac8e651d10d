from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from typing_extensions import Self, disjoint_base

from jlog._core.read.cursor import Cursor
from jlog._core.records.arrow import ArrowBatch, Field
from jlog._core.records.record import Record

_Converted = TypeVar("_Converted")

@disjoint_base
class ValueIterator:
    def __init__(self, cursor: Cursor) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes | None: ...

@disjoint_base
class RecordIterator:
    def __init__(self, cursor: Cursor) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...

@disjoint_base
class ArrowIterator(Generic[_Converted]):
    def __init__(
        self,
        cursor: Cursor,
        max_records: int,
        max_bytes: int,
        fields: Iterable[Field],
        *,
        end: int | None = None,
        needle: bytes | None = None,
        convert: Callable[[ArrowBatch], _Converted] | None = None,
        stand_in_us: int | None = None,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _Converted: ...

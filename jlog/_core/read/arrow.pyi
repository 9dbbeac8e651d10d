from collections.abc import Iterable

import pyarrow
from typing_extensions import Self, disjoint_base

from jlog._core.read.cursor import Cursor

@disjoint_base
class ArrowIterator:
    def __init__(
        self,
        cursor: Cursor,
        max_records: int,
        max_bytes: int,
        *,
        columns: Iterable[str] | None = None,
        end: int | None = None,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> pyarrow.RecordBatch: ...

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

from typing_extensions import Buffer, Self, disjoint_base

from jlog._core.append.operations import Care, Policy
from jlog._core.records.arrow import _ArrowData
from jlog._core.records.encode import EncodedRecords
from jlog._core.system.lock import Deadline
from jlog._core.write.ingest import Piece

_WriterClass = TypeVar("_WriterClass", bound=type[Writer])

class _Record(Protocol):
    @property
    def value(self) -> bytes | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...
    @property
    def timestamp_us(self) -> int | None: ...

_Headers: TypeAlias = Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None]

@disjoint_base
class Writer:
    def __init__(
        self,
        path: str,
        policy: Policy,
        care: Care,
        *,
        capacity: int,
        options: Mapping[str, Any],
        exclusive: bool,
        lock_timeout: float | None,
        deadline: Deadline,
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def next_sequence(self) -> int: ...
    @property
    def precommit(self) -> int: ...
    def append(
        self,
        value: Buffer | None,
        /,
        *,
        key: Buffer | None = None,
        headers: _Headers | None = None,
        timestamp_us: int | None = None,
        id: Buffer | None = None,
        timestamp: datetime | None = None,
    ) -> int: ...
    def _append_unsynced(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: _Headers | None,
        timestamp_us: int | None,
        id: Buffer | None,
        timestamp: datetime | None,
    ) -> int: ...
    def _append_once(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: _Headers | None,
        timestamp_us: int | None,
        id: bytes,
        known_end: int,
        deadline: Deadline,
    ) -> int | None: ...
    def extend(
        self,
        values: Iterable[Buffer | None] | Iterable[_Record],
        /,
        keys: Iterable[Buffer | None] | None = None,
        headers: Iterable[_Headers | None] | None = None,
        timestamps_us: Iterable[int | None] | None = None,
        state: Mapping[bytes, Buffer | None] | None = None,
    ) -> int: ...
    def extend_arrow(
        self,
        data: _ArrowData,
        /,
        *,
        state: Mapping[bytes, Buffer | None] | None = None,
    ) -> int: ...
    def flush(self) -> None: ...
    def sync(self) -> None: ...
    def roll(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

def ingest(
    writer: Writer,
    path: str | os.PathLike[str],
    pieces: Sequence[Piece],
    /,
    state: Mapping[bytes, Buffer | None] | None = None,
) -> int | None: ...
def extend_body(writer: Writer, body: EncodedRecords, state: Mapping[bytes, Buffer | None] | None = None) -> int: ...
def not_durable(path: str, error: Exception, sequence: int) -> Exception: ...
def with_own_append(cls: _WriterClass) -> _WriterClass: ...

import os
from types import TracebackType
from typing import NamedTuple

from typing_extensions import Self, disjoint_base

from jlog._core.records.arrow import _ArrowData
from jlog._core.records.encode import EncodedRecords

class Piece(NamedTuple):
    offset: int
    records: int
    raw_bytes: int
    stored_bytes: int
    codec: int
    raw_crc: int
    stored_crc: int
    explicit_count: int
    explicit_max_us: int

@disjoint_base
class SegmentBuilder:
    def __init__(self, path: str | os.PathLike[str], compression: str = "none") -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def pieces(self) -> list[Piece]: ...
    @property
    def bytes(self) -> int: ...
    def add(self, data: _ArrowData, /) -> None: ...
    def start_writeback(self) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

def read_piece(path: str | os.PathLike[str], piece: Piece, body: EncodedRecords) -> None: ...

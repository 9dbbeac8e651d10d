from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from typing_extensions import Self, disjoint_base

from jlog._core.kafka.outgoing import Outgoing

NOT_OF_A_JOURNAL: int

class Batch(NamedTuple):
    pieces: list[bytes]
    size: int
    records: int
    sequences: bytes

@disjoint_base
class Batches:
    def __new__(cls, partitions: int, limit_bytes: int) -> Self: ...
    @property
    def full(self) -> int: ...
    def put(
        self,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        time_ms: int,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int: ...
    def filled(self) -> list[int]: ...
    def clear(self) -> None: ...
    def take(self, partition: int, compress: bool, producer: int, epoch: int, sequence: int) -> Batch: ...

@disjoint_base
class Packing(Outgoing):
    def __init__(self, batches: Batches, make_room: Callable[[int], bool], **rules: Any) -> None: ...

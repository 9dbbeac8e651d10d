from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import disjoint_base

from jlog._core.kafka.client import Client, Library
from jlog._core.records.record import RecordBatch

SENT: int
NOT_PLAIN: int

class Failure(NamedTuple):
    code: int
    topic: str
    sequence: int | None

@disjoint_base
class Producer(Client):
    def __init__(self, library: Library, settings: dict[str, str]) -> None: ...
    def init_transactions(self, seconds: float) -> None: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self, seconds: float) -> None: ...
    def abort_transaction(self, seconds: float) -> None: ...
    def flush(self, seconds: float) -> int: ...
    def purge(self) -> None: ...
    @property
    def failure(self) -> Failure | None: ...
    def forget_failure(self) -> None: ...
    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        _callback: None = None,
        _on_delivery: None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None: ...

@disjoint_base
class Sending:
    def __init__(
        self,
        producer: Producer,
        topic: str,
        ours: str,
        *,
        partition: int | None,
        partitions: int,
        spread_bits: int,
        without_key: bool,
        needs_key: bool,
        limit_bytes: int,
        times_ms: tuple[int, int],
        sequence_header: str | None = None,
        timestamp_header: str | None = None,
    ) -> None: ...
    @property
    def value_bytes(self) -> int: ...
    @property
    def beside_bytes(self) -> int: ...
    @property
    def index(self) -> int: ...
    def begin(self, batch: RecordBatch) -> None: ...
    def send(self) -> int: ...
    def skip(self) -> None: ...

from typing_extensions import disjoint_base

from jlog._core.records.record import RecordBatch

SENT: int
NOT_PLAIN: int
FULL: int

@disjoint_base
class Outgoing:
    def __init__(
        self,
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

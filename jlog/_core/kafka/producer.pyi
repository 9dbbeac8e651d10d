from collections.abc import Sequence
from typing import Any, NamedTuple

from typing_extensions import disjoint_base

from jlog._core.kafka.client import Client, Library
from jlog._core.kafka.outgoing import Outgoing

class Failure(NamedTuple):
    code: int
    topic: str
    partition: int
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
        value: bytes | None,
        key: bytes | None,
        partition: int,
        time_ms: int,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None: ...

@disjoint_base
class Sending(Outgoing):
    def __init__(self, producer: Producer, topic: str, **rules: Any) -> None: ...

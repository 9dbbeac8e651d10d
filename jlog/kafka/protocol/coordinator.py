"""The coordinator of a transactional id: it numbers the producer, and begins and ends the transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError

from jlog.kafka.protocol.brokers import Address, Brokers, Steps, error
from jlog.kafka.protocol.connection import Connection, Lost
from jlog.kafka.protocol.messages import (
    NO_PRODUCER,
    CoordinatorFound,
    Place,
    ProducerId,
    Request,
    add_partitions,
    end_transaction,
    find_coordinator,
    init_producer_id,
)

RETRY_SECONDS = 0.1
AGAIN_SECONDS = 0.005  # while the coordinator ends the transaction before
NOT_ATTEMPTED = 55  # of a partition: nothing was done because of another one
MOVES = (
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)


class Coordinator:
    """Its calls are in steps, and raise KafkaException. A request whose answer was lost is made again: each of them may be made
    twice.

    on_lost: is told why a coordinator could not be asked. last_code: why it is being asked again.
    """

    def __init__(self, brokers: Brokers, transactional_id: str, timeout_ms: int, on_lost: Callable[[Lost], None]) -> None:
        self.producer = NO_PRODUCER
        self.last_code = 0
        self._brokers = brokers
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._on_lost = on_lost
        self._address: Address | None = None

    def init(self) -> Steps[None]:
        """Begins a new epoch, the first time as a new instance that fences all others. Aborts an open transaction, also that of
        a newer instance: Kafka (4.3) looks only then at who asks. So there must be no newer one."""

        def code(answer: tuple[int, ProducerId]) -> int:
            return answer[0]

        request = init_producer_id(self._id, self._timeout_ms, self.producer)
        _, self.producer = yield from self._until_done(request, code)

    def add(self, places: Collection[Place]) -> Steps[None]:
        """Makes partitions part of the transaction, which begins with the first of them."""

        def code(answer: dict[Place, int]) -> int:
            found = {*answer.values()} - {0}
            return min(found - {NOT_ATTEMPTED} or found, default=0)

        yield from self._until_done(add_partitions(self._id, self.producer, places), code)

    def end(self, *, commit: bool) -> Steps[None]:
        yield from self._until_done(end_transaction(self._id, self.producer, commit=commit), int)

    def _until_done(self, request: Request, code_of: Callable[[Any], int]) -> Steps[Any]:
        """Asks until it is done. Returns the answer."""
        while True:
            try:
                connection = yield from self._find()
                answer = yield from self._brokers.answer(connection.ask(request))
            except Lost as lost:
                self._on_lost(lost)
                self._address = None
                yield from self._brokers.sleep(RETRY_SECONDS)
                continue
            code = code_of(answer)
            if not code:
                return answer
            if code in MOVES:
                self._address = None
                yield from self._brokers.sleep(RETRY_SECONDS)
            elif code == KafkaError.CONCURRENT_TRANSACTIONS:
                self.last_code = code
                yield from self._brokers.sleep(AGAIN_SECONDS)
            elif code == KafkaError.UNKNOWN_TOPIC_OR_PART:  # a new topic, or one that is gone, which the caller finds out
                yield from self._brokers.sleep(RETRY_SECONDS)
            else:
                raise error(code)

    def _find(self) -> Steps[Connection]:
        while self._address is None:
            found: CoordinatorFound = yield from self._brokers.ask_any(find_coordinator(self._id))
            if not found.code:
                self._address = (found.host, found.port)
            elif found.code in MOVES:
                yield from self._brokers.sleep(RETRY_SECONDS)
            else:
                raise error(found.code)
        return self._brokers.at(self._address)

"""A transactional producer that sends whole record batches, with the calls of the Python client's that a transaction needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jlog._core.kafka.batches import Batches, Packing
from jlog._core.kafka.outgoing import FULL
from jlog.flow.records import Headers
from jlog.kafka.protocol.brokers import Brokers, Steps, error
from jlog.kafka.protocol.connection import Lost
from jlog.kafka.protocol.coordinator import Coordinator
from jlog.kafka.protocol.delivery import Delivery, Undelivered

WAITING_BYTES = 64 << 20  # of batches that are not acknowledged
OPEN_BYTES = 32 << 20  # of batches that are being filled
BATCH_BYTES_MIN = 16 << 10
MESSAGE_BYTES = 1_000_000  # librdkafka's default


class BatchProducer:
    """Works in one thread, within its calls. A call that has not ended in time goes on when it is made again.

    on_delivery: is told the batch that the brokers did not take.
    """

    def __init__(self, conf: Mapping[str, Any], on_delivery: Callable[[KafkaError, Undelivered], None]) -> None:
        transactional_id = str(conf["transactional.id"])
        transaction_ms = int(conf["transaction.timeout.ms"])
        message_ms = int(conf.get("message.timeout.ms", transaction_ms))  # as librdkafka has it for transactions
        answer_ms = int(conf["socket.timeout.ms"])
        self._message_bytes = int(conf.get("message.max.bytes", MESSAGE_BYTES))
        self._batch_bytes = int(conf["batch.size"])
        self._compress = conf.get("compression.codec", conf.get("compression.type")) == "lz4"
        self._on_error: Callable[[KafkaError], None] = conf["error_cb"]
        self._brokers = Brokers(conf["bootstrap.servers"], str(conf.get("client.id", "rdkafka")), answer_ms / 1000)
        self._coordinator = Coordinator(self._brokers, transactional_id, transaction_ms, self._note)
        self._delivery = Delivery(
            self._brokers,
            self._coordinator,
            transactional_id,
            answer_ms=answer_ms * 9 // 10,  # before this side gives the broker up
            seconds=message_ms / 1000 or float("inf"),
            on_failure=on_delivery,
            on_lost=self._note,
        )
        self._topics: dict[str, Batches] = {}
        self._steps: Steps[None] | None = None  # of the call that has not ended in time
        self._called = ""

    def _note(self, why: Lost) -> None:
        self._on_error(KafkaError(KafkaError._TRANSPORT, str(why)))

    def is_understood(self, timeout: float) -> bool:
        """Says whether the brokers know the requests that it makes, or could not be asked."""
        try:
            return self._brokers.result(self._brokers.are_new_enough(), timeout) is not False
        except Lost:
            return True

    # --- Records ----------------------------------------------------------------------------------------------------

    def sending(self, topic: str, **rules: Any) -> Packing:
        """Returns a way for batches of a journal to this topic."""
        return Packing(self._batches_of(topic), partial(self._make_room, topic), **rules)

    def error_of(self, code: int) -> KafkaException:
        return error(code)

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        _callback: None = None,
        _on_delivery: None = None,
        timestamp: int = 0,
        headers: Headers = (),
    ) -> None:
        size = len(value or b"") + len(key or b"") + sum(len(name) + len(content or b"") for name, content in headers)
        if size > self._message_bytes:
            raise error(KafkaError.MSG_SIZE_TOO_LARGE)
        batches = self._batches_of(topic)
        time_ms = timestamp or int(time.time() * 1000)
        while batches.put(value, key, partition, time_ms, headers) == FULL:
            if not self._make_room(topic, batches.full):
                raise error(KafkaError._QUEUE_FULL)

    def _batches_of(self, topic: str) -> Batches:
        """Returns the batches of a topic. Raises KafkaException where its partitions are not known."""
        found = self._topics.get(topic)
        if found is None:
            partitions = self._known_partitions(topic) or self.count_partitions(topic, 1.0)
            if not partitions:
                raise error(KafkaError.UNKNOWN_TOPIC_OR_PART)
            limit_bytes = min(self._batch_bytes, max(BATCH_BYTES_MIN, OPEN_BYTES // partitions))
            found = self._topics[topic] = Batches(partitions, limit_bytes)
        return found

    def _known_partitions(self, topic: str) -> int:
        found = self._brokers.topics.get(topic)
        return 0 if found is None else len(found.leaders)

    def _make_room(self, topic: str, partition: int) -> bool:
        """Ends the batch of a partition, which is sent when its turn comes. Returns False while too many wait."""
        if self._delivery.waiting_bytes > WAITING_BYTES:
            self._delivery.go_on(0)
            if self._delivery.waiting_bytes > WAITING_BYTES:
                return False
        number = self._delivery.lane((topic, partition)).number
        batch = self._topics[topic].take(partition, self._compress, *self._coordinator.producer, number)
        self._delivery.add((topic, partition), batch)
        return True

    def count_partitions(self, topic: str, timeout: float) -> int:
        """Returns the number of the topic's partitions, which keys are spread over from then on; 0 where the brokers know no
        such topic."""
        try:
            if not self._brokers.run(self._brokers.refresh([topic]), timeout):
                raise error(KafkaError._TIMED_OUT)
        except Lost as lost:
            raise error(KafkaError._TRANSPORT, str(lost)) from None
        self._topics.pop(topic, None)
        return self._known_partitions(topic)

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def flush(self, timeout: float) -> int:
        """Waits until all batches are acknowledged. Returns how many are not."""
        self._end_batches()
        until = time.monotonic() + timeout
        while (left := self._delivery.waiting) and self._delivery.failure is None and time.monotonic() < until:
            self._delivery.go_on(until - time.monotonic())
        self._raise_if_failed()
        return left

    def _end_batches(self) -> None:
        for topic, batches in self._topics.items():
            for partition in batches.filled():
                self._make_room(topic, partition)

    def poll(self, timeout: float) -> int:
        self._delivery.go_on(timeout)
        self._raise_if_failed()
        return 0

    def _raise_if_failed(self) -> None:
        """Raises why the transaction cannot be committed, but for a batch that was not taken, which on_delivery was told."""
        if self._delivery.failure is not None and not self._delivery.is_told:
            raise self._delivery.failure

    # --- Transactions -----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float) -> None:
        self._call("init", self._init, timeout)

    def begin_transaction(self) -> None:
        self._raise_if_failed()

    def commit_transaction(self, timeout: float) -> None:
        self._call("commit", self._commit, timeout)

    def abort_transaction(self, timeout: float) -> None:
        self._call("abort", self._abort, timeout)

    def _call(self, name: str, make: Callable[[], Steps[None]], timeout: float) -> None:
        if self._steps is None or self._called != name:
            self._steps, self._called = make(), name
            self._coordinator.last_code = 0
        steps, self._steps = self._steps, None
        if not self._brokers.run(steps, timeout):
            self._steps = steps
            raise error(self._coordinator.last_code or KafkaError._TIMED_OUT, retriable=True)

    def _init(self) -> Steps[None]:
        yield from self._coordinator.init()
        self._delivery.begin_epoch()

    def _commit(self) -> Steps[None]:
        self._end_batches()
        while self._delivery.waiting and self._delivery.failure is None:
            self._delivery.send()
            yield
        if self._delivery.failure is not None:
            raise self._delivery.failure
        if self._delivery.has_begun:
            yield from self._coordinator.end(commit=True)
        self._delivery.ended()

    def _abort(self) -> Steps[None]:
        self.purge()
        while not self._delivery.is_quiet:  # a batch must not arrive behind the end of its transaction
            yield
        self.purge()
        if self._delivery.has_begun:
            yield from self._coordinator.end(commit=False)
        if self._delivery.is_certain:
            self._delivery.ended()
        else:
            # Not done otherwise: the broker would abort the transaction of an instance that has fenced this one meanwhile.
            yield from self._init()

    def purge(self) -> None:
        """Drops all records that are not acknowledged, but for batches that are on their way."""
        for batches in self._topics.values():
            batches.clear()
        self._delivery.drop()

    def close(self) -> None:
        self._brokers.close()

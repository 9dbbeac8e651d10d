"""Records as messages of one topic: key, partition, headers and time, and why a record cannot become a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jlog._core.kafka.producer import NOT_PLAIN, SENT, Sending
from jlog.errors import text_of
from jlog.flow.ends import Refuse, Refused
from jlog.flow.normal import as_bytes
from jlog.flow.records import Headers, RecordLike
from jlog.kafka.client.clients import AnyProducer
from jlog.kafka.client.errors import REFUSED, code_of
from jlog.kafka.client.names import OURS_PREFIX, SEQUENCE, TIMESTAMP
from jlog.kafka.client.native import NativeProducer
from jlog.kafka.client.rules import Rules, overhead_bytes_of
from jlog.kafka.client.transactions import Transactions
from jlog.record import RecordBatch

NUL = "the name of one of its headers has a NUL"
SPREAD_BITS = 10  # records without a key go to one partition 1024 at a time

Key = Callable[[RecordLike], "bytes | None"]


@dataclass(frozen=True)
class Messages:
    """Sends records to the topic of this name, in the transactions.

    partition: the only one to send to.
    key: returns a message's key, None for the record's own.
    origin: returns headers that say where a record comes from, beside its own.
    """

    name: str
    transactions: Transactions
    partition: int | None
    key: Key | None
    origin: Callable[[Any], Headers] | None

    def send(
        self, producer: AnyProducer, batch: Iterable[RecordLike], refuse: Refuse, partitions: int, rules: Rules
    ) -> tuple[int, int]:
        """Sends the records, as Sink.write does. Returns the bytes of their values, and those of keys and headers."""
        if isinstance(batch, RecordBatch) and isinstance(producer, NativeProducer) and self._is_plain():
            return self._send_whole(producer, batch, refuse, partitions, rules)
        value_bytes = beside_bytes = 0
        message_of = self._builder(partitions, rules)
        for index, record in enumerate(batch):
            reason = ""
            try:
                message, beside = message_of(record)
                producer.produce(*message)
            except Refused as error:
                reason = str(error)
            except (BufferError, KafkaException):
                reason = self._produce_late(producer, message)
            if not reason:
                value_bytes += len(record.value or b"")
                beside_bytes += beside
            elif not refuse(index, record, reason):
                break
        return value_bytes, beside_bytes

    def _builder(self, partitions: int, rules: Rules) -> Callable[[RecordLike], tuple[tuple[Any, ...], int]]:
        """Returns the function that turns a record into the arguments of produce(), and counts the bytes beside the value. It
        raises Refused for a record that the topic would refuse."""
        name, key_of, origin = self.name, self._key_of, self.origin
        limit_bytes, needs_key = rules.limit_bytes, rules.needs_key
        earliest_ms, latest_ms = rules.times_ms()
        spread = partitions > 1 and self.partition is None

        def message_of(record: RecordLike) -> tuple[tuple[Any, ...], int]:
            value, time_us, headers = record.value, record.timestamp_us, record.headers
            if headers and any("\0" in header for header, _ in headers):  # the client would cut the name there
                raise Refused(NUL)
            key = key_of(record)
            time_ms = 0 if time_us is None else time_us // 1000 or 1  # milliseconds(), without the call
            if (value and len(value) > limit_bytes) or not earliest_ms <= time_ms <= latest_ms or (needs_key and key is None):
                reason = rules.refusal(record, key)
                if reason:
                    raise Refused(reason)
            if headers:
                headers = without_ours(headers)
            if origin is not None:
                headers = [*headers, *origin(record)]
            partition = partition_of(record, key, partitions) if spread else self.partition or 0
            beside = overhead_bytes_of(key, headers)
            return (name, value, key, partition, None, None, time_ms, *(([*headers],) if headers else ())), beside

        return message_of

    def _key_of(self, record: RecordLike) -> bytes | None:
        if self.key is None:
            return record.key
        try:
            return as_bytes(self.key(record), "key")
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"the function for its key raised {type(error).__name__}: {text_of(error)}") from error

    def _is_plain(self) -> bool:
        """Returns whether the core can build the messages: no Python function decides what is in them."""
        return self.key in (None, no_key) and self.origin in (None, sequence_of, origin_for_standby)

    def _send_whole(
        self, producer: NativeProducer, batch: RecordBatch, refuse: Refuse, partitions: int, rules: Rules
    ) -> tuple[int, int]:
        """Does what send() does, without an object for each record."""
        sending = Sending(
            producer,
            self.name,
            OURS_PREFIX,
            partition=self.partition,
            partitions=partitions,
            spread_bits=SPREAD_BITS,
            without_key=self.key is no_key,
            needs_key=rules.needs_key,
            limit_bytes=rules.limit_bytes,
            times_ms=rules.times_ms(),
            sequence_header=None if self.origin is None else SEQUENCE,
            timestamp_header=TIMESTAMP if self.origin is origin_for_standby else None,
        )
        sending.begin(batch)
        while (code := sending.send()) != SENT:
            if code == KafkaError._QUEUE_FULL:
                self.transactions.wait_for_room()
            elif code == NOT_PLAIN or code in REFUSED:
                index = sending.index
                record = batch[index]
                reason = self._why_not(record, rules) if code == NOT_PLAIN else str(KafkaError(code).str())
                if not refuse(index, record, reason):
                    break
                sending.skip()
            else:
                raise self.transactions.what_failed(KafkaException(KafkaError(code)), "producing")
        return sending.value_bytes, sending.beside_bytes

    def _why_not(self, record: RecordLike, rules: Rules) -> str:
        """Returns why the core has not sent the record."""
        if any("\0" in name for name, _ in record.headers):
            return NUL
        return rules.refusal(record, None if self.key is no_key else record.key) or "it is against a rule of the topic"

    def _produce_late(self, producer: AnyProducer, message: Sequence[Any]) -> str:
        """Produces a message that the client did not take. Returns why it refuses it; an empty text if it was only full."""
        try:
            self.produce(producer, *message)
        except KafkaException as error:
            if code_of(error) not in REFUSED:
                raise self.transactions.what_failed(error, "producing") from None
            return str(error.args[0].str())
        return ""

    def produce(self, producer: AnyProducer, *message: Any) -> None:
        """Waits while the queue is full. Raises KafkaException where the client refuses the message."""
        while True:
            try:
                producer.produce(*message)
            except (BufferError, KafkaException) as error:
                if not isinstance(error, BufferError) and code_of(error) != KafkaError._QUEUE_FULL:
                    raise
            else:
                return
            self.transactions.wait_for_room()


def no_key(_: RecordLike) -> None:
    """Gives a message no key."""


def sequence_of(record: Any) -> Headers:
    return ((SEQUENCE, b"%d" % record.sequence),)


def origin_for_standby(record: Any) -> Headers:
    return ((SEQUENCE, b"%d" % record.sequence), (TIMESTAMP, b"%d" % record.timestamp_us))


def partition_of(record: RecordLike, key: bytes | None, partitions: int) -> int:
    """Returns the partition; -1 leaves it to the client's partitioner. Records without a key are spread by their sequence, so
    that a comparison knows where each is."""
    if key is not None:
        return -1
    sequence: int = getattr(record, "sequence", -1)
    return -1 if sequence < 0 else (sequence >> SPREAD_BITS) % partitions


def without_ours(headers: Headers) -> Sequence[tuple[str, bytes | None]]:
    """Returns the headers without those that a capture adds."""
    return [header for header in headers if not header[0].startswith(OURS_PREFIX)]

"""Writes to one partition of a topic as to a journal."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from operator import index
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from jlog.errors import JournalError, RecordTooLarge
from jlog.flow.records import NewRecord
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import ANSWER_SECONDS
from jlog.kafka.client.errors import REFUSED, BrokerError, code_of, not_allowed, told, until_done
from jlog.kafka.client.rules import Rules, milliseconds, overhead_bytes_of
from jlog.kafka.client.settings import TRANSACTIONAL, Config
from jlog.kafka.client.url import parse
from jlog.kafka.topic.partition import Opened, Partition
from jlog.kafka.topic.topics import topic_config
from jlog.options import Retention
from jlog.positions.names import timestamp_us_of
from jlog.record import records_of_arrow
from jlog.typed.codec import Codec, check_codec, encoded, encoded_columns

WITHOUT_TIME = -(1 << 63)  # the time that records_of_arrow gives a row whose timestamp is null
SLICE_SECONDS = 0.2  # longest wait in one piece, so that Ctrl-C is heard
START_SECONDS, COMMIT_SECONDS, ABORT_SECONDS = 30.0, 60.0, 5.0


class TopicWriter(Opened):
    """Writes to one partition, as jlog.Writer writes to a journal. append() returns None, since the offset is known only when
    the brokers have the record: flush() returns when all required replicas have acknowledged all records, or raises.

    A missing topic is created, with `partitions` (1) and `replication_factor` (the brokers' default), unless create=False.
    compression, segment_bytes, roll and retention are settings of a new topic; for an existing one only compression has an
    effect, on what is written. precommit, sync, sync_interval and lock_timeout have no effect. exclusive is a ValueError.

    transactional: every extend is a transaction, which consumers that read committed see as a whole or not at all; appended
        records become visible with the next flush.
    codec: as in jlog.Writer; but a topic keeps no types to compare with.
    config, config_file: settings of librdkafka.

    Threads may share one. After a fork the child's raises JournalClosed. It pickles as its URL and options.
    """

    _kind = "writer"

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        partitions: int = 1,
        replication_factor: int | None = None,
        transactional: bool = False,
        compression: str | None = None,
        segment_bytes: int | None = None,
        roll: str | None = None,
        retention: Retention | None = None,
        precommit: int | None = None,  # noqa: ARG002
        sync: str | None = None,  # noqa: ARG002
        sync_interval: float | None = None,  # noqa: ARG002
        lock_timeout: float | None = None,  # noqa: ARG002
        exclusive: bool = False,
        codec: Codec | None = None,
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if exclusive:
            raise ValueError("a topic cannot have one writer alone; leave exclusive=True to journals")
        making = {"create": create, "partitions": partitions, "replication_factor": replication_factor}
        settings: dict[str, Any] = {
            "compression": compression,
            "segment_bytes": segment_bytes,
            "roll": roll,
            "retention": retention,
        }
        others = {"transactional": transactional, "codec": codec, "config": config, "config_file": config_file}
        self._arguments = {**making, **settings, **others}
        self._codec = check_codec(codec, "encode")
        super().__init__(parse(url))
        self._lock = threading.RLock()
        self._failure: KafkaError | None = None
        self._transactional = transactional
        self._begun = False
        self._partition = Partition(url, config, config_file, {**making, "config": topic_config(**settings)})
        self._rules = Rules(self._partition.cluster.config(self._partition.name))
        self._producer = self._start(compression)

    def _start(self, compression: str | None) -> Producer:
        settings, limit = self._partition.settings, self._rules.limit_bytes
        more: dict[str, Any] = {
            "message_max_bytes": limit,
            "batch_size": min(limit, int(settings.given.get("batch.size", 1_000_000))),
        }
        if compression is not None:
            more["compression_type"] = compression
        if self._transactional:
            more |= {
                "transactional_id": settings.names.writer(),
                "transaction_timeout_ms": TRANSACTIONAL["transaction.timeout.ms"],
            }
        with told("opening a writer", settings, f"Write on transactional id {more.get('transactional_id')}"):
            producer = Producer({**settings.for_producer(**more), "on_delivery": self._delivered})
            if self._transactional:
                until_done(producer.init_transactions, Stop(), START_SECONDS)
            # Otherwise the first flush waits until the client asks for the partition's leader by itself, half a second later.
            producer.list_topics(self._partition.name, ANSWER_SECONDS)
        return producer

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._url, self._arguments)

    # --- Writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        value: Any,
        /,
        *,
        key: Any = None,
        headers: Iterable[tuple[str, Any]] | Mapping[str, Any] | None = None,
        timestamp_us: int | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        """Hands a record to the client, which sends it on. Raises RecordTooLarge if the topic has no room for it."""
        if timestamp is not None:
            if timestamp_us is not None:
                raise TypeError("timestamp and timestamp_us both say when the record is from; give one of them")
            timestamp_us = timestamp_us_of(timestamp)
        pairs: Any = headers
        if self._codec is not None:
            value, pairs = encoded(self._codec, value, headers)
        message = self._message(value, key, pairs, timestamp_us)
        with self._lock:
            self._raise_if_failed()
            self._produce(message)

    def extend(
        self,
        values: Iterable[Any],
        /,
        keys: Iterable[Any] | None = None,
        headers: Iterable[Iterable[tuple[str, Any]] | Mapping[str, Any] | None] | None = None,
        timestamps_us: Iterable[int | None] | None = None,
        state: Mapping[bytes, Any] | None = None,
    ) -> None:
        """Hands many records to the client, all of them or none. With transactional=True they are one transaction, which is
        committed when this returns. A topic has no state: ValueError."""
        pairs: Any = headers
        if self._codec is not None:
            values, pairs = encoded_columns(self._codec, values, headers)
        self._extend(values, keys, pairs, timestamps_us, state)

    def _extend(self, values: Any, keys: Any, headers: Any, timestamps_us: Any, state: Mapping[bytes, Any] | None) -> None:
        if state:
            raise ValueError("a topic keeps no state; write it to a journal, or to a compacted topic of your own")
        rows = list(values)
        columns = [[None] * len(rows) if column is None else list(column) for column in (keys, headers, timestamps_us)]
        if any(len(column) != len(rows) for column in columns):
            lengths = ", ".join(str(len(column)) for column in (rows, *columns))
            raise ValueError(f"columns of unequal length: {lengths}")
        messages = [self._message(*row) for row in zip(rows, *columns, strict=True)]
        with self._lock:
            self._raise_if_failed()
            if self._transactional:
                self._commit()
            for message in messages:
                self._produce(message)
            if self._transactional:
                self._commit()

    def extend_arrow(self, data: Any, /, *, state: Mapping[bytes, Any] | None = None) -> None:
        """Hands over records from Arrow data, as jlog.Writer.extend_arrow takes it."""
        found = list(records_of_arrow(data))
        self._extend(
            [record.value for record in found],
            [record.key for record in found],
            [record.headers for record in found],
            [None if record.timestamp_us == WITHOUT_TIME else record.timestamp_us for record in found],
            state,
        )

    def _message(
        self, value: Any, key: Any, headers: Iterable[tuple[str, Any]] | Mapping[str, Any] | None, timestamp_us: int | None
    ) -> tuple[Any, ...]:
        self._check_open()
        data, name = _bytes(value, "a value"), _bytes(key, "a key")
        given = headers.items() if isinstance(headers, Mapping) else headers or ()
        pairs = [(_header_name(h), _bytes(v, "a header's value")) for h, v in given]
        size = len(data or b"") + overhead_bytes_of(name, pairs)
        if size > self._rules.limit_bytes:
            raise RecordTooLarge(
                f"{self._url}: a record of {size} bytes is too large: the topic takes "
                f"{self._rules.max_message_bytes} (max.message.bytes), with all that surrounds them"
            )
        time_us = None if timestamp_us is None else index(timestamp_us)
        if time_us is not None or self._rules.needs_key:  # the broker would refuse the whole batch, later
            reason = self._rules.refusal(NewRecord(data, name, tuple(pairs), time_us), name)
            if reason:
                raise ValueError(f"{self._url}: the topic would refuse the record: {reason}")
        time_ms = 0 if time_us is None else milliseconds(time_us)
        return self._partition.name, data, name, self._partition.number, None, None, time_ms, pairs

    def _produce(self, message: tuple[Any, ...]) -> None:
        self._check_open()
        producer = self._producer
        with told("producing", self._partition.settings):
            if self._transactional and not self._begun:
                producer.begin_transaction()
                self._begun = True
            while True:
                try:
                    producer.produce(*message)
                except BufferError:
                    producer.poll(SLICE_SECONDS)
                    self._raise_if_failed()
                except KafkaException as error:
                    if code_of(error) in REFUSED:
                        raise RecordTooLarge(f"{self._url}: {error.args[0].str()}") from None
                    raise
                else:
                    break
            producer.poll(0)

    def flush(self) -> None:
        """Returns when the brokers have all appended records, or raises the first failure: BrokerError."""
        with self._lock:
            self._check_open()
            producer = self._producer
            if self._transactional:
                self._commit()
            with told("flushing", self._partition.settings):
                while producer.flush(SLICE_SECONDS):
                    self._raise_if_failed()
            self._raise_if_failed()
            self._partition.check_same()

    def sync(self) -> None:
        """Flushes: acknowledged records are as durable as the brokers are set to make them."""
        self.flush()

    def roll(self) -> None:
        """Does nothing: the segments belong to the brokers."""
        self._check_open()

    def close(self) -> None:
        """Flushes, and raises the first failure; the writer is closed in either case. A second close does nothing."""
        if self._closed:
            return
        try:
            if self._pid == os.getpid():
                self.flush()
        finally:
            self._closed = True
            vars(self).pop("_producer", None)  # another thread may close it, too

    # --- Properties -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """URL of the partition."""
        return self._url

    @property
    def next_sequence(self) -> int:
        """End of the partition now, as the brokers have it, without records that were not flushed."""
        self._check_open()
        return self._partition.end()

    @property
    def precommit(self) -> int:
        """0: the client buffers records, and they are lost with its process."""
        self._check_open()
        return 0

    # --- Errors -----------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        if not self._begun:
            return
        self._begun = False
        producer = self._producer
        try:
            with told("committing a transaction", self._partition.settings):
                until_done(producer.commit_transaction, Stop(), COMMIT_SECONDS)
        except BaseException as error:
            with suppress(KafkaException):  # otherwise the brokers give the transaction up by themselves
                until_done(producer.abort_transaction, Stop(), ABORT_SECONDS)
            if isinstance(error, JournalError):
                self._raise_if_failed()
            raise

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _raise_if_failed(self) -> None:
        failure, self._failure = self._failure, None
        if failure is None:
            return
        text = f"{self._url}: a record was not taken: {failure.str()}"
        if failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            text += f"; {not_allowed(f'Write on topic {self._partition.name}')}"
        if failure.code() == KafkaError._MSG_TIMED_OUT:
            text += f": {self._partition.cluster.why_late(self._partition.name)}"
        raise BrokerError(text, failure.code())


def _bytes(value: Any, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        raise TypeError(f"{what} must be bytes, not str; encode it")
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(f"{what} must be bytes or None, not {type(value).__name__}") from None


def _header_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be str, not {type(name).__name__}")
    return name


def _reopened(url: str, arguments: dict[str, Any]) -> TopicWriter:
    return TopicWriter(url, **arguments)

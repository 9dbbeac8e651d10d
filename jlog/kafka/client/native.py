"""A producer and a consumer by librdkafka's C calls: records and messages pass through without a Python object for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from jlog._core.kafka.client import Client, ClientError, Library
from jlog._core.kafka.consumer import Consumer, Messages
from jlog._core.kafka.producer import Producer, Sending
from jlog.flow.records import Headers
from jlog.kafka.client.errors import UNKNOWN_TOPIC, code_of
from jlog.kafka.client.records import At, Event, OnCommit, OnFailure

_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG]  # of syslog
_OF_PYTHON = frozenset(("error_cb", "logger"))  # presets of Settings that are not librdkafka's
T = TypeVar("T")


def are_text(conf: Mapping[str, Any]) -> bool:
    """Says whether librdkafka can be given all of these settings as text. A function cannot."""
    return all(isinstance(value, (str, int, float)) for name, value in conf.items() if name not in _OF_PYTHON)


def _texts_of(conf: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in conf.items()
        if name not in _OF_PYTHON
    }


def _as_kafka(error: ClientError) -> KafkaException:
    return KafkaException(KafkaError(error.code, error.text, error.fatal, error.retriable, error.abortable))


def _calling(call: Callable[..., T], *arguments: Any) -> T:
    """Calls the core. Raises its errors as those of the Python client, which all handling of errors knows."""
    try:
        return call(*arguments)
    except ClientError as error:
        raise _as_kafka(error) from None


def _errors_of(client: Client, logger: logging.Logger) -> Iterator[KafkaError]:
    """Logs the lines that the client has written since the last call, and yields its errors."""
    for note in client.take_notes():
        if note.code:
            yield KafkaError(note.code, note.text)
        else:
            logger.log(_LEVELS[min(max(note.level, 0), 7)], "%s: %s", note.facility, note.text)


class NativeProducer:
    """The core's producer, with those calls of the Python client that a transaction needs."""

    def __init__(self, library: Library, conf: Mapping[str, Any], on_failure: OnFailure) -> None:
        self._on_error: Callable[[KafkaError], None] = conf["error_cb"]
        self._logger: logging.Logger = conf["logger"]
        self._on_failure = on_failure
        self._core = _calling(Producer, library, _texts_of(conf))
        self.purge = self._core.purge
        self.close = self._core.close

    def sending(self, topic: str, **rules: Any) -> Sending:
        """Returns an object that sends whole batches of records to this topic."""
        return Sending(self._core, topic, **rules)

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
        try:  # _calling() would take longer than the call
            self._core.produce(topic, value, key, partition, timestamp, headers)
        except ClientError as error:
            raise _as_kafka(error) from None

    def init_transactions(self, timeout: float) -> None:
        self._call(self._core.init_transactions, timeout)

    def begin_transaction(self) -> None:
        self._call(self._core.begin_transaction)

    def commit_transaction(self, timeout: float) -> None:
        self._call(self._core.commit_transaction, timeout)

    def abort_transaction(self, timeout: float) -> None:
        self._call(self._core.abort_transaction, timeout)

    def flush(self, timeout: float) -> int:
        return self._call(self._core.flush, timeout)

    def poll(self, timeout: float) -> int:
        return self._call(self._core.poll, timeout)

    def count_partitions(self, topic: str, timeout: float) -> int:
        """Returns the number of the topic's partitions, by which the client chooses those of keys from then on; 0 where the
        brokers do not know the topic."""
        try:
            return self._call(self._core.partitions, topic, timeout)
        except KafkaException as error:
            if code_of(error) in UNKNOWN_TOPIC:
                return 0
            raise

    def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        """Calls the core, and hands on what the client has said meanwhile. Raises its fatal error as the Python client does."""
        try:
            return _calling(call, *arguments)
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        failure = self._core.failure
        if failure is not None:
            self._core.forget_failure()
            self._on_failure(KafkaError(failure.code), failure.topic, failure.sequence)
        fatal = None
        for error in _errors_of(self._core, self._logger):
            if error.code() == KafkaError._FATAL:
                fatal = self._core.fatal_error()
            else:
                self._on_error(error)
        if fatal is not None:
            raise _as_kafka(fatal)


class NativeConsumer:
    """The core's consumer, with the calls of PythonConsumer."""

    def __init__(self, library: Library, conf: Mapping[str, Any], on_commit: OnCommit) -> None:
        self._on_error: Callable[[KafkaError], None] = conf["error_cb"]
        self._logger: logging.Logger = conf["logger"]
        self._on_commit = on_commit
        self._commit_error = 0
        self._core = _calling(Consumer, library, _texts_of(conf))

    def assign(self, places: Collection[At]) -> None:
        _calling(self._core.assign, places)

    def consume(self, count: int, seconds: float) -> tuple[Messages, list[tuple[int, Event]]]:
        found = _calling(self._core.consume, count, seconds)
        self._hand_on()
        return found, [
            (before, Event(KafkaError(event.code, event.reason), event.topic or "", event.partition, event.offset))
            for before, event in found.events
        ]

    def _hand_on(self) -> None:
        """Hands on what the client has said meanwhile."""
        for error in _errors_of(self._core, self._logger):
            self._on_error(error)
        code = self._core.commit_error
        if code != self._commit_error:
            self._commit_error = code
            self._on_commit(KafkaError(code) if code else None)

    def commit(self, places: Collection[At]) -> None:
        _calling(self._core.commit, places)

    def close(self) -> None:
        with suppress(ClientError, ValueError):
            self._core.assign(())  # a message that is kept keeps the client too, which must not fetch on
        self._core.close()

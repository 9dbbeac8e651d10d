"""A producer and a consumer by librdkafka's C calls: records and messages pass through without a Python object for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from jlog._core.kafka.client import Client, Library
from jlog._core.kafka.consumer import Consumer, Messages
from jlog._core.kafka.producer import Producer
from jlog.kafka.client.errors import UNKNOWN_TOPIC, code_of
from jlog.kafka.client.records import Event, OnCommit, OnFailure
from jlog.kafka.client.settings import LOGGER

_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG]  # of syslog
_OF_PYTHON = frozenset(("error_cb", "logger"))  # presets of Settings that are not librdkafka's
P = ParamSpec("P")
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


def _errors_of(client: Client) -> Iterator[KafkaError]:
    """Logs the lines that the client has written since the last call, and yields its errors."""
    for note in client.take_notes():
        if note.code:
            yield KafkaError(note.code, note.text)
        else:
            LOGGER.log(_LEVELS[min(max(note.level, 0), 7)], "%s: %s", note.facility, note.text)


def _handing_on(call: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Returns a call of the producer that also hands on what the client has said meanwhile."""

    def calling(self: NativeProducer, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(self, *arguments, **named)
        finally:
            self.hand_on()

    return calling


class NativeProducer(Producer):
    """The core's producer, with those calls of the Python client that a transaction needs."""

    def __init__(self, library: Library, conf: Mapping[str, Any], on_failure: OnFailure) -> None:
        self._on_error: Callable[[KafkaError], None] = conf["error_cb"]
        self._on_failure = on_failure
        super().__init__(library, _texts_of(conf))

    init_transactions = _handing_on(Producer.init_transactions)
    begin_transaction = _handing_on(Producer.begin_transaction)
    commit_transaction = _handing_on(Producer.commit_transaction)
    abort_transaction = _handing_on(Producer.abort_transaction)
    flush = _handing_on(Producer.flush)
    poll = _handing_on(Producer.poll)
    partitions = _handing_on(Producer.partitions)

    def count_partitions(self, topic: str, timeout: float) -> int:
        """Returns the number of the topic's partitions, by which the client chooses those of keys from then on; 0 where the
        brokers do not know the topic."""
        try:
            return self.partitions(topic, timeout)
        except KafkaException as error:
            if code_of(error) in UNKNOWN_TOPIC:
                return 0
            raise

    def hand_on(self) -> None:
        """Hands on what the client has said. Raises its fatal error as the Python client does."""
        failure = self.failure
        if failure is not None:
            self.forget_failure()
            self._on_failure(KafkaError(failure.code), failure.topic, failure.sequence)
        fatal = None
        for error in _errors_of(self):
            if error.code() == KafkaError._FATAL:
                fatal = self.fatal_error()
            else:
                self._on_error(error)
        if fatal is not None:
            raise fatal


class NativeConsumer(Consumer):
    """The core's consumer, with the calls of PythonConsumer."""

    def __init__(self, library: Library, conf: Mapping[str, Any], on_commit: OnCommit) -> None:
        self._on_error: Callable[[KafkaError], None] = conf["error_cb"]
        self._on_commit = on_commit
        self._told_commit_error = 0
        super().__init__(library, _texts_of(conf))

    def consume(self, count: int, seconds: float) -> tuple[Messages, list[tuple[int, Event]]]:
        found = self.fetch(count, seconds)
        self._hand_on()
        return found, [
            (before, Event(KafkaError(event.code, event.reason), event.topic, event.partition, event.offset))
            for before, event in found.events
        ]

    def _hand_on(self) -> None:
        """Hands on what the client has said meanwhile."""
        for error in _errors_of(self):
            self._on_error(error)
        code = self.commit_error
        if code != self._told_commit_error:
            self._told_commit_error = code
            self._on_commit(KafkaError(code) if code else None)

    def close(self) -> None:
        with suppress(KafkaException, ValueError):
            self.assign(())  # a message that is kept keeps the client too, which must not fetch on
        super().close()

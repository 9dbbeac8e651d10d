"""A transactional producer: the core's own, which takes whole batches of a journal, or the Python client's."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from jlog._core.kafka.client import ClientError
from jlog._core.kafka.producer import Producer as CoreProducer
from jlog._core.kafka.producer import Sending
from jlog.flow.records import Headers
from jlog.kafka.client.library import library
from jlog.kafka.client.settings import Settings

SWITCH = "JLOG_NATIVE_KAFKA"  # 1: batches of a journal go to librdkafka without a Python object for each record
_OF_PYTHON = frozenset(("error_cb", "logger", "on_delivery"))  # settings of the Python client, not of librdkafka
_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)  # of syslog


def is_native(settings: Settings) -> bool:
    """Says whether the core's producer can be used: it needs librdkafka's calls, and settings that are text."""
    plain = all(isinstance(value, (str, int, float)) for value in settings.given.values())
    mechanism = settings.given.get("sasl.mechanisms", settings.given.get("sasl.mechanism", ""))
    return os.environ.get(SWITCH) == "1" and plain and mechanism != "OAUTHBEARER" and library() is not None


def make_producer(settings: Settings, conf: Mapping[str, Any], on_delivery: Callable[..., None]) -> Producer | NativeProducer:
    """Makes a producer with these settings. Both kinds have the same calls, and raise KafkaException."""
    if is_native(settings):
        return NativeProducer(conf, on_delivery)
    return Producer({**conf, "on_delivery": on_delivery})


class Undelivered:
    """A message that the brokers did not take. sequence: of its record, if that alone is why; None: not known."""

    def __init__(self, topic: str, sequence: int | None) -> None:
        self._topic = topic
        self.sequence = sequence

    def topic(self) -> str:
        return self._topic


class NativeProducer:
    """The core's producer, with the calls of the Python client's that a transaction needs."""

    def __init__(self, conf: Mapping[str, Any], on_delivery: Callable[[KafkaError, Undelivered], None]) -> None:
        found = library()
        assert found is not None, "is_native() comes first"
        self._note: Callable[[KafkaError], None] = conf["error_cb"]
        self._logger: logging.Logger = conf["logger"]
        self._on_delivery = on_delivery
        with _as_kafka():
            self._core = CoreProducer(found, {name: str(value) for name, value in conf.items() if name not in _OF_PYTHON})

    def sending(self, topic: str, **rules: Any) -> Sending:
        """Returns a way for batches to this topic."""
        return Sending(self._core, topic, **rules)

    def error_of(self, code: int) -> KafkaException:
        return KafkaException(KafkaError(code))

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
        with _as_kafka():
            self._core.produce(topic, value, key, partition, timestamp, headers)

    def init_transactions(self, timeout: float) -> None:
        with self._heard():
            self._core.init_transactions(timeout)

    def begin_transaction(self) -> None:
        with self._heard():
            self._core.begin_transaction()

    def commit_transaction(self, timeout: float) -> None:
        with self._heard():
            self._core.commit_transaction(timeout)

    def abort_transaction(self, timeout: float) -> None:
        with self._heard():
            self._core.abort_transaction(timeout)

    def flush(self, timeout: float) -> int:
        with self._heard():
            return self._core.flush(timeout)

    def poll(self, timeout: float) -> int:
        with self._heard():
            return self._core.poll(timeout)

    def purge(self) -> None:
        self._core.purge()

    def close(self) -> None:
        self._core.close()

    def count_partitions(self, topic: str, timeout: float) -> int:
        with self._heard():
            return self._core.partitions(topic, timeout)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Tells afterwards what the client has said meanwhile. Raises its fatal error, as the Python client does."""
        try:
            with _as_kafka():
                yield
        finally:
            self._tell()

    def _tell(self) -> None:
        failure = self._core.failure
        if failure is not None:
            self._core.forget_failure()
            self._on_delivery(KafkaError(failure.code), Undelivered(failure.topic, failure.sequence))
        fatal = None
        for note in self._core.take_notes():
            if not note.code:
                self._logger.log(_LEVELS[min(max(note.level, 0), 7)], "%s %s", note.facility, note.text)
            elif note.code == KafkaError._FATAL:
                fatal = self._core.fatal_error()
            else:
                self._note(KafkaError(note.code, note.text))
        if fatal is not None:
            raise _kafka(fatal)


def _kafka(error: ClientError) -> KafkaException:
    return KafkaException(KafkaError(error.code, error.text, error.fatal, error.retriable, error.abortable))


@contextmanager
def _as_kafka() -> Iterator[None]:
    """Turns errors of the core into those of the Python client, which all handling of errors knows."""
    try:
        yield
    except ClientError as error:
        raise _kafka(error) from None


AnyProducer = Producer | NativeProducer

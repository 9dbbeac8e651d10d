"""A transactional producer: the core's own, which takes whole batches of a journal, or the Python client's where that cannot be
had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from jlog._core.kafka.client import ClientError
from jlog._core.kafka.producer import Producer as CoreProducer
from jlog._core.kafka.producer import Sending
from jlog.flow.records import Headers
from jlog.kafka.client.core import as_kafka, errors_told, is_text, raised_as_kafka, texts_of
from jlog.kafka.client.errors import UNKNOWN_TOPIC, code_of
from jlog.kafka.client.library import library
from jlog.kafka.client.settings import Settings
from jlog.kafka.protocol.delivery import Undelivered
from jlog.kafka.protocol.producer import BatchProducer
from jlog.kafka.protocol.settings import known_to_producer

HELLO_SECONDS = 1.0


def is_native(settings: Settings) -> bool:
    """Says whether the core's producer can be used: it needs librdkafka's calls, and settings that are text."""
    mechanism = settings.given.get("sasl.mechanisms", settings.given.get("sasl.mechanism", ""))
    return is_text(settings.given) and mechanism != "OAUTHBEARER" and library() is not None


def make_producer(settings: Settings, conf: Mapping[str, Any], on_delivery: Callable[..., None]) -> AnyProducer:
    """Makes a producer with these settings. All kinds have the same calls, and raise KafkaException."""
    if known_to_producer(settings.given):
        made = BatchProducer(conf, on_delivery)
        if made.is_understood(HELLO_SECONDS):
            return made
        made.close()
    if is_native(settings):
        return NativeProducer(conf, on_delivery)
    return Producer({**conf, "on_delivery": on_delivery})


class NativeProducer:
    """The core's producer, with the calls of the Python client's that a transaction needs."""

    def __init__(self, conf: Mapping[str, Any], on_delivery: Callable[[KafkaError, Undelivered], None]) -> None:
        found = library()
        assert found is not None, "is_native() comes first"
        self._note: Callable[[KafkaError], None] = conf["error_cb"]
        self._logger = conf["logger"]
        self._on_delivery = on_delivery
        with raised_as_kafka():
            self._core = CoreProducer(found, texts_of(conf))

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
        try:  # a context manager would take longer than the call
            self._core.produce(topic, value, key, partition, timestamp, headers)
        except ClientError as error:
            raise as_kafka(error) from None

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
        """Returns the number of the topic's partitions as the client knows it from then on; 0 where the brokers know no such
        topic."""
        try:
            with self._heard():
                return self._core.partitions(topic, timeout)
        except KafkaException as error:
            if code_of(error) in UNKNOWN_TOPIC:
                return 0
            raise

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Tells afterwards what the client has said meanwhile. Raises its fatal error, as the Python client does."""
        try:
            with raised_as_kafka():
                yield
        finally:
            self._tell()

    def _tell(self) -> None:
        failure = self._core.failure
        if failure is not None:
            self._core.forget_failure()
            self._on_delivery(KafkaError(failure.code), Undelivered((failure.topic, failure.partition), failure.sequence))
        fatal = None
        for error in errors_told(self._core, self._logger):
            if error.code() == KafkaError._FATAL:
                fatal = self._core.fatal_error()
            else:
                self._note(error)
        if fatal is not None:
            raise as_kafka(fatal)


BatchwiseProducer: TypeAlias = BatchProducer | NativeProducer  # those that take whole batches of a journal
AnyProducer: TypeAlias = Producer | BatchwiseProducer

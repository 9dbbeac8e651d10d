"""Opens the producer of a mirror and the consumer of a capture. This is the one place that chooses between librdkafka's C calls
and the Python client."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import confluent_kafka

from jlog._core.kafka.client import Library, LibraryUnavailable
from jlog.kafka.client.native import NativeConsumer, NativeProducer, are_text
from jlog.kafka.client.python import PythonConsumer, PythonProducer
from jlog.kafka.client.records import OnCommit, OnFailure
from jlog.kafka.client.settings import LOGGER, Settings

AnyProducer: TypeAlias = NativeProducer | PythonProducer
AnyConsumer: TypeAlias = NativeConsumer | PythonConsumer


def open_producer(conf: Mapping[str, Any], on_failure: OnFailure) -> AnyProducer:
    """Returns a transactional producer. Both kinds raise KafkaException. on_failure: is called for a failed delivery."""
    calls = calls_for(conf)
    return PythonProducer(conf, on_failure) if calls is None else NativeProducer(calls, conf, on_failure)


def open_consumer(settings: Settings, group: str | None, on_commit: OnCommit) -> AnyConsumer:
    """Returns a consumer, which joins no group.

    group: the one for which commit() stores offsets. on_commit: is called by consume() with the result of a commit.
    """
    conf = settings.for_consumer() | ({} if group is None else {"group.id": group})
    calls = calls_for(conf)
    return PythonConsumer(conf, on_commit) if calls is None else NativeConsumer(calls, conf, on_commit)


def road(settings: Settings) -> str:
    """Says how a flow with these settings reaches its brokers."""
    conf = settings.for_admin()
    protocol = str(conf.get("security.protocol", "plaintext")).upper()
    mechanism = conf.get("sasl.mechanisms", conf.get("sasl.mechanism"))
    login = f" with {mechanism}" if protocol.startswith("SASL") and mechanism else ""
    how = "" if calls_for(conf) is not None else ", with a Python object for each message"
    return f"{protocol}{login}, librdkafka {confluent_kafka.libversion()[0]}{how}"


def calls_for(conf: Mapping[str, Any]) -> Library | None:
    """Returns librdkafka's calls; None where the Python client has to do it: a setting is a function, or a token has to be
    renewed during a call, or the calls cannot be had."""
    mechanism = conf.get("sasl.mechanisms", conf.get("sasl.mechanism"))
    return library() if are_text(conf) and mechanism != "OAUTHBEARER" else None


@cache
def library() -> Library | None:
    """Returns the calls of the library that confluent_kafka is linked with, wherever it is; None, and one line in the log,
    where they cannot be had."""
    try:
        return Library(confluent_kafka.cimpl.__file__)
    except LibraryUnavailable as error:
        LOGGER.warning("mirrors and captures use confluent_kafka for each message, which is slower: %s", error)
        return None

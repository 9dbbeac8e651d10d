"""What the core's producer and consumer share: their settings, their errors, and what they tell beside their calls."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jlog._core.kafka.client import Client, ClientError

_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG]  # of syslog
_OF_PYTHON = frozenset(("error_cb", "logger", "on_delivery"))  # settings of the Python client, not of librdkafka


def is_text(settings: Mapping[str, Any]) -> bool:
    """Says whether librdkafka can be told all of these settings as text. A function cannot."""
    return all(isinstance(value, (str, int, float)) for name, value in settings.items() if name not in _OF_PYTHON)


def texts_of(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
        if name not in _OF_PYTHON
    }


def as_kafka(error: ClientError) -> KafkaException:
    return KafkaException(KafkaError(error.code, error.text, error.fatal, error.retriable, error.abortable))


@contextmanager
def raised_as_kafka() -> Iterator[None]:
    """Turns errors of the core into those of the Python client, which all handling of errors knows."""
    try:
        yield
    except ClientError as error:
        raise as_kafka(error) from None


def errors_told(client: Client, logger: logging.Logger) -> Iterator[KafkaError]:
    """Logs the lines that the client has told since the last call, and yields the errors."""
    for note in client.take_notes():
        if note.code:
            yield KafkaError(note.code, note.text)
        else:
            logger.log(_LEVELS[min(max(note.level, 0), 7)], "%s: %s", note.facility, note.text)

"""Finds the calls of the librdkafka that the Python client has loaded."""

from __future__ import annotations

from functools import cache

from jlog._core.kafka.client import Library, LibraryUnavailable
from jlog.kafka.client.settings import LOGGER


def loaded_library() -> Library:
    """Returns the calls of the library that confluent_kafka is linked with, wherever it is. Raises LibraryUnavailable."""
    from confluent_kafka import cimpl

    return Library(cimpl.__file__)


@cache
def library() -> Library | None:
    """Returns the calls; None, and one line in the log, where they cannot be had."""
    try:
        return loaded_library()
    except LibraryUnavailable as error:
        LOGGER.warning("mirrors and captures use confluent_kafka for each message, which is slower: %s", error)
        return None

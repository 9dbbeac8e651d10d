"""The settings with which jlog speaks to the brokers itself. With any other, librdkafka does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Those that only say how librdkafka works inside, and those that are honoured. A function beside a name says for which values.
Known = Mapping[str, Any]


def is_plaintext(protocol: str) -> bool:
    return protocol.lower() == "plaintext"


def is_lz4_or_none(codec: str) -> bool:
    return codec in ("lz4", "none")


def is_murmur2(partitioner: str) -> bool:
    return partitioner in ("murmur2", "murmur2_random")


def is_number(value: str) -> bool:
    return value.isdecimal() and len(value) < 10


EVERYWHERE: Known = {
    "client.id": None,
    "prefix": None,
    "security.protocol": is_plaintext,
    "socket.keepalive.enable": None,
    "socket.nagle.disable": None,
    "socket.timeout.ms": None,
}
PRODUCER: Known = {
    "batch.num.messages": None,
    "batch.size": None,
    "compression.codec": is_lz4_or_none,
    "compression.type": is_lz4_or_none,
    "linger.ms": None,  # a transaction is sent at once where it ends
    "message.max.bytes": None,
    "message.timeout.ms": None,
    "partitioner": is_murmur2,
    "queue.buffering.max.ms": None,
    "transaction.timeout.ms": None,
}
CONSUMER: Known = {
    "check.crcs": None,  # they are always checked
    "fetch.max.bytes": is_number,
    "fetch.message.max.bytes": is_number,
    "fetch.wait.max.ms": is_number,
    "max.partition.fetch.bytes": is_number,
}


def known_to_producer(given: Mapping[str, Any]) -> bool:
    """Says whether a producer honours all settings that the user gives, with these values."""
    return are_known(given, PRODUCER)


def known_to_consumer(given: Mapping[str, Any]) -> bool:
    """Says whether a consumer honours all of them, with these values."""
    return are_known(given, CONSUMER)


def are_known(given: Mapping[str, Any], known: Known) -> bool:
    for name, value in given.items():
        if name not in EVERYWHERE and name not in known:
            return False
        accepts = EVERYWHERE.get(name) or known.get(name)
        if accepts is not None and not accepts(str(value)):
            return False
    return True

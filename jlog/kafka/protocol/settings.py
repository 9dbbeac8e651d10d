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


def are_known(given: Mapping[str, Any], known: Known) -> bool:
    """Says whether all settings that the user gives are known, with these values."""
    for name, value in given.items():
        if name not in EVERYWHERE and name not in known:
            return False
        accepts = EVERYWHERE.get(name) or known.get(name)
        if accepts is not None and not accepts(str(value)):
            return False
    return True

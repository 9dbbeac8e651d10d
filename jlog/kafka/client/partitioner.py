"""The partition that the client's partitioners choose for a key."""

from __future__ import annotations

import zlib

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def partition_of_key(key: bytes, partitions: int, partitioner: str) -> int | None:
    """Returns the partition; None where the partitioner chooses it at random."""
    if partitioner == "random" or (partitioner == "consistent_random" and not key):
        return None
    if partitioner.startswith("consistent"):
        return zlib.crc32(key) % partitions
    if partitioner.startswith("fnv1a"):
        return fnv1a(key) % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def fnv1a(data: bytes) -> int:
    """Computes the 32-bit hash of FNV-1a. Sarama takes it as a signed number, and its absolute value."""
    found = _FNV_OFFSET
    for byte in data:
        found = (found ^ byte) * _FNV_PRIME & _MASK
    return found if found < 1 << 31 else (1 << 32) - found


def murmur2(data: bytes) -> int:
    """Computes the 32-bit hash of Kafka's default partitioner."""
    size = len(data)
    found = (_SEED ^ size) & _MASK
    whole = size - size % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        found = (found * _M & _MASK) ^ word
    if size % 4:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15

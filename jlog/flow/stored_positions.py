"""Source positions in a journal's state, which has 64 KiB. A source may have thousands of partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from jlog.flow.ends import SourcePosition

PREFIX = b"jlog.source:"  # of a part with a row of its own, in JSON
GROUP_PREFIX = b"jlog.sources:"  # of a row with the partitions TOPIC/N of one topic, GROUP of them
GROUP = 32
_VERSIONS = (1, 2)  # 2: of a row in which a partition has passed over offsets
_TRANSFORM, _PASSED = 1, 2
_PLAIN = {"offset", "topic_id", "begin", "leader_epoch", "passed", "transform"}


def decode(state: Mapping[bytes, bytes]) -> SourcePosition:
    """Returns the source position that a journal's state has. A partition that has a row of its own and a place in a group's
    row is in the group."""
    found: SourcePosition = {}
    for key, value in state.items():
        if key.startswith(PREFIX):
            found[key[len(PREFIX) :].decode()] = json.loads(value)
    for key, value in state.items():
        if key.startswith(GROUP_PREFIX):
            topic, _, group = key[len(GROUP_PREFIX) :].decode().rpartition("/")
            found |= _decode_group(topic, int(group) * GROUP, value)
    return found


def encode(source_positions: SourcePosition, changed: Iterable[str], state: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
    """Returns the rows to store, where these parts of the source position have changed; None for a row to remove. state: the
    rows that are there."""
    rows: dict[bytes, bytes | None] = {}
    groups = set()
    for part in changed:
        topic, slash, number = part.rpartition("/")
        found = source_positions.get(part)
        is_partition = bool(slash) and number.isdecimal()
        if is_partition:
            groups.add((topic, int(number) // GROUP))
        if not is_partition or not _is_plain(found):
            rows[PREFIX + part.encode()] = None if found is None else json.dumps(found).encode()
        elif PREFIX + part.encode() in state:
            rows[PREFIX + part.encode()] = None  # of an earlier version
    for topic, group in groups:
        numbers = range(group * GROUP, (group + 1) * GROUP)
        known = {number: source_positions.get(f"{topic}/{number}") for number in numbers}
        there = {number: one for number, one in known.items() if one is not None and _is_plain(one)}
        rows[b"%b%b/%d" % (GROUP_PREFIX, topic.encode(), group)] = _encode_group(there, group * GROUP) if there else None
    return rows


def _is_plain(found: Mapping[str, Any] | None) -> bool:
    """Returns whether a group's row has room for all that is known of the part. A part that is removed is in a group."""
    return found is None or (set(found) <= _PLAIN and int(found["offset"]) >= int(found["begin"]))


def _encode_group(found: Mapping[int, Mapping[str, Any]], first: int) -> bytes:
    """Encodes a group: version; number of topic ids, each with its length; then for each partition its number in the group, the
    number of its topic id, flags, and as varints the offset, its distance from the beginning, the leader epoch plus 1, and the
    offsets that were passed over, where there are any."""
    ids = list(dict.fromkeys(str(one["topic_id"]) for one in found.values()))
    row = bytearray([_VERSIONS[any(one.get("passed") for one in found.values())], len(ids)])
    for topic_id in ids:
        row += bytes([len(topic_id)]) + topic_id.encode()
    for number, one in found.items():
        passed = int(one.get("passed", 0))
        flags = (_TRANSFORM if one.get("transform") else 0) | (_PASSED if passed else 0)
        row += bytes([number - first, ids.index(str(one["topic_id"])), flags])
        offset, begin = int(one["offset"]), int(one["begin"])
        for value in (offset, offset - begin, int(one.get("leader_epoch", -1)) + 1, *([passed] if passed else [])):
            row += _varint(value)
    return bytes(row)


def _decode_group(topic: str, first: int, row: bytes) -> SourcePosition:
    if row[0] not in _VERSIONS:
        raise ValueError(f"the positions of topic {topic} have version {row[0]}: upgrade pyjlog")
    at, ids = 2, []
    for _ in range(row[1]):
        ids.append(row[at + 1 : at + 1 + row[at]].decode())
        at += 1 + row[at]
    found: SourcePosition = {}
    while at < len(row):
        number, topic_id, flags = row[at : at + 3]
        offset, at = _read_varint(row, at + 3)
        distance, at = _read_varint(row, at)
        epoch, at = _read_varint(row, at)
        one: dict[str, Any] = {"offset": offset, "topic_id": ids[topic_id], "begin": offset - distance}
        if flags & _TRANSFORM:
            one["transform"] = True
        if epoch:
            one["leader_epoch"] = epoch - 1
        if flags & _PASSED:
            one["passed"], at = _read_varint(row, at)
        found[f"{topic}/{first + number}"] = one
    return found


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(row: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while row[at] & 0x80:
        value |= (row[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | row[at] << shift, at + 1

"""The lag of offsets, counted to the ends of topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jlog.flow.ends import Lag, SourcePosition
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import told
from jlog.kafka.client.partitions import Meaning, meaning_of, reading
from jlog.kafka.client.records import time_us_of

SAMPLE = 100  # messages of each partition, to estimate the size of a record
SAMPLE_SECONDS = 2.0


def committed_lag(cluster: Cluster, read: Mapping[tuple[str, int], int], stored: SourcePosition) -> Lag:
    """Returns the lag of a stored source position. read: the offsets that were read up to, which count for partitions that the
    source position does not have yet."""
    offsets = dict(read)
    for name, partition in read:
        source_position = stored.get(f"{name}/{partition}")
        if source_position is not None:
            offsets[name, partition] = int(source_position["offset"])
    return topics_lag(cluster, offsets)


def topics_lag(cluster: Cluster, offsets: Mapping[tuple[str, int], int]) -> Lag:
    """Returns the lag of `offsets`, those of the next record by topic and partition. It counts offsets, so that the end of a
    transaction counts as a record, and leaves out partitions without a leader. It estimates bytes from the next records."""
    topics = cluster.topics(sorted({name for name, _ in offsets}))
    offsets = {
        place: offset for place, offset in offsets.items() if place[0] in topics and place[1] not in topics[place[0]].leaderless
    }
    first, end = cluster.first_of(offsets), cluster.ends_of(offsets)
    lags = {place: end[place] - max(offset, first[place]) for place, offset in offsets.items()}
    late = {place: count for place, count in lags.items() if count > 0}
    parts = {f"{name}/{partition}": max(0, count) for (name, partition), count in sorted(lags.items())}
    if not late:
        return Lag(0, 0, 0.0, parts)
    sample, is_all = _sample(cluster, {place: offsets[place] for place in late})
    records = sum(late.values())
    if not sample:  # there are only ends of transactions, which are never handed out, or the brokers are slow
        return Lag(0, 0, 0.0, dict.fromkeys(parts, 0)) if is_all else Lag(records, parts=parts)
    size = sum(map(len, sample)) / len(sample)
    oldest = min((time_us for message in sample if (time_us := time_us_of(message))), default=None)
    return Lag(records, int(size * records), None if oldest is None else max(0.0, time.time() - oldest / 1e6), parts)


def _sample(cluster: Cluster, offsets: Mapping[tuple[str, int], int]) -> tuple[list[Any], bool]:
    """Returns a few of the next records of each partition, and whether they reach all ends."""
    found: list[Any] = []
    ended = set()
    places = [(*place, offset) for place, offset in offsets.items()]
    with (
        told("looking at the next records", cluster.settings),
        reading(cluster.settings, places, auto_offset_reset="earliest") as fetch,
    ):
        left = dict.fromkeys(offsets, SAMPLE)
        until = time.monotonic() + SAMPLE_SECONDS
        while left and time.monotonic() < until:
            for message in fetch(SAMPLE, cluster.stop.slice()):
                place = message.topic(), message.partition()
                if message.error() is not None:
                    left.pop(place, None)
                    if meaning_of(message.error()) is Meaning.END:
                        ended.add(place)
                elif place in left:
                    found.append(message)
                    left[place] -= 1
                    if not left[place]:
                        del left[place]
    return found, len(ended) == len(offsets)

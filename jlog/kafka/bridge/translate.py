"""Translates subscribers of a journal to groups of the topic beside it, and back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from jlog.errors import JournalError, PositionLost, SubscriberNotFound
from jlog.kafka.bridge.captured import CapturedBridge
from jlog.kafka.bridge.found import Bridge, Found
from jlog.kafka.bridge.mirrored import MirroredBridge
from jlog.kafka.client.errors import at_once
from jlog.kafka.client.settings import Config
from jlog.kafka.mirror.status import TO_KAFKA, Pair, find_pair
from jlog.kafka.topic.groups import commit, consumer_of, subscribers_of
from jlog.kafka.topic.partition import Partition

To = Literal["groups", "subscribers"]


@dataclass(frozen=True)
class Translation:
    """A reader of the journal or the topic, and where it goes on in the other one. `offsets` has those of each partition.

    exact: the record at the position was found itself, and not by its time.
    again: so many records, at most, are read a second time.
    missing: so many records, at most, that were not read are no longer on the other side.
    """

    name: str
    sequence: int
    offsets: dict[int, int]
    exact: bool
    again: int
    missing: int

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "offsets": {str(partition): offset for partition, offset in self.offsets.items()}}


@at_once()
def translate(
    journal: str | os.PathLike[str],
    url: str,
    names: Sequence[str],
    *,
    to: To,
    skip_missing: bool = False,
    dry_run: bool = False,
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
) -> list[Translation]:
    """Lets readers move between a journal and the topic that it is mirrored to, or that it captures: none of them misses a
    record, and some may see a few again.

    names: of subscribers of the journal, or of consumer groups of the topic. They have the same names on the other side, where
        a position that is there already is replaced.
    to: "groups" commits the offsets of the groups; "subscribers" sets the subscribers of the journal.
    skip_missing: goes on behind records that are no longer on the other side.
    dry_run: only says what would be done.

    Stop the readers before. Raises SubscriberNotFound for a name without a position, SubscriberBusy where somebody reads under
    it on the other side, PositionLost where records are missing, JournalError where nothing was moved between the two, or
    where a transform changes the records.

        jlog.kafka.translate("/var/lib/orders", "kafka://localhost:9092/orders", ["billing"], to="groups")
    """
    if to not in get_args(To):
        raise ValueError(f"to is one of {', '.join(get_args(To))}, not {to!r}")
    pair = find_pair(journal, url, config, config_file)
    if any(source_position.get("transform") for source_position in pair.source_positions.values()):
        raise JournalError(f"{pair.journal.path} and {pair.url}: a transform lies between, so that positions mean others there")
    topic = pair.cluster.topic(pair.url.topic)
    partitions = [
        Partition(f"{str(pair.url).partition('?')[0]}?partition={number}", config, config_file)
        for number in range(topic.partitions)
    ]
    bridge: Bridge = MirroredBridge(pair) if pair.direction == TO_KAFKA else CapturedBridge(pair)
    try:
        found = _to_groups(pair, bridge, names) if to == "groups" else _to_subscribers(bridge, partitions, names)
    finally:
        bridge.close()
    for one in found:
        if one.missing and not skip_missing:
            where = pair.url if to == "groups" else pair.journal.path
            raise PositionLost(
                f"{where}: up to {one.missing} records that {one.name!r} has not read are not there (any more): it stays where "
                f"it is; --skip-missing goes on behind them",
                one.sequence,
            )
    if not dry_run:
        for one in found:
            _commit(partitions, one) if to == "groups" else _set(pair, one)
    return found


def _to_groups(pair: Pair, bridge: Bridge, names: Sequence[str]) -> list[Translation]:
    subscribers = pair.journal.subscribers()
    for name in names:
        if name not in subscribers:
            raise SubscriberNotFound(
                f"{pair.journal.path} has no subscriber {name!r}; there: {', '.join(subscribers) or 'none'}"
            )
    return [_translation(name, bridge.offsets_at(subscribers[name].sequence)) for name in names]


def _to_subscribers(bridge: Bridge, partitions: Sequence[Partition], names: Sequence[str]) -> list[Translation]:
    groups: dict[str, dict[int, int]] = {}
    for partition in partitions:
        for name, offset in subscribers_of(partition).items():
            groups.setdefault(name, {})[partition.number] = offset
    for name in names:
        if name not in groups:
            there = ", ".join(sorted(groups)) or "none"
            raise SubscriberNotFound(f"{partitions[0].name}: no group {name!r} has committed an offset; there: {there}")
    return [_translation(name, bridge.sequence_at(groups[name])) for name in names]


def _translation(name: str, found: Found) -> Translation:
    offsets = dict(sorted(found.offsets.items()))
    return Translation(name, found.sequence, offsets, found.exact, found.again, found.missing)


def _commit(partitions: Sequence[Partition], found: Translation) -> None:
    consumer = consumer_of(partitions[0], found.name)
    try:
        for partition in partitions:
            commit(consumer, partition, found.name, found.offsets[partition.number])
    finally:
        consumer.close()


def _set(pair: Pair, found: Translation) -> None:
    if found.name in pair.journal.subscribers():
        pair.journal.set_subscriber(found.name, found.sequence)
    else:
        pair.journal.add_subscriber(found.name, found.sequence)

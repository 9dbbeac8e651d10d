"""Finds the journal whose mirror sends what a standby needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jlog.errors import JournalError
from jlog.flow.journals import PROMOTED, about_part
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import not_allowed
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.table import read_table
from jlog.kafka.ends.topic_sink import SINK


@dataclass(frozen=True)
class MirroredJournal:
    """A journal whose mirror sends what a standby needs."""

    uuid: str
    table: str
    about: dict[str, Any]  # its end, options, subscribers and checkpoints
    sequence: int  # of the next record that the mirror sends
    begins: dict[int, int]  # offset of the first message of each partition, where it is not 0


def find_mirrored(settings: Settings, topic: str, of: str | None, stop: Stop) -> MirroredJournal:
    """Finds the journal that is mirrored to the topic. Raises JournalError where there is none, or several."""
    cluster = Cluster(settings, stop)
    cluster.check(topic)
    cluster.topic(topic)
    if of is None:
        begin = settings.names.table(topic, "")
        # A dot after it is part of the name of another topic, as in orders.v2: a uuid has none.
        tables = [name for name in cluster.names() if name.startswith(begin) and "." not in name[len(begin) :]]
    else:
        tables = [settings.names.table(topic, of)]
    found = []
    for table in tables:
        rows = read_table(cluster, table) if cluster.find(table) is not None else {}
        for key in rows:
            uuid = key.removesuffix(about_part(""))
            if about_part(uuid) == key and (of is not None or PROMOTED not in rows):
                position = rows[uuid]
                # A mirror that began later in the journal goes on where another one has ended, after a takeover.
                begins = rows[SINK]["begin"] if int(position["begin"]) == 0 else {}
                offsets = {int(partition): int(offset) for partition, offset in begins.items()}
                found.append(MirroredJournal(uuid, table, rows[key], int(position["sequence"]), offsets))
    where = f"kafka://{settings.servers}/{topic}"
    if not found:
        needs = f"Read on topic {settings.names.table(topic, of or '*')}"
        raise JournalError(
            f"{where}: no mirror sends to it what a standby needs; run `jlogtool mirror to-kafka --standby`. If one runs "
            f"already, {not_allowed(needs)}"
        )
    if len(found) > 1:
        raise JournalError(f"{where} was mirrored to by {', '.join(one.uuid for one in found)}: choose one with --of")
    return found[0]

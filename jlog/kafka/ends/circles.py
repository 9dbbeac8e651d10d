"""Refuses a mirror and a capture between the same journal and topic: each would move what the other has moved, for ever."""

from __future__ import annotations

import os
from collections.abc import Sequence

from jlog.errors import JournalError
from jlog.flow.journals import read_source_positions as positions_in_journal
from jlog.journal import Journal
from jlog.kafka.client.cluster import Cluster, Topic
from jlog.kafka.ends.standby_source import MARK
from jlog.kafka.ends.topic_sink import SINK, read_source_positions


def check_not_captured(journal: Journal, topic: Topic, where: str) -> None:
    """Raises JournalError where the journal has captured this very topic."""
    stored = positions_in_journal(journal.path)
    if MARK in stored:
        return  # a standby that takes over goes on in the topic that it was read from
    captured = [part for part in stored if part.rpartition("/")[0] == topic.name]
    if any(stored[part].get("topic_id") == topic.id for part in captured):
        raise JournalError(
            f"{journal.path} has captured {where}: a mirror back would bring each record again, for ever. Mirror to another "
            f"topic; or capture into a journal of its own"
        )


def check_not_mirrored(cluster: Cluster, topics: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Raises JournalError where the journal is mirrored to one of these very topics. The journal need not exist."""
    if not os.path.exists(os.path.join(path, "journal.meta")):
        return
    journal = Journal(path)
    tables = {cluster.settings.names.table(name, journal.uuid): name for name in topics}
    there = set(cluster.names())  # a user who may only capture may ask for no table by its name
    mirrored = cluster.topics([table for table in tables if table in there])
    found = cluster.topics([tables[table] for table in mirrored])
    for table in mirrored:
        sink = read_source_positions(cluster, table).get(SINK)
        topic = found.get(tables[table])
        if sink is not None and topic is not None and sink["topic_id"] == topic.id:
            raise JournalError(
                f"{journal.path} is mirrored to kafka://{cluster.settings.servers}/{topic.name}: a capture of it would bring "
                f"each record again, for ever. Capture into a journal of its own"
            )

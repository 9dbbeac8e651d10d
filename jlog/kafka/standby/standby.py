"""Keeps a standby of a mirrored journal, and makes it the journal that is written to."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from jlog.errors import JournalError
from jlog.flow.engine import Flow, FlowStats, nothing
from jlog.flow.errors import Retry
from jlog.flow.journals import PROMOTED, JournalSink, about_part
from jlog.flow.stop import Stop
from jlog.journal import Journal
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import at_once
from jlog.kafka.client.names import positions_topic
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.table import read_table
from jlog.kafka.client.url import parse
from jlog.kafka.mirror.mirror import Mirror
from jlog.kafka.mirror.sink import TopicSink
from jlog.kafka.standby.sink import Positions, StandbySink, check_is_standby
from jlog.kafka.standby.source import MARK, StandbySource
from jlog.system.filesystem import journal_path

Found = TypeVar("Found")
RETRY_SECONDS = 30.0  # in which a promotion tries again


class Standby(Flow):
    """Keeps a standby of the journal that a Mirror with standby=True sends to a topic, usually on another host.

    The standby has the same records under the same sequences, with the same gaps, and its subscribers and checkpoints follow
    those of the mirrored journal within seconds, as far as the records are there. Readers may read it. Nothing else writes to
    it. Like the topic it is behind by what is not mirrored yet. promote() makes it the journal that is written to.

    url: the topic, which has the messages of that mirror alone.
    journal: a new directory, or the standby of an earlier run.
    of: uuid of the mirrored journal, where the topic was mirrored to by several ones in turn.

    Raises TopicChanged or PositionLost where it cannot have every record; JournalLocked while another process writes to it;
    JournalError where no mirror sends what a standby needs, or the journal is no standby.

        jlog.kafka.Mirror("/var/lib/orders", "kafka://localhost:9092/orders", standby=True).run()     # on one host
        jlog.kafka.Standby("kafka://localhost:9092/orders", "/var/lib/orders").run()                  # on the other
    """

    def __init__(
        self,
        url: str,
        journal: str | os.PathLike[str],
        *,
        of: str | None = None,
        until_end: bool = False,
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
        on_event: Callable[[str], None] = nothing,
        on_commit: Callable[[int], None] = nothing,
        stop: Stop | None = None,
    ) -> None:
        at = parse(url)
        stop = stop or Stop()
        settings = Settings(at, config, config_file)
        with at_once():
            mirrored = find_mirrored(settings, at.topic, of, stop)
        sink = StandbySink(journal, mirrored.uuid, mirrored.about["options"])
        try:
            self.positions = Positions(sink.path, on_event)
            source = StandbySource(
                settings,
                at.topic,
                mirrored.table,
                mirrored.uuid,
                stop=stop,
                next_sequence=lambda: sink.next_sequence,
                pass_over=sink.pass_over,
                tell_about=self.positions.follow,
            )
            super().__init__(source, sink, stop=stop, until_end=until_end, on_event=on_event, on_commit=on_commit)
        except BaseException:
            sink.close()
            raise
        self._topic = source

    def run(self) -> FlowStats:
        stats = super().run()
        self.positions.follow(self._topic.about, at_once=True)
        return stats


@dataclass(frozen=True)
class Mirrored:
    """A journal whose mirror sends what a standby needs."""

    uuid: str
    table: str
    about: dict[str, Any]  # its end, options, subscribers and checkpoints
    sequence: int  # of the next record that the mirror sends


def find_mirrored(settings: Settings, topic: str, of: str | None, stop: Stop) -> Mirrored:
    """Finds the journal that is mirrored to the topic. Raises JournalError where there is none, or several."""
    cluster = Cluster(settings, stop)
    cluster.check()
    cluster.topic(topic)
    prefix = positions_topic(topic, "")
    tables = [name for name in cluster.names() if name.startswith(prefix)] if of is None else [positions_topic(topic, of)]
    found = []
    for table in tables:
        rows = read_table(settings, table, stop) if cluster.find(table) is not None else {}
        for key in rows:
            uuid = key.decode().removesuffix(about_part(""))
            if about_part(uuid).encode() == key and (of is not None or PROMOTED.encode() not in rows):
                about, position = json.loads(rows[key]), json.loads(rows[uuid.encode()])
                found.append(Mirrored(uuid, table, about, int(position["sequence"])))
    where = f"kafka://{settings.servers}/{topic}"
    if not found:
        raise JournalError(f"{where}: no mirror sends there what a standby needs; run `jlogtool mirror to-kafka --standby`")
    if len(found) > 1:
        raise JournalError(f"{where} was mirrored to by {', '.join(one.uuid for one in found)}: choose one with --of")
    return found[0]


@dataclass(frozen=True)
class Promotion:
    """The result of promote(). `sequence` is the first one that the journal gives out itself. `not_mirrored` counts the records
    that the other journal is known to have had beyond that: at least so many are in that journal alone."""

    journal: str
    sequence: int
    not_mirrored: int


@at_once()
def promote(
    url: str,
    journal: str | os.PathLike[str],
    *,
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
    on_event: Callable[[str], None] = nothing,
) -> Promotion:
    """Makes a standby the journal that is written to. The Standby that keeps it has ended.

    It fences the mirror of the other journal first: what that one has not committed to the topic is void, and it ends now, or
    as soon as it comes back. Then the standby reads every record that is in the topic, and the subscribers and checkpoints
    follow for the last time. A mirror of this journal to the same topic goes on there. If this process is killed, promote()
    again.

    Stop the writers of the other journal before, if they can be reached: this call cannot, and what they append from then on is
    in that journal alone.
    """
    at = parse(url)
    path = journal_path(journal)
    mark = check_is_standby(path)
    settings = Settings(at, config, config_file)
    options: dict[str, Any] = {"config": config, "config_file": config_file, "on_event": on_event}
    stop = Stop()
    fence = TopicSink(settings, at.topic, mark["uuid"], stop=stop, create=False)
    try:
        stored = _retried(fence.open)
        standby = Standby(url, path, of=mark["uuid"], until_end=True, **options)
        standby.run()
        about = stored[about_part(mark["uuid"])]
        sent = int(stored[mark["uuid"]]["sequence"])
        here = Journal(path).next_sequence
        if here < sent:  # the mirror has left out the last records, which the topic refused
            from jlog.care.numbering import continue_at

            continue_at(path, sent)
        sequence = max(here, sent)
        promoted = {"sequence": sequence, "journal": path, "host": socket.gethostname()}
        _retried(lambda: _note(fence, promoted))
    finally:
        fence.close()
    Mirror(path, url, standby=True, **options).set_position("end")
    _forget_mark(path)
    return Promotion(path, sequence, max(0, int(about["end"]) - sequence))


def _note(fence: TopicSink, promoted: dict[str, Any]) -> None:
    fence.open()
    fence.prepare({PROMOTED: promoted})
    fence.commit()


def _retried(call: Callable[[], Found]) -> Found:
    """Tries again after errors that may pass: a mirror that was just starting may have fenced this process, before it sees that
    it has come too late."""
    until = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return call()
        except Retry:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _forget_mark(path: str) -> None:
    sink = JournalSink(path, create=False)
    try:
        stored = sink.open()
        sink.prepare(dict.fromkeys(part for part in stored if part == MARK or "/" in part))
        sink.commit()
    finally:
        sink.close()

"""Keeps a standby of a mirrored journal, and promotes it to the journal that is written to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jlog.errors import JournalError
from jlog.flow.ends import Retry
from jlog.flow.engine import Flow
from jlog.flow.journals import PROMOTED, JournalSink, about_part
from jlog.flow.options import FlowOptions, nothing
from jlog.flow.stats import FlowStats
from jlog.flow.stop import Stop
from jlog.journal import Journal
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import Fenced
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.table import read_table
from jlog.kafka.client.url import parse
from jlog.kafka.ends.mirrored_journal import find_mirrored
from jlog.kafka.ends.standby_sink import Positions, StandbySink, check_is_standby
from jlog.kafka.ends.standby_source import MARK, StandbySource
from jlog.kafka.ends.topic_sink import TopicSink
from jlog.kafka.mirrors import Mirror
from jlog.system.filesystem import journal_path

RETRY_SECONDS = 30.0  # in which a promotion tries again


class Standby(Flow):
    """Keeps a standby of the journal that a Mirror with standby=True sends to a topic, usually on another host.

    The standby has the same records under the same sequences, with the same gaps, and its subscribers and checkpoints follow
    those of the mirrored journal within seconds, as far as the records are there. Readers may read it. Nothing else writes to
    it. Like the topic it lags behind by what is not mirrored yet. promote() makes it the journal that is written to.

    url: the topic, which has the messages of that mirror alone.
    journal: a new directory, or the standby of an earlier run.
    of: uuid of the mirrored journal, where the topic was mirrored to by several ones in turn.
    options: see FlowOptions, but for those that change a record, leave one out or slow it down. With skip_missing=True the
        standby begins at the first sequence from which the topic has every record, where retention has removed some.

    Raises TopicChanged or PositionLost where it cannot have every record; JournalLocked while another process writes to it;
    JournalError where no mirror sends what a standby needs, or the journal is not a standby.

        jlog.kafka.Mirror("/var/lib/orders", "kafka://localhost:9092/orders", standby=True).run()     # on one host
        jlog.kafka.Standby("kafka://localhost:9092/orders", "/var/lib/orders").run()                  # on the other
    """

    def __init__(self, url: str, journal: str | os.PathLike[str], *, of: str | None = None, **options: Any) -> None:
        wrong = sorted({"function", "refused", "dead_letter", "rate"} & options.keys())
        if wrong:
            raise TypeError(f"a standby has every record as it is: {wrong[0]} is not an option of it")
        given = FlowOptions.only(options)
        at = parse(url)
        settings = Settings(at, given.config, given.config_file)
        mirrored = find_mirrored(settings, at.topic, of, given.stop)

        def open_sink(source: StandbySource) -> StandbySink:
            sink = StandbySink(journal, mirrored.uuid, mirrored.about["options"])
            self.positions = Positions(sink.where, given.on_event)
            source.feed(lambda: sink.next_sequence, sink.pass_over, self.positions.follow)
            return sink

        self._topic = StandbySource(
            settings, at.topic, mirrored, stop=given.stop, skip_missing=given.skip_missing, on_event=given.on_event
        )
        super().__init__(given, lambda: self._topic, open_sink)

    def run(self) -> FlowStats:
        stats = super().run()
        self.positions.follow(self._topic.about, at_once=True)
        return stats


@dataclass(frozen=True)
class Promotion:
    """The result of promote(). `sequence` is the first one that the journal gives out itself. `not_mirrored` counts the records
    that the other journal is known to have had beyond that: at least so many are in that journal alone."""

    journal: str
    sequence: int
    not_mirrored: int


def promote(
    url: str,
    journal: str | os.PathLike[str],
    *,
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
    on_event: Callable[[str], None] = nothing,
) -> Promotion:
    """Makes a standby the journal that is written to. The Standby that keeps it has ended.

    The standby reads what the topic has. Then this fences the mirror of the other journal: what that one has not committed to
    the topic is void, and it ends now, or as soon as it comes back. Then the standby reads every record that is left, and the
    subscribers and checkpoints follow for the last time. A mirror of this journal to the same topic goes on there. If this
    process is killed, promote() again.

    Stop the writers of the other journal before, if they can be reached: this call cannot, and what they append from then on is
    in that journal alone.
    """
    at = parse(url)
    path = journal_path(journal)
    mark = check_is_standby(path)
    settings = Settings(at, config, config_file)
    options: dict[str, Any] = {"config": config, "config_file": config_file, "on_event": on_event}

    _check_not_replaced(settings, at.topic, mark, path)

    def catch_up() -> None:
        Standby(url, path, of=mark["uuid"], until_end=True, **options).run()

    # The first host goes on meanwhile. An error of this standby, or another process that keeps it, fences nothing.
    catch_up()
    sequence, end = _fence(settings, at.topic, mark["uuid"], path)
    catch_up()
    if Journal(path).next_sequence < sequence:  # the mirror has left out the last records, which the topic refused
        from jlog.care.numbering import continue_at

        continue_at(path, sequence)
    Mirror(path, url, standby=True, **options).set_position("end")
    _forget_mark(path)
    return Promotion(path, sequence, max(0, end - sequence))


def _check_not_replaced(settings: Settings, topic: str, mark: dict[str, Any], path: str) -> None:
    """Raises JournalError where another standby has taken over."""
    promoted = read_table(Cluster(settings), mark["table"]).get(PROMOTED, {})
    if promoted.get("uuid", Journal(path).uuid) != Journal(path).uuid:
        raise JournalError(
            f"{path}: another standby, {promoted['journal']} on {promoted['host']}, has taken over at sequence "
            f"{promoted['sequence']} of kafka://{settings.servers}/{topic}; make this host a standby of that one"
        )


def _fence(settings: Settings, topic: str, uuid: str, path: str) -> tuple[int, int]:
    """Fences the mirror of the other journal, and notes in its table that it was replaced, so that it never begins again.
    Returns the first sequence that this journal gives out, and the end of the other one as far as its mirror has stored it.

    Tries again where that mirror was just starting, and has fenced this process before it could see the note: a supervisor may
    start it each time that it ends."""
    until = time.monotonic() + RETRY_SECONDS
    while True:
        fence = TopicSink(settings, topic, uuid, stop=Stop(), create=False)
        try:
            stored = fence.open()
            sequence = max(Journal(path).next_sequence, int(stored[uuid]["sequence"]))
            promoted = {"sequence": sequence, "journal": path, "host": socket.gethostname(), "uuid": Journal(path).uuid}
            fence.prepare({PROMOTED: promoted})
            fence.commit()
        except (Retry, Fenced):
            if time.monotonic() > until:
                raise
        else:
            return sequence, int(stored[about_part(uuid)]["end"])
        finally:
            fence.close()
        time.sleep(0.2)


def _forget_mark(path: str) -> None:
    sink = JournalSink(path, create=False)
    try:
        stored = sink.open()
        sink.prepare(dict.fromkeys(part for part in stored if part == MARK or "/" in part))
        sink.commit()
    finally:
        sink.close()

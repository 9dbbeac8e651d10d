"""Runs many mirrors and captures out of one file, each in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.options import nothing
from jlog.flow.stats import FlowStats, Watched
from jlog.flow.stop import SLICE_SECONDS, Stop, Stopped
from jlog.kafka.client.errors import may_pass
from jlog.kafka.many.config import Job, Table, read_tables
from jlog.kafka.many.worker import Worker

LOOK_EVERY = 5.0  # seconds between two looks for journals and topics
KILL_SECONDS = 2.0  # from the request to stop


class Mirrors:
    """Runs all mirrors and captures that `config_file` asks for, each in a process of its own; also those of journals and
    topics that come later. One that cannot go on ends alone and stays in `failures`; one that found no broker, or whose process
    died, is started again. `flows` has their counts. All processes end with this one, however it ends. The file::

        [kafka]                              # settings of librdkafka, for all
        "security.protocol" = "SSL"

        [[to-kafka]]
        journals = "/var/lib/journals/*"     # paths and patterns
        url = "kafka://localhost:9092"
        topic = "live.{name}"                # the journal's directory; without it {name}
        key = "header:user"                  # and the other options of Mirror, transform = "module:function"

        [[from-kafka]]
        url = "kafka://localhost:9092"
        topics = ["orders.*", "clicks"]      # names and patterns
        exclude = ["*.test"]                 # patterns of topics to leave out
        journal = "/var/lib/copies/{topic}"  # without {topic} all of them go into one
        writer = { compression = "lz4" }     # options of jlog.Writer

    until_end: each of them ends where its source ended when it began.
    lags: `flows` have their lags too, for which brokers are asked every few seconds.
    on_event: is called with each line that a person should see.

    Raises ValueError for an error in the file, OSError where it cannot be read.
    """

    def __init__(
        self,
        config_file: str | os.PathLike[str],
        *,
        until_end: bool = False,
        lags: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self._tables = read_tables(config_file)
        self._stop = Stop()
        self._until_end = until_end
        self._lags = lags
        self._on_event = on_event
        self._workers: dict[str, Worker] = {}
        self._said: dict[str, str] = {}
        self.flows: dict[str, Watched] = {}
        self.failures: dict[str, Exception] = {}

    def jobs(self) -> Iterator[Job]:
        """Yields the mirrors and captures of the journals and topics that exist now."""
        for table in self._tables:
            yield from self._find(table)

    def run(self) -> None:
        """Runs until stop(), until every mirror has failed, or with until_end until all have ended."""
        try:
            with suppress(Stopped):
                while not self._stop.requested:
                    for table in self._tables:
                        self._look(table)
                    until = time.monotonic() + LOOK_EVERY
                    while self._until_end or time.monotonic() < until:
                        if self._is_over() or self._stop.wait(SLICE_SECONDS):
                            return
        finally:
            self._stop.request()
            for worker in self._workers.values():
                worker.terminate()
            until = time.monotonic() + KILL_SECONDS
            for worker in self._workers.values():
                worker.finish(until - time.monotonic())

    def stop(self) -> None:
        """Ends run() within 2 s, from another thread or a signal handler. Each transaction under way is committed if the
        brokers answer in time."""
        self._stop.request()

    def _look(self, table: Table) -> None:
        """Starts what the table asks for and does not run yet."""
        try:
            jobs = self._find(table)
        except (JournalError, OSError) as error:
            self.flows[table.where] = Absent(error)
            self._say(table.where, str(error))
            if self._until_end or not may_pass(error):
                self.failures[table.where] = error
            return
        self.flows.pop(table.where, None)
        self.failures.pop(table.where, None)
        for job in jobs:
            if job.name not in self._workers:
                self.flows[job.name] = self._workers[job.name] = Worker(
                    job, until_end=self._until_end, lags=self._lags, stop=self._stop, on_event=self._on_event
                )

    def _find(self, table: Table) -> list[Job]:
        jobs, unmatched = table.find(self._stop)
        if unmatched:
            self._say(table.where, f"nothing matches {', '.join(unmatched)}")
        return jobs

    def _say(self, where: str, text: str) -> None:
        if self._said.get(where) != text:
            self._said[where] = text
            self._on_event(f"{where}: {text}")

    def _is_over(self) -> bool:
        workers_are_over = all(worker.is_over for worker in self._workers.values())
        self.failures |= {name: worker.failure for name, worker in self._workers.items() if worker.failure is not None}
        if not workers_are_over or self._until_end:
            return workers_are_over
        may_come = any(isinstance(flow, Absent) and may_pass(flow.error) for flow in self.flows.values())
        return bool(self.failures) and not may_come


@dataclass
class Absent:
    """A table of the file of which it is not known what it asks for, as a flow that is not open."""

    error: Exception
    is_open = was_open = False

    @property
    def stats(self) -> FlowStats:
        return FlowStats(last_error=str(self.error))

    def lag(self) -> Lag | None:
        return None

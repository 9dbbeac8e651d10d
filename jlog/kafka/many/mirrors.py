"""Runs many mirrors and captures out of one file, each in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from jlog.errors import JournalError
from jlog.flow.engine import nothing
from jlog.flow.lags import Watched
from jlog.flow.stop import SLICE_SECONDS, Stop
from jlog.kafka.client.errors import may_pass
from jlog.kafka.many.config import Job, finders
from jlog.kafka.many.lookout import Lookout
from jlog.kafka.many.worker import KILL_SECONDS, Worker


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
    lags: `flows` tell their lags too, for which brokers are asked every few seconds.
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
        self._finders = finders(config_file)
        self._stop = Stop()
        self._until_end = until_end
        self._lags = lags
        self._on_event = on_event
        self._workers: dict[str, Worker] = {}
        self._lookouts: dict[str, Lookout] = {}
        self._said: dict[str, str] = {}
        self.flows: dict[str, Watched] = {}
        self.failures: dict[str, Exception] = {}

    def jobs(self) -> Iterator[Job]:
        """Yields the mirrors and captures of the journals and topics that exist now."""
        for find in self._finders.values():
            yield from find(self._stop)

    def run(self) -> None:
        """Runs until stop(), until every mirror has failed, or with until_end until all have ended."""
        self._lookouts = {where: Lookout(find, self._stop, once=self._until_end) for where, find in self._finders.items()}
        try:
            while not self._stop.requested:
                for where, lookout in self._lookouts.items():
                    self._take(where, lookout)
                for name, worker in self._workers.items():
                    worker.poll()
                    if worker.failure is not None:
                        self.failures[name] = worker.failure
                if self._is_over():
                    break
                self._stop.wait(SLICE_SECONDS)
        finally:
            self._end()

    def stop(self) -> None:
        """Ends run() within 2 s, from another thread or a signal handler. Each transaction under way is committed if the
        brokers answer in time."""
        self._stop.request()

    def _take(self, where: str, lookout: Lookout) -> None:
        """Takes over what a table has found, or why it found nothing."""
        error = lookout.error
        if not lookout.looks:
            self.flows[where] = lookout  # not ready as long as it is not known what there is to do
        elif error is None:
            self.flows.pop(where, None)
            self.failures.pop(where, None)
        elif not isinstance(error, (JournalError, OSError)):
            raise error
        else:
            self.flows[where] = lookout
            self._say(where, str(error))
            if self._until_end or not may_pass(error):
                self.failures[where] = error
        for job in lookout.found:
            if job.name not in self._workers:
                worker = Worker(job, until_end=self._until_end, lags=self._lags, on_event=self._on_event)
                self.flows[job.name] = self._workers[job.name] = worker

    def _say(self, where: str, text: str) -> None:
        if self._said.get(where) != text:
            self._said[where] = text
            self._on_event(f"{where}: {text}")

    def _is_over(self) -> bool:
        lookouts = self._lookouts.values()
        if not all(lookout.looks for lookout in lookouts) or not all(worker.is_over for worker in self._workers.values()):
            return False
        if self._until_end:
            return True
        return bool(self.failures) and not any(lookout.error and may_pass(lookout.error) for lookout in lookouts)

    def _end(self) -> None:
        """Ends all processes, those that do not end in time by force."""
        self._stop.request()
        workers = self._workers.values()
        for worker in workers:
            worker.stop()
        until = time.monotonic() + KILL_SECONDS
        while any(worker.is_running for worker in workers) and time.monotonic() < until:
            time.sleep(SLICE_SECONDS / 5)
            for worker in workers:
                worker.finish()
        for worker in workers:
            worker.kill()
        for lookout in self._lookouts.values():
            lookout.join()

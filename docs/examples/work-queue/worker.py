"""Works through a queue of jobs, which are the records of a journal. It repeats what fails, and gives up after some attempts.

A queue is a directory with three journals. Two workers serve it, each in a process of its own:

    jobs     what is to be done; the worker of "jobs" attempts each job once
    retries  jobs that have failed; the worker of "retries" attempts them again after a delay
    dead     jobs that have failed ATTEMPTS times: dead letters, for a person to look at
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import jlog

ATTEMPTS = 3
RETRY_SECONDS = 0.2
SUBSCRIBER = "worker"  # a name belongs to one process at a time
BEGUN = b"begun"


class Worker:
    """Attempts the jobs of one journal of the queue. source: "jobs" or "retries". do: does a job; an error means that it has
    failed."""

    def __init__(self, queue: Path, source: str, do: Callable[[jlog.Record], None]) -> None:
        self.queue, self.source = queue, source
        self._do = do
        self._begun = jlog.Writer(queue / source)  # appends to the state alone
        self._retries = jlog.Writer(queue / "retries")
        self._dead = jlog.Writer(queue / "dead")
        self.reader = jlog.Reader(queue / source, SUBSCRIBER)

    def run(self) -> None:
        """Works until it is killed."""
        self._resume()
        for record in self.reader.follow():
            self._attempt(record)
            self.commit()

    def commit(self) -> None:
        self.reader.commit()

    def rewind(self, checkpoint: str) -> None:
        """Goes back to the checkpoint. The jobs after it are done again."""
        self._begun.extend([], state={BEGUN: None})
        self.reader.rewind(checkpoint)

    def close(self) -> None:
        for end in (self.reader, self._begun, self._retries, self._dead):
            end.close()

    def _attempt(self, record: jlog.Record) -> None:
        if self.source == "retries":
            time.sleep(max(0.0, record.timestamp_us / 1e6 + RETRY_SECONDS - time.time()))
        self._begun.extend([], state={BEGUN: b"%d" % record.sequence})
        try:
            self._do(record)
        except Exception as error:  # noqa: BLE001  # whatever a job raises, the next job gets its turn
            self._fail(record, f"{type(error).__name__}: {error}")

    def _fail(self, record: jlog.Record, reason: str) -> None:
        """Passes on a job that has failed. The state, in the same append, says which record it was."""
        failed = attempts(record) + 1
        target = self._dead if failed == ATTEMPTS else self._retries
        target.extend(
            [record.value],
            keys=[record.key],
            headers=[[("attempts", b"%d" % failed), ("reason", reason.encode())]],
            state={self.source.encode(): b"%d" % record.sequence},
        )

    def _resume(self) -> None:
        """Finds out whether the worker before this one was killed between the begin of a job and its commit."""
        begun = state(self._begun).get(BEGUN)
        if begun != b"%d" % self.reader.committed:
            return
        record = next(iter(self.reader))
        source = self.source.encode()
        if begun not in (state(self._retries).get(source), state(self._dead).get(source)):
            self._fail(record, "its worker died")  # counted, so that a job which kills its worker cannot stop the queue
        self.commit()


def attempts(record: jlog.Record) -> int:
    """Returns how many attempts at the job have failed."""
    return int(dict(record.headers).get("attempts") or 0)


def state(writer: jlog.Writer) -> dict[bytes, bytes]:
    return jlog.Journal(writer.path).state()

"""The two kinds of processes: a producer appends lines one by one; a subscriber reads, commits, and keeps account."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jlog
from jlog.demo.fleet import Broken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection

    from jlog.demo.input import Input

END = "end"  # header of the record after the last line
CHECKPOINT = "half-way"
COMMIT_RECORDS = 10_000

Chains = dict[str, tuple[bytes, int]]  # of each producer: the digest of its lines so far, and their number


@dataclass(frozen=True)
class Task:
    """The work of one process: a producer appends the lines from `begin` to before `end`, a subscriber reads them."""

    name: str
    journal: str
    source: Input
    begin: int
    end: int
    progress: Any  # an array in shared memory, in which a stored number survives SIGKILL
    slot: int  # of a producer: its acknowledged lines; of a subscriber: the end of its deliveries
    is_to_be_killed: bool = False
    is_restart: bool = False
    takes_checkpoint: bool = False

    @property
    def lines(self) -> int:
        return self.end - self.begin


def _stops(link: Connection, task: Task) -> Iterator[int]:
    """Yields the numbers of lines at which the process continues in here. One that is to be killed is killed at full speed,
    somewhere between the first and the second."""
    if task.is_to_be_killed:
        half = (task.lines + 1) // 2
        yield half
        link.send(("half way", None))
        yield max(3 * task.lines // 4, half)
        while True:
            signal.pause()


def chained(digest: bytes, line: bytes) -> bytes:
    """Returns the digest of all lines up to this one, from that of the lines before it. It is equal only for the same lines in
    the same order. Unlike a running sha256 it can be written to a file, and continued by another process."""
    return hashlib.sha256(digest + line).digest()


def chain_of(lines: Iterable[bytes]) -> tuple[bytes, int]:
    digest, number = b"", 0
    for line in lines:
        digest, number = chained(digest, line), number + 1
    return digest, number


def produce(link: Connection, task: Task) -> None:
    """Appends lines, each with its number in a header of the producer's name."""
    stops = _stops(link, task)
    stop = next(stops, None)
    done = 0
    with jlog.Writer(task.journal) as writer:
        if task.is_restart:
            done = _resume(link, task)
        link.send(("appending", None))
        began, resumed = time.monotonic(), done
        for key, line in task.source.part(task.begin + done, task.end):
            done += 1
            writer.append(line, key=key, headers=[(task.name, b"%d" % done)])
            task.progress[task.slot] = done
            while done == stop:
                stop = next(stops, None)
        link.send(("done", (began, time.monotonic(), done - resumed)))


def _resume(link: Connection, task: Task) -> int:
    """Returns how many lines of this producer the journal has: those acknowledged, and one more where it was killed between the
    append and the note of it."""
    acknowledged, done = task.progress[task.slot], 0
    with jlog.Reader(task.journal, start="end") as reader:
        while not done and (records := reader.read_backward(1000)):
            done = next((int(record.headers[0][1] or 0) for record in records if record.headers[0][0] == task.name), 0)
    if not acknowledged <= done <= acknowledged + 1:
        raise Broken(f"{acknowledged:,} lines were acknowledged before the kill, and the journal has {done:,}")
    task.progress[task.slot] = done
    link.send(("resumed", (acknowledged, done)))
    return done


class SubscriberProcess:
    """The chains of all its lives are in a file that is written before each commit. So records which are delivered again after
    a kill are recognised by their sequence, and counted once."""

    def __init__(self, link: Connection, task: Task) -> None:
        self.link = link
        self.task = task
        self.ledger: str = f"{task.source.path}-{task.name}"
        self.next_sequence: int = 0
        self.chains: Chains = {}
        if task.is_restart:
            with open(self.ledger, "rb") as file:
                self.next_sequence, self.chains = pickle.load(file)
        self.records: int = 0
        self.redelivered: int = 0  # records that had been delivered to a life which was killed before it had committed them
        self.commit_records: int = min(COMMIT_RECORDS, task.lines // 8 + 1)
        self.at_checkpoint: Chains | None = None
        self.stops: Iterator[int] = _stops(link, task)
        self.stop = next(self.stops, None)

    def read_to_the_end(self, reader: jlog.Reader) -> None:
        """Reads up to the record that marks the end, whether it exists yet or not."""
        self._commit(reader)
        uncommitted, ended = 0, False
        expected = reader.committed
        while not ended:
            self._take_checkpoint(reader)
            for record in reader.read(self.commit_records, timeout=None):
                if record.sequence != expected:
                    raise Broken(f"record {record.sequence:,} was delivered where {expected:,} comes next")
                expected += 1
                ended = record.headers[0][0] == END
                if not ended:
                    self._deliver(record)
                uncommitted += 1
            if uncommitted >= self.commit_records or ended:
                self._commit(reader)
                uncommitted = 0

    def _deliver(self, record: jlog.Record) -> None:
        self.records += 1
        delivered_before = self.task.progress[self.task.slot]
        self.redelivered += record.sequence < delivered_before
        self.task.progress[self.task.slot] = max(record.sequence + 1, delivered_before)
        if record.sequence >= self.next_sequence:
            self._add(record)
        while self.records == self.stop:
            self.stop = next(self.stops, None)

    def _add(self, record: jlog.Record) -> None:
        """Adds a record to the chain of its producer. Raises Broken for anything but the producer's next line."""
        producer, number = record.headers[0]
        digest, lines = self.chains.get(producer, (b"", 0))
        if number != b"%d" % (lines + 1) or record.value is None or record.key is None:
            raise Broken(f"record {record.sequence:,} is not line {lines + 1:,} of {producer}")
        self.chains[producer] = chained(digest, record.value), lines + 1
        self.next_sequence = record.sequence + 1

    def _commit(self, reader: jlog.Reader) -> None:
        with open(self.ledger + ".new", "wb") as file:
            pickle.dump((self.next_sequence, self.chains), file)
        os.replace(self.ledger + ".new", self.ledger)
        reader.commit()

    def _take_checkpoint(self, reader: jlog.Reader) -> None:
        if self.task.takes_checkpoint and self.at_checkpoint is None and self.records >= self.task.lines // 2:
            reader.checkpoint(CHECKPOINT)
            self.at_checkpoint = dict(self.chains)
            self.link.send(("checkpoint", reader.position))

    def replay(self, reader: jlog.Reader) -> None:
        """Reads from the checkpoint to the end again, and checks that the same lines come in the same order."""
        assert self.at_checkpoint is not None
        reader.rewind(CHECKPOINT)
        first_time, self.chains = self.chains, self.at_checkpoint
        self.next_sequence = reader.position
        self.records = 0
        self.read_to_the_end(reader)
        if self.chains != first_time:
            raise Broken("after the checkpoint the second reading differs from the first")
        self.link.send(("replayed", self.records))


def subscribe(link: Connection, task: Task) -> None:
    subscriber = SubscriberProcess(link, task)
    with jlog.Reader(task.journal, task.name, create=False) as reader:
        link.send(("reading", reader.committed))
        subscriber.read_to_the_end(reader)
        link.send(("all read", (subscriber.redelivered, subscriber.chains)))
        if task.takes_checkpoint:
            subscriber.replay(reader)

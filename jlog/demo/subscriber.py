"""A process that reads the journal, commits as it goes, and keeps account of the deliveries."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import jlog
from jlog.demo.counters import open_counters
from jlog.demo.fleet import Broken, Link
from jlog.demo.producer import line_number
from jlog.demo.sources import chain

if TYPE_CHECKING:
    from collections.abc import Iterator

END = "end"  # header of the record after the last line
CHECKPOINT = "half-way"
COMMIT_RECORDS = 10_000

Chains = dict[bytes, tuple[bytes, int]]  # by key: digest of its lines so far, and their number


@dataclass(frozen=True)
class Task:
    name: str
    journal: str
    counters: str
    slot: int  # the counter of the end of its deliveries
    ledger: str  # path of a file
    lines: int
    is_to_be_killed: bool
    takes_checkpoint: bool
    is_restart: bool = False

    def for_restart(self) -> Task:
        return replace(self, is_to_be_killed=False, is_restart=True)


@dataclass
class Account:
    """The deliveries of this life of a subscriber."""

    records: int = 0
    redelivered: int = 0  # records that had been delivered to an earlier life, which was killed before it had committed them
    lag_max: int = 0
    segments: set[int] = field(default_factory=set)  # first sequences of all segments that it has seen
    chains: Chains = field(default_factory=dict)


class Deliveries:
    """The deliveries of all lives together. They are in a file that is written before each commit. So records which are
    delivered again after a kill are recognised by their sequence, and counted once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.next_sequence = 0
        self.chains: Chains = {}

    def load(self) -> None:
        with open(self._path, "rb") as file:
            self.next_sequence, self.chains = pickle.load(file)

    def save(self) -> None:
        with open(self._path + ".new", "wb") as file:
            pickle.dump((self.next_sequence, self.chains), file)
        os.replace(self._path + ".new", self._path)

    def add(self, record: jlog.Record) -> None:
        """Adds a record. Raises Broken for anything but the next line of its key."""
        number = line_number(record)
        if record.key is None or record.value is None:
            raise Broken(f"record {record.sequence:,} came without its key or its value")
        digest, lines = self.chains.get(record.key, (b"", 0))
        if number != lines + 1:
            raise Broken(f"line {number:,} of {record.key!r} came after line {lines:,}, as record {record.sequence:,}")
        self.chains[record.key] = chain(digest, record.value), number
        self.next_sequence = record.sequence + 1


class SubscriberProcess:
    def __init__(self, link: Link, task: Task) -> None:
        self.link = link
        self.task = task
        self.account = Account()
        self.ledger = Deliveries(task.ledger)
        if task.is_restart:
            self.ledger.load()
        else:
            self.ledger.save()
        self.ends = open_counters(task.counters)
        self.journal = jlog.Journal(task.journal)
        self.commit_records = min(COMMIT_RECORDS, task.lines // 8 + 1)
        self.chains_at_checkpoint: Chains | None = None
        self.milestones = self._milestones() if task.is_to_be_killed else iter(())
        self.milestone = next(self.milestones, None)

    def _milestones(self) -> Iterator[int]:
        """Yields numbers of records at which the subscriber that is to be killed continues in here. It is killed at full speed,
        somewhere between the first and the second."""
        half = self.task.lines // 2
        yield half
        self.link.say("half way")
        yield max(3 * self.task.lines // 4, half + 1)
        self.link.wait_for_the_kill()

    def read_to_the_end(self, reader: jlog.Reader) -> None:
        """Reads up to the record that marks the end, whether it exists yet or not."""
        self._pass_milestones()
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
        self.account.records += 1
        if record.sequence < self.ends[self.task.slot]:
            self.account.redelivered += 1
        else:
            self.ends[self.task.slot] = record.sequence + 1
        if record.sequence >= self.ledger.next_sequence:
            self.ledger.add(record)
        self._pass_milestones()

    def _pass_milestones(self) -> None:
        while self.milestone == self.account.records:
            self.milestone = next(self.milestones, None)

    def _commit(self, reader: jlog.Reader) -> None:
        # The segments are noted before the commit, which lets retention remove them: so none is missed.
        self.account.segments |= {segment.first_sequence for segment in self.journal.segments()}
        self.account.lag_max = max(self.account.lag_max, reader.lag)
        self.ledger.save()
        reader.commit()

    def _take_checkpoint(self, reader: jlog.Reader) -> None:
        if not self.task.takes_checkpoint or self.chains_at_checkpoint is not None:
            return
        if self.account.records >= self.task.lines // 2:
            reader.checkpoint(CHECKPOINT)
            self.chains_at_checkpoint = dict(self.ledger.chains)
            self.link.say("checkpoint", reader.position)

    def replay(self, reader: jlog.Reader) -> None:
        """Reads from the checkpoint to the end again, and checks that the same lines come in the same order."""
        assert self.chains_at_checkpoint is not None
        reader.rewind(CHECKPOINT)
        first_time, self.ledger.chains = self.ledger.chains, self.chains_at_checkpoint
        self.ledger.next_sequence = reader.position
        self.account.records = 0
        self.read_to_the_end(reader)
        if self.ledger.chains != first_time:
            raise Broken("after the checkpoint the second reading differs from the first")
        self.link.say("replayed", self.account.records)


def subscribe(link: Link, task: Task) -> None:
    subscriber = SubscriberProcess(link, task)
    with jlog.Reader(task.journal, task.name, create=False) as reader:
        link.say("reading", reader.committed)
        subscriber.read_to_the_end(reader)
        subscriber.account.chains = subscriber.ledger.chains
        link.say("account", subscriber.account)
        if task.takes_checkpoint:
            link.wait_for("rewind")
            subscriber.replay(reader)

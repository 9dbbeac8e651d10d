"""The steps of the demo. Each takes from the Demo what the steps before have left, and prints in a line what it did."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import jlog
from jlog.demo import counters
from jlog.demo.fleet import Broken, Fleet
from jlog.demo.producer import Share, produce
from jlog.demo.proof import differences, expected_chains
from jlog.demo.report import Facts, table
from jlog.demo.sources import Input, share_out, take
from jlog.demo.subscriber import CHECKPOINT, END, Account, Task, subscribe

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

PRODUCERS = ("producer-1", "producer-2", "producer-3", "producer-4")
SUBSCRIBERS = ("audit", "index")
KILLED_PRODUCER = PRODUCERS[0]  # the one with the most lines
KILLED_SUBSCRIBER, REWOUND_SUBSCRIBER = SUBSCRIBERS
PRECOMMIT_BYTES = 128 << 10
SEGMENT_BYTES = 4 << 20


class Demo:
    """The state that the steps share."""

    source: Input
    shares: dict[str, Share]
    tasks: dict[str, Task]
    progress: memoryview  # acknowledged lines of each producer, then the end of each subscriber's deliveries
    accounts: dict[str, Account]
    moment: datetime  # a time at which lines were appended

    def __init__(self, inputs: list[str], directory: str, fleet: Fleet, console: Console) -> None:
        self.inputs = inputs
        self.fleet = fleet
        self.console = console
        self.journal = os.path.join(directory, "journal")
        self.counters = os.path.join(directory, "counters")
        self.input_copy = os.path.join(directory, "input")
        self.ledgers = os.path.join(directory, "ledger-")
        self.facts = Facts()

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def say_progress(self) -> None:
        acknowledged = list(self.progress)[: len(PRODUCERS)]
        delivered = list(self.progress)[len(PRODUCERS) :]
        read = ", ".join(f"{name} {end:,}" for name, end in zip(SUBSCRIBERS, delivered, strict=True))
        segments = len(jlog.Journal(self.journal).segments())
        self.say(f"  … {sum(acknowledged):,} lines acknowledged; read: {read}; {count_of(segments, 'segment')}")


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def take_input(demo: Demo) -> None:
    source = demo.source = take(demo.inputs, demo.input_copy)
    what = "the sources of Python's standard library" if not demo.inputs else "the input"
    first = "the beginning of " if source.is_cut else ""
    unreadable = f"; {source.unreadable:,} more cannot be read" if source.unreadable else ""
    demo.say(f"{first}{what}: {source.lines:,} lines, {source.size_bytes / 1e6:.1f} MB, {source.files:,} files{unreadable}")


def make_journal(demo: Demo) -> None:
    journal = jlog.Journal.create(demo.journal, precommit=PRECOMMIT_BYTES, segment_bytes=SEGMENT_BYTES, compression="lz4")
    for name in SUBSCRIBERS:
        journal.add_subscriber(name)
    demo.say(f"journal {demo.journal} with subscribers {' and '.join(SUBSCRIBERS)}, its blocks compressed")


def start_processes(demo: Demo) -> None:
    counters.make(demo.counters, len(PRODUCERS) + len(SUBSCRIBERS))
    demo.progress = counters.open_counters(demo.counters)
    demo.fleet.tick = demo.say_progress
    demo.tasks = {
        name: Task(
            name=name,
            journal=demo.journal,
            counters=demo.counters,
            slot=len(PRODUCERS) + number,
            ledger=demo.ledgers + name,
            lines=demo.source.lines,
            is_to_be_killed=name == KILLED_SUBSCRIBER,
            takes_checkpoint=name == REWOUND_SUBSCRIBER,
        )
        for number, name in enumerate(SUBSCRIBERS)
    }
    demo.shares = {
        name: Share(
            name=name,
            journal=demo.journal,
            counters=demo.counters,
            slot=number,
            source=demo.source.path,
            pieces=pieces,
            is_to_be_killed=name == KILLED_PRODUCER,
        )
        for number, (name, pieces) in enumerate(zip(PRODUCERS, share_out(demo.source.pieces, len(PRODUCERS)), strict=True))
    }
    for name, task in demo.tasks.items():
        demo.fleet.start(name, subscribe, task)
    for name in demo.tasks:
        demo.fleet.wait_for(name, "reading")
    demo.facts.started = time.monotonic()
    for name, share in demo.shares.items():
        demo.fleet.start(name, produce, share)
    demo.say(f"{len(PRODUCERS)} producer processes append line by line, {len(SUBSCRIBERS)} subscriber processes read")


def kill_producer(demo: Demo) -> None:
    fleet, name = demo.fleet, KILLED_PRODUCER
    journal = jlog.Journal(demo.journal)
    fleet.wait_for(name, "half way")
    journal.set_checkpoint(name, "end")
    fleet.tell(name, "go on")
    fleet.wait_for(name, "past the checkpoint")
    fleet.kill(name)
    fleet.start(name, produce, demo.shares[name].for_restart())
    acknowledged, found = fleet.wait_for(name, "resumed")
    journal.remove_checkpoint(name)
    demo.facts.kills += 1
    more = " (the kill came between an append and its acknowledgement)" if found > acknowledged else ""
    demo.say(f"kill -9 {name} after {acknowledged:,} acknowledged lines; the journal has {found:,} of its lines{more}")
    demo.say(f"{name} is started again, and goes on after them")


def take_checkpoint(demo: Demo) -> None:
    position = demo.fleet.wait_for(REWOUND_SUBSCRIBER, "checkpoint")
    demo.moment = datetime.now(timezone.utc)
    demo.say(f"the subscriber {REWOUND_SUBSCRIBER} took the checkpoint {CHECKPOINT!r} at record {position:,}")


def show_top(demo: Demo) -> None:
    """Shows `jlogtool top`, as another terminal shows it, while the producers append."""
    command = [sys.executable, "-m", "jlog.cli", "top", "--interval", "0.5", os.path.basename(demo.journal)]
    seen = subprocess.run(
        command, cwd=os.path.dirname(demo.journal), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if seen.returncode != 0:
        raise Broken(f"jlogtool top: {seen.stderr.strip()}")
    demo.say(f"meanwhile `jlogtool top` shows:\n{seen.stdout.rstrip()}")


def kill_subscriber(demo: Demo) -> None:
    fleet, name = demo.fleet, KILLED_SUBSCRIBER
    fleet.wait_for(name, "half way")
    fleet.kill(name)
    delivered = demo.progress[demo.tasks[name].slot]
    fleet.start(name, subscribe, demo.tasks[name].for_restart())
    committed = fleet.wait_for(name, "reading")
    demo.facts.kills += 1
    demo.facts.to_be_redelivered = delivered - committed
    demo.say(f"kill -9 {name} at record {delivered:,}; started again, it reads on from its last commit, {committed:,}")


def finish(demo: Demo) -> None:
    for name in PRODUCERS:
        demo.fleet.wait_for(name, "done")
        demo.fleet.wait_for_the_end(name)
    demo.facts.written = time.monotonic()
    with jlog.Writer(demo.journal) as writer:
        writer.append(b"", headers=[(END, None)])
    demo.accounts = {name: demo.fleet.wait_for(name, "account") for name in SUBSCRIBERS}
    demo.facts.delivered = time.monotonic()
    demo.say(f"all {demo.source.lines:,} lines are journaled, and both subscribers have read to the end")
    seek_time(demo, demo.moment)


def seek_time(demo: Demo, moment: datetime) -> None:
    """Checks that the record found is the first at or after the moment: the one before it is earlier."""
    with jlog.Reader(demo.journal, start="end") as reader:
        reader.seek(moment)
        found = reader.position
        later = next(iter(reader))
        reader.seek(found)
        earlier = reader.read_backward(1)
    if later.timestamp < moment or any(record.timestamp >= moment for record in earlier):
        raise Broken(f"the first record from {moment} on is not {found}")
    demo.say(f"a reader looked for the time {moment:%H:%M:%S.%f} UTC: the first record from then on is {found:,}")


def rewind(demo: Demo) -> None:
    demo.fleet.tell(REWOUND_SUBSCRIBER, "rewind")
    demo.facts.replayed = demo.fleet.wait_for(REWOUND_SUBSCRIBER, "replayed")
    for name in SUBSCRIBERS:
        demo.fleet.wait_for_the_end(name)
    demo.say(f"{REWOUND_SUBSCRIBER} went back to {CHECKPOINT!r} and read {demo.facts.replayed:,} records once more: the same")


def verify_and_clean(demo: Demo) -> None:
    """Checks that the segments which the unkilled subscriber saw before its commits, and those that exist now, are all that
    were created."""
    journal = jlog.Journal(demo.journal)
    report = journal.verify()
    if not report.ok:
        raise Broken(f"verify found damage: {report.damage[0]}")
    kept = {segment.first_sequence for segment in journal.segments()}
    demo.facts.stored_part = compressed_part(journal)
    demo.facts.segments_made = len(demo.accounts[REWOUND_SUBSCRIBER].segments | kept)
    journal.remove_checkpoint(CHECKPOINT)
    journal.clean()
    demo.facts.segments_removed = demo.facts.segments_made - len(journal.segments())
    demo.say(f"`jlogtool verify` finds no damage in the {report.records:,} records that the checkpoint has kept")
    demo.say(
        f"the checkpoint is removed, and with it {demo.facts.segments_removed} of "
        f"{count_of(demo.facts.segments_made, 'segment')}: both subscribers have read them"
    )


def compressed_part(journal: jlog.Journal) -> float:
    blocks = [block for _, block in journal.blocks() if not isinstance(block, jlog.Damage)]
    return sum(block.stored_bytes for block in blocks) / sum(block.raw_bytes for block in blocks)


def prove(demo: Demo) -> None:
    source = demo.source
    acknowledged = sum(demo.progress[share.slot] for share in demo.shares.values())
    expected = expected_chains(source)
    found = []
    if acknowledged != source.lines:
        found.append(f"{acknowledged:,} lines were acknowledged of {source.lines:,}")
    end = jlog.Journal(demo.journal).next_sequence
    if end != source.lines + 1:
        found.append(f"{source.lines:,} lines and the end make {end:,} records in the journal")
    for name, account in demo.accounts.items():
        again = demo.facts.to_be_redelivered if name == KILLED_SUBSCRIBER else 0
        if account.redelivered != again:
            found.append(f"{name} was given {account.redelivered:,} records a second time instead of {again:,}")
        found += [f"{name}: {difference}" for difference in differences(expected, account.chains)]
    if found:
        raise Broken("\n  ".join(found))
    demo.console.print(table(source, demo.facts, demo.accounts, len(expected)))


STEPS: tuple[Callable[[Demo], None], ...] = (
    take_input,
    make_journal,
    start_processes,
    show_top,
    kill_producer,
    take_checkpoint,
    kill_subscriber,
    finish,
    rewind,
    verify_and_clean,
    prove,
)

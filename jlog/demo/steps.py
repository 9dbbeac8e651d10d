"""The steps of the demo. Each takes from the Demo what the steps before have left, and prints in a line what it did."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.table import Table

import jlog
from jlog.demo.fleet import SPAWN, Broken, Fleet
from jlog.demo.input import Input, take
from jlog.demo.processes import CHECKPOINT, END, Chains, Task, chain_of, produce, subscribe
from jlog.demo.screen import KILLED, RESUMED, REWOUND
from jlog.system.python import python_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jlog.demo.screen import Screen

PRODUCERS = ("producer-1", "producer-2", "producer-3", "producer-4")
SUBSCRIBERS = ("audit", "index")
KILLED_PRODUCER = PRODUCERS[0]  # has a line wherever there is one
KILLED_SUBSCRIBER, REWOUND_SUBSCRIBER = SUBSCRIBERS
PRECOMMIT_BYTES = 128 << 10
SEGMENT_BYTES = 4 << 20
ALONE_LINES = 200_000
SCRATCH = "scratch"  # the directory of what is not kept
QUERY = """SELECT key AS file, count(*) AS lines FROM demo WHERE key IS NOT NULL
    GROUP BY ALL ORDER BY lines DESC, file LIMIT 5"""


class Demo:
    """The state that the steps share."""

    source: Input
    tasks: dict[str, Task]
    accounts: dict[str, tuple[int, Chains]]  # how many records each subscriber was given twice, and all that it was given
    started: float
    spans: list[tuple[float, float, int]]  # of each producer's last life: from when to when it appended how many lines
    delivered: float
    to_be_redelivered: int
    replayed: int
    segments_created: int
    segments_removed: int
    stored_part: float
    alone: str  # the rate of appends, and of nothing else

    def __init__(self, inputs: list[str], directory: str, fleet: Fleet, screen: Screen) -> None:
        self.inputs = inputs
        self.fleet = fleet
        self.screen = screen
        self.say: Callable[..., None] = screen.say
        self.directory = directory
        self.journal: str = os.path.join(directory, "journal")
        self.scratch: str = os.path.join(directory, SCRATCH)
        os.mkdir(self.scratch)
        self.progress: Any = SPAWN.RawArray("Q", len(PRODUCERS) + len(SUBSCRIBERS))
        self.shown: tuple[int, float] = 0, time.monotonic()  # lines acknowledged, and when
        self.activity = "reading the input"
        self.kills: int = 0

    def progress_text(self) -> str:
        """Returns what the demo is at, for the line that counts: while lines are appended, at which rate."""
        (before, then), now = self.shown, time.monotonic()
        self.shown = self.acknowledged, now
        if self.acknowledged == before:
            return self.activity
        read = " and ".join(f"{end:,}" for end in self.progress[len(PRODUCERS) :])
        return f"{self.acknowledged:,} appended, {(self.acknowledged - before) / (now - then):,.0f}/s; {read} read"

    @property
    def acknowledged(self) -> int:
        return sum(self.progress[: len(PRODUCERS)])

    def restart(self, name: str, work: Callable[..., None]) -> None:
        self.kills += 1
        self.fleet.start(name, work, replace(self.tasks[name], is_to_be_killed=False, is_restart=True))


def take_input(demo: Demo) -> None:
    source = demo.source = take(demo.inputs, os.path.join(demo.scratch, "input"))
    what = "the sources of Python's standard library" if not demo.inputs else "the input"
    first = "the beginning of " if source.is_cut else ""
    unreadable = f"; {source.unreadable:,} more cannot be read" if source.unreadable else ""
    demo.say(
        f"{first}{what}: {source.lines:,} lines, {source.size_bytes / 1e6:.1f} MB, {len(source.files):,} files{unreadable}"
    )


def create_journal(demo: Demo) -> None:
    journal = jlog.Journal.create(demo.journal, precommit=PRECOMMIT_BYTES, segment_bytes=SEGMENT_BYTES, compression="lz4")
    for name in SUBSCRIBERS:
        journal.add_subscriber(name)
    journal.set_checkpoint(KILLED_PRODUCER, "begin")  # retains what the restarted producer looks for
    demo.say(f"journal {demo.journal} with subscribers {' and '.join(SUBSCRIBERS)}, its blocks compressed")


def start_processes(demo: Demo) -> None:
    lines = demo.source.lines
    bounds = [-(-lines * number // len(PRODUCERS)) for number in range(len(PRODUCERS) + 1)]
    parts = [*zip(PRODUCERS, bounds, bounds[1:], strict=False), *((name, 0, lines) for name in SUBSCRIBERS)]
    demo.tasks = {
        name: Task(
            name,
            demo.journal,
            demo.source,
            begin,
            end,
            demo.progress,
            slot,
            is_to_be_killed=name in (KILLED_PRODUCER, KILLED_SUBSCRIBER),
            takes_checkpoint=name == REWOUND_SUBSCRIBER,
        )
        for slot, (name, begin, end) in enumerate(parts)
    }
    for name in SUBSCRIBERS:
        demo.fleet.start(name, subscribe, demo.tasks[name])
    for name in SUBSCRIBERS:
        demo.fleet.wait_for(name, "reading")
    demo.started = time.monotonic()
    demo.activity = "the processes start"
    for name in PRODUCERS:
        demo.fleet.start(name, produce, demo.tasks[name])
    demo.say(f"{len(PRODUCERS)} producer processes append line by line, {len(SUBSCRIBERS)} subscriber processes read")


def show_top(demo: Demo) -> None:
    """Shows `jlogtool top`, as another terminal shows it, while the producers append."""
    demo.fleet.wait_for(KILLED_PRODUCER, "appending")
    command = python_command("jlog.cli", "top", "--interval", "0.5", os.path.basename(demo.journal))
    seen = subprocess.run(
        command, cwd=os.path.dirname(demo.journal), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if seen.returncode != 0:
        raise Broken(f"jlogtool top: {seen.stderr.strip()}")
    demo.say(f"meanwhile `jlogtool top` shows:\n{seen.stdout.rstrip()}")


def kill_producer(demo: Demo) -> None:
    fleet, name = demo.fleet, KILLED_PRODUCER
    fleet.wait_for(name, "half way")
    fleet.kill(name)
    demo.restart(name, produce)
    acknowledged, found = fleet.wait_for(name, "resumed")
    jlog.Journal(demo.journal).remove_checkpoint(name)
    more = " (the kill came between an append and its acknowledgement)" if found > acknowledged else ""
    demo.say(f"kill -9 {name} after {acknowledged:,} acknowledged lines; the journal has {found:,} of its lines{more}", KILLED)
    demo.say(f"resumed: {name} is started again, and goes on after them", RESUMED)


def take_checkpoint(demo: Demo) -> None:
    position = demo.fleet.wait_for(REWOUND_SUBSCRIBER, "checkpoint")
    demo.say(f"the subscriber {REWOUND_SUBSCRIBER} took the checkpoint {CHECKPOINT!r} at record {position:,}")


def kill_subscriber(demo: Demo) -> None:
    fleet, name = demo.fleet, KILLED_SUBSCRIBER
    fleet.wait_for(name, "half way")
    fleet.kill(name)
    delivered = demo.progress[demo.tasks[name].slot]
    demo.restart(name, subscribe)
    committed = fleet.wait_for(name, "reading")
    demo.to_be_redelivered = delivered - committed
    demo.say(f"kill -9 {name} at record {delivered:,}", KILLED)
    demo.say(f"resumed: {name} is started again, and reads on from its last commit, {committed:,}", RESUMED)


def finish(demo: Demo) -> None:
    demo.activity = "the subscribers read to the end"
    demo.spans = [demo.fleet.wait_for(name, "done") for name in PRODUCERS]
    for name in PRODUCERS:
        demo.fleet.wait_for_the_end(name)
    with jlog.Writer(demo.journal) as writer:
        writer.append(b"", headers=[(END, None)])
    demo.accounts = {name: demo.fleet.wait_for(name, "all read") for name in SUBSCRIBERS}
    demo.delivered = time.monotonic()
    demo.say(f"all {demo.source.lines:,} lines are journaled, and both subscribers have read to the end")


def seek_time(demo: Demo) -> None:
    """Checks that the record found is the first at or after the middle of the time: the one before it is earlier."""
    with jlog.Reader(demo.journal, start="end") as reader:
        (last,) = reader.read_backward(1)
        reader.seek("begin")
        first = next(iter(reader))
        moment = first.timestamp + (last.timestamp - first.timestamp) / 2
        reader.seek(moment)
        found = reader.position
        later = next(iter(reader))
        reader.seek(found)
        earlier = reader.read_backward(1)
    if later.timestamp < moment or any(record.timestamp >= moment for record in earlier):
        raise Broken(f"the first record from {moment} on is not {found}")
    demo.say(f"a reader looked for a time in the middle, {moment:%H:%M:%S.%f} UTC, and found record {found:,}")


def rewind(demo: Demo) -> None:
    demo.replayed = demo.fleet.wait_for(REWOUND_SUBSCRIBER, "replayed")
    for name in SUBSCRIBERS:
        demo.fleet.wait_for_the_end(name)
    demo.say(
        f"rewound: {REWOUND_SUBSCRIBER} went back to {CHECKPOINT!r} and read {demo.replayed:,} records once more: the same",
        REWOUND,
    )


def verify_and_clean(demo: Demo) -> None:
    demo.activity = "all is compared with the input"
    journal = jlog.Journal(demo.journal)
    report = journal.verify()
    if not report.ok:
        raise Broken(f"verify found damage: {report.damage[0]}")
    blocks = [block for _, block in journal.blocks() if not isinstance(block, jlog.Damage)]
    demo.stored_part = sum(block.stored_bytes for block in blocks) / sum(block.raw_bytes for block in blocks)
    demo.segments_created = 1 + journal.stats().counters["rolls"]
    journal.clean()
    demo.segments_removed = demo.segments_created - len(journal.segments())
    segments = "1 segment" if demo.segments_created == 1 else f"{demo.segments_created:,} segments"
    demo.say(f"`jlogtool verify` finds no damage in the {report.records:,} records that the checkpoint keeps")
    demo.say(f"`jlogtool clean` removed {demo.segments_removed} of {segments}: those that all positions have passed")


def time_appends(demo: Demo) -> None:
    """Measures the appends alone, since the producers spend most of their time on other things, and are killed."""
    demo.activity = "the appends alone are measured"
    lines = [line for _, line in demo.source.part(0, min(demo.source.lines, ALONE_LINES))]
    alone = os.path.join(demo.scratch, "alone")
    with jlog.Writer(alone, precommit=PRECOMMIT_BYTES, segment_bytes=SEGMENT_BYTES, compression="lz4") as writer:
        begin = time.monotonic()
        for line in lines:
            writer.append(line)
        seconds = time.monotonic() - begin
    demo.alone = _rate(len(lines), sum(map(len, lines)) / 1e6, seconds) if lines else ""


def prove(demo: Demo) -> None:
    """Compares what must have been delivered, which the input alone says, with what was."""
    lines = demo.source.lines
    parts = {name: demo.source.part(demo.tasks[name].begin, demo.tasks[name].end) for name in PRODUCERS}
    expected = {name: chain_of(line for _, line in part) for name, part in parts.items()}
    found = []
    if demo.acknowledged != lines:
        found.append(f"{demo.acknowledged:,} lines were acknowledged of {lines:,}")
    end = jlog.Journal(demo.journal).next_sequence
    if end != lines + 1:
        found.append(f"{lines:,} lines and the end make {end:,} records in the journal")
    for name, (redelivered, chains) in demo.accounts.items():
        again = demo.to_be_redelivered if name == KILLED_SUBSCRIBER else 0
        if redelivered != again:
            found.append(f"{name} was given {redelivered:,} records a second time instead of {again:,}")
        found += [f"{name}: {difference}" for difference in differences(expected, chains)]
    if found:
        raise Broken("\n  ".join(found))
    demo.screen.console.print(table(demo))
    demo.say("proved: nothing lost, nothing out of order, nothing changed", RESUMED)


def differences(expected: Chains, delivered: Chains) -> Iterator[str]:
    """Yields a line for each producer whose lines were not delivered unchanged, each once and in order."""
    for name, (digest, lines) in expected.items():
        found, number = delivered.get(name, (b"", 0))
        if (found, number) != (digest, lines):
            yield f"{name} appended {lines:,} lines, the {number:,} delivered differ from them"


def table(demo: Demo) -> Table:
    lines, megabytes, readers = demo.source.lines, demo.source.size_bytes / 1e6, len(SUBSCRIBERS)
    reading = demo.delivered - demo.started
    written, writing = sum(count for *_, count in demo.spans), _covered(demo.spans)
    found = Table(title="jlog demo", show_header=False, title_justify="left", min_width=60)
    found.add_column(style="bold")
    found.add_column()
    found.add_row("records", f"{lines:,} ({megabytes:,.1f} MB of values), each appended by itself")
    if written:
        rate = _rate(written, megabytes * written / lines, writing)
        found.add_row("written", f"{rate}, by {len(PRODUCERS)} processes that also read the files, beside the subscribers")
    if demo.alone:
        found.add_row("append alone", f"{demo.alone}, of the same lines from memory, in one process")
    found.add_row("delivered", f"{_rate(readers * lines, readers * megabytes, reading)}, to {readers} subscribers")
    segments = f"{demo.segments_created} created, {demo.segments_removed} removed once all had passed them"
    found.add_row("segments", segments)
    found.add_row("compression", f"blocks take {demo.stored_part:.0%} of the bytes of their records")
    found.add_row("kills", f"{demo.kills} survived; {demo.to_be_redelivered:,} uncommitted records delivered again")
    found.add_row("rewind", f"{demo.replayed:,} records read once more, the same")
    found.add_row(
        "proof",
        f"every acknowledged line reached {' and '.join(SUBSCRIBERS)}, in order; only those that the killed subscriber had not "
        "committed came twice. What was delivered of each producer was compared with the input by SHA-256",
    )
    return found


def _rate(records: int, megabytes: float, seconds: float) -> str:
    return f"{records / seconds:,.0f} records/s, {megabytes / seconds:,.1f} MB/s"


def _covered(spans: list[tuple[float, float, int]]) -> float:
    """Returns the seconds in which at least one producer appended."""
    covered, until = 0.0, 0.0
    for begin, end, _ in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(end, until)
    return covered


def tool() -> str:
    """Returns jlogtool as one types it here."""
    beside = os.path.join(os.path.dirname(sys.executable), "jlogtool")
    return "jlogtool" if shutil.which("jlogtool") else os.path.relpath(beside)


def ask(demo: Demo) -> None:
    """Shows what `jlogtool sql` answers on the journal, where DuckDB is installed."""
    demo.activity = "the journal is asked"
    arguments = ["sql", QUERY, f"demo={demo.journal}"]
    if find_spec("duckdb") is None:
        demo.say("the journal answers SQL, too: pip install 'pyjlog[sql]'")
        return
    demo.say(f"$ {tool()} {shlex.join(arguments)}", "bold")
    seen = subprocess.run(python_command("jlog.cli", *arguments), capture_output=True, text=True, check=False)
    if seen.returncode != 0:
        raise Broken(f"jlogtool sql: {seen.stderr.strip()}")
    demo.say(seen.stdout.rstrip())


def say_what_next(demo: Demo) -> None:
    demo.say(f"\nThe journal stays until you type `rm -r {demo.directory}`. Type next:")
    demo.say(f"  {tool()} info {demo.journal}", "bold")
    demo.say(f"  {tool()} rewind {demo.journal} {REWOUND_SUBSCRIBER} {CHECKPOINT}", "bold")
    demo.say(f"  {tool()} read --limit 10 {demo.journal} {REWOUND_SUBSCRIBER}", "bold")


STEPS: tuple[Callable[[Demo], None], ...] = (
    take_input,
    create_journal,
    start_processes,
    show_top,
    kill_producer,
    take_checkpoint,
    kill_subscriber,
    finish,
    seek_time,
    rewind,
    verify_and_clean,
    time_appends,
    prove,
)
LAST_STEPS: tuple[Callable[[Demo], None], ...] = (ask, say_what_next)

"""`jlogtool doctor`: finds the faults of a journal and of this machine, present and coming, and says what to do about each."""

from __future__ import annotations

import os
import resource
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

import jlog
from jlog.care.clock import CLOCK_ADVICE, ahead_seconds
from jlog.care.statistics import is_current, writing_processes
from jlog.cli.arguments.parameters import DIRECTORY
from jlog.cli.process import DAMAGED, FOUND
from jlog.cli.terminal.figures import human_bytes, span
from jlog.cli.terminal.output import json_option, print_json
from jlog.errors import CorruptJournal, PositionLost
from jlog.storage.meta import is_a_copy, read_meta
from jlog.system.clock import now_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jlog.care.statistics import Stats

STUCK_SECONDS = 600  # for so long a process that reads may be busy with what it has read
HOLDS_SECONDS = 3600  # for so long one record may be worked on, or delayed
IDLE_SECONDS = 24 * 3600
RATE_SECONDS = 3600  # records of less time say nothing about how fast a journal grows
SPACE_SECONDS = 24 * 3600  # the space should last so long
FREE_LEAST = 0.05  # of the file system
LIMIT_MOST = 0.9  # of limit_bytes, and of a process's descriptors
CLOCK_SECONDS = 60
DESCRIPTORS_LEAST = 1024


@dataclass(frozen=True)
class Finding:
    check: str  # its name for programs
    found: str
    advice: str


@click.command()
@click.argument("journal", required=False, type=DIRECTORY)
@json_option
def doctor(journal: str | None, as_json: bool) -> None:
    """Say what is wrong with JOURNAL and this machine, or will be, and what to do about it.

    Looks for a position that holds back segments or does not move, for space and limits that run out, a clock that was
    set back, records that no sync covers, a copy, an earlier boot, and damage at the ends of each segment. `verify` reads
    every byte. Changes nothing, and holds nobody up; without JOURNAL it looks at the machine alone.

    Exits with 0 if nothing is found, with 3 if something is damaged, and else with 4.

    \b
    Examples:
      jlogtool doctor
      jlogtool doctor /var/lib/events
      jlogtool doctor --json /var/lib/events | jq -r '.[].check'
    """
    found = [*examine_machine(), *(examine(journal) if journal else ())]
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            click.echo(f"{click.style(finding.check, bold=True)}: {finding.found}\n  {finding.advice}")
        if not found:
            click.echo("nothing is wrong")
    if found:
        raise click.exceptions.Exit(DAMAGED if any(finding.check == "damage" for finding in found) else FOUND)


def examine_machine() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS_LEAST:
        yield Finding(
            "descriptors",
            f"a process here may open {soft} files, and a program with many journals or readers needs more",
            f"`ulimit -n {min(hard, 65536) if hard > 0 else 65536}`, or LimitNOFILE= of its systemd unit",
        )
    if not os.access("/proc/sys/kernel/random/boot_id", os.R_OK):
        yield Finding(
            "boot-id",
            "/proc/sys/kernel/random/boot_id cannot be read, so a first opening of a journal counts as one after a power loss",
            "mount /proc; in a systemd unit, do not set ProcSubset=pid",
        )


def examine(path: str) -> Iterator[Finding]:
    """Yields what is found. Reads headers, positions and the first and the last block of each segment, and changes nothing."""
    journal = jlog.Journal(path)
    try:
        stats = journal.stats()
    except CorruptJournal as error:
        yield damage(path, error)
        return
    told = set()
    checks = (
        damaged(journal),
        pinned(journal),
        growing(journal, stats),
        clock(journal),
        unsynced(journal, stats),
        copied(path),
        unrecovered(path, stats),
        writers(path),
    )
    for check in checks:
        try:
            for finding in check:
                told.add(finding.found)
                yield finding
        except CorruptJournal as error:
            if str(error) not in told:
                yield damage(path, error)


def damage(path: str, error: CorruptJournal) -> Finding:
    return Finding(
        "damage",
        str(error),
        f"`jlogtool verify {shlex.quote(path)}` lists all damage; `jlogtool backup`, then `jlogtool repair` keep what is whole",
    )


def damaged(journal: jlog.Journal) -> Iterator[Finding]:
    for segment in journal.segments():
        try:
            segment.first_timestamp_us, segment.last_timestamp_us  # noqa: B018 - reads a block at each end of the file
        except FileNotFoundError:
            continue  # removed in the meantime
        except CorruptJournal as error:
            yield damage(journal.path, error)
    quarantine = os.path.join(journal.path, "quarantine")
    if os.path.isdir(quarantine) and os.listdir(quarantine):
        yield Finding(
            "quarantine",
            f"{quarantine} has bytes that a recovery or a repair has moved out of the journal",
            "`jlogtool info` lists the records that are missing as `skipped`; remove the directory when you have looked at it",
        )


def pinned(journal: jlog.Journal) -> Iterator[Finding]:
    """Positions that hold segments back, that do not move, or that cannot be read."""
    place = shlex.quote(journal.path)
    for kind, positions in (("subscriber", journal.subscribers()), ("checkpoint", journal.checkpoints())):
        for name, at in positions.items():
            who, quoted = f"{kind} {name!r}", shlex.quote(name)
            if at.damaged:
                yield Finding(
                    "position-damaged",
                    f"the position of {who} cannot be read, so that every record is kept for it",
                    f"set it again: `jlogtool {kind} set {place} {quoted} begin`",
                )
            elif at.expired:
                yield Finding(
                    "subscriber-expired",
                    f"{who} has not committed for {span(at.idle_seconds)}, and its {at.lag:,} records may be removed unread",
                    f"start its reader, or `jlogtool subscriber rm {place} {quoted}`",
                )
            elif at.work is not None and at.work.unfinished and at.idle_seconds > HOLDS_SECONDS:
                yield Finding(
                    "record-holds-position",
                    f"record {at.sequence} has held the position of {who} for {span(at.idle_seconds)}",
                    f"`jlogtool work-ls {place} {quoted}` shows who has it; `jlogtool work-release` or `work-reject` ends that",
                )
            elif at.busy and at.work is None and at.lag and at.idle_seconds > STUCK_SECONDS:
                yield Finding(
                    "position-stuck",
                    f"a process reads as {who}, without a commit for {span(at.idle_seconds)}, while {at.lag:,} records wait",
                    f"look at that process: `jlogtool top {place}`, and whether it hangs or never commits",
                )
            elif at.held_bytes and at.idle_seconds > IDLE_SECONDS:
                yield Finding(
                    "position-pins-disk",
                    f"{who} has not moved for {span(at.idle_seconds)}, and holds back {human_bytes(at.held_bytes)}",
                    f"start its reader, or `jlogtool {kind} rm {place} {quoted}` lets the segments go",
                )


def growing(journal: jlog.Journal, stats: Stats) -> Iterator[Finding]:
    disk = os.statvfs(journal.path)
    free = disk.f_bavail * disk.f_frsize
    lasts = seconds_left(journal, stats, free)
    if free < FREE_LEAST * disk.f_blocks * disk.f_frsize or lasts < SPACE_SECONDS:
        for_how_long = f", enough for {span(lasts)} at its present rate" if lasts < 100 * IDLE_SECONDS else ""
        yield Finding(
            "disk-space",
            f"{human_bytes(free)} are free on its disk{for_how_long}",
            f"`jlogtool options --max-bytes SIZE {shlex.quote(journal.path)}` lets old segments go; free space on the disk",
        )
    limit = journal.options.retention.limit_bytes
    if limit and stats.size_bytes > LIMIT_MOST * limit:
        yield Finding(
            "limit",
            f"it has {human_bytes(stats.size_bytes)} of the {human_bytes(limit)} at which append raises JournalFull",
            f"let its readers commit, or raise `jlogtool options --limit-bytes SIZE {shlex.quote(journal.path)}`",
        )


def seconds_left(journal: jlog.Journal, stats: Stats, free: int) -> float:
    """Returns for how long the free space lasts if the journal goes on to grow as fast as its retained records came."""
    segments = journal.segments()
    first_us = next((time for time in (segment.first_timestamp_us for segment in segments) if time is not None), None)
    age = (now_us() - first_us) / 1e6 if first_us is not None else 0.0
    if age < RATE_SECONDS or not stats.size_bytes:
        return float("inf")
    return free / (stats.size_bytes / age)


def clock(journal: jlog.Journal) -> Iterator[Finding]:
    if ahead_by := ahead_seconds(journal.path, read_meta(journal.path)):
        yield Finding("clock", f"its newest time is {span(ahead_by)} ahead of the clock", CLOCK_ADVICE)
        return
    try:
        with jlog.Reader(journal.path, start="end") as reader:
            newest = reader.read_backward(1)
    except PositionLost:  # removed in the meantime
        return
    ahead = (newest[0].timestamp_us - now_us()) / 1e6 if newest else 0.0
    if ahead > CLOCK_SECONDS:
        yield Finding(
            "clock",
            f"the newest record is {span(ahead)} in the future: this machine's clock was set back, or a program gave that time",
            "set the clock, by NTP; new records get that same time until the clock has come there",
        )


def unsynced(journal: jlog.Journal, stats: Stats) -> Iterator[Finding]:
    """With sync="none", positions that a power loss would leave beyond the end."""
    if journal.options.sync != "none":
        return
    beyond = {
        name: at.sequence - stats.durable_end for name, at in stats.subscribers.items() if at.sequence > stats.durable_end
    }
    if beyond:
        name, records = max(beyond.items(), key=lambda item: item[1])
        yield Finding(
            "not-synced",
            f"subscriber {name!r} has committed {records:,} records that no sync has covered: a power loss takes them, and a "
            "reader with durable_only=True gets none of them",
            f"`jlogtool options --sync interval {shlex.quote(journal.path)}`",
        )


def copied(path: str) -> Iterator[Finding]:
    if is_a_copy(path, read_meta(path)):
        yield Finding(
            "copy",
            "it is a copy, or was restored: its first writer begins a new epoch, and the archive of the original refuses it",
            "give it an archive and a topic of its own, or move the original back",
        )


def unrecovered(path: str, stats: Stats) -> Iterator[Finding]:
    if not stats.writers and not is_current(path, read_meta(path)) and stats.durable_end < stats.next_sequence:
        yield Finding(
            "another-boot",
            f"no writer has opened it since the machine started, and the records from {stats.durable_end:,} on were not synced",
            f"start its writer, which recovers it; `jlogtool info {shlex.quote(path)}` lists then what is missing",
        )


def writers(path: str) -> Iterator[Finding]:
    """Writing processes that soon cannot open a file any more."""
    for process in writing_processes(path):
        try:
            used = len(os.listdir(f"/proc/{process}/fd"))
            limit = resource.prlimit(process, resource.RLIMIT_NOFILE)[0]
        except OSError:
            continue  # it has ended, or belongs to another user
        if limit > 0 and used > LIMIT_MOST * limit:
            yield Finding(
                "descriptors",
                f"process {process}, which writes to it, has {used} of at most {limit} files open",
                "raise its limit (`ulimit -n`, LimitNOFILE=), or look for files that it never closes",
            )

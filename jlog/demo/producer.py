"""A process that appends lines to the journal, one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jlog
from jlog.demo.counters import open_counters
from jlog.demo.fleet import Broken, Link
from jlog.demo.sources import InputPiece, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE = "line"  # header with the line's number in its piece, 1 for the first


@dataclass(frozen=True)
class Share:
    """The lines that one producer appends."""

    name: str
    journal: str
    counters: str
    slot: int  # the counter of its acknowledged lines
    source: str
    pieces: list[InputPiece]
    is_to_be_killed: bool
    is_restart: bool = False

    @property
    def lines(self) -> int:
        return sum(piece.lines for piece in self.pieces)

    def for_restart(self) -> Share:
        return replace(self, is_to_be_killed=False, is_restart=True)


def line_number(record: jlog.Record) -> int:
    name, value = record.headers[0]
    if name != LINE or value is None:
        raise Broken(f"record {record.sequence:,} is not the line that was appended")
    return int(value)


def produce(link: Link, share: Share) -> None:
    acknowledged = open_counters(share.counters)
    slot = share.slot
    done = 0
    with jlog.Writer(share.journal) as writer:
        if share.is_restart:
            done = _resume(link, share, acknowledged[slot])
        milestones = _milestones(link, share.lines) if share.is_to_be_killed else iter(())
        milestone = next(milestones, None)
        for key, number, line in _rest(share, done):
            while done == milestone:
                milestone = next(milestones, None)
            writer.append(line, key=key, headers=[(LINE, b"%d" % number)])
            done += 1
            acknowledged[slot] = done
        while done == milestone:
            milestone = next(milestones, None)
    link.say("done", done)


def _rest(share: Share, done: int) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields key, line number and line of all lines but the first `done`."""
    for piece in share.pieces:
        if done < piece.lines:
            for number, line in enumerate(lines_of(share.source, piece)[done:], done + 1):
                yield piece.key, number, line
        done = max(done - piece.lines, 0)


def _milestones(link: Link, lines: int) -> Iterator[int]:
    """Yields the numbers of lines at which the producer that is to be killed continues in here.

    It is killed at full speed, somewhere between the second milestone and the third. At the first it waits for a checkpoint
    after everything that it has appended: the records that it appends from then on are not removed before its restart has
    looked for them.
    """
    yield lines // 2
    link.say("half way")
    link.wait_for("go on")
    yield lines // 2 + 1
    link.say("past the checkpoint")
    yield max(3 * lines // 4, lines // 2 + 1)
    link.wait_for_the_kill()


def _resume(link: Link, share: Share, acknowledged: int) -> int:
    """Returns how many lines of this producer the journal has: those acknowledged, and one more where it was killed between the
    append and the note of it."""
    done = _lines_in_journal(share)
    if not acknowledged <= done <= acknowledged + 1:
        raise Broken(f"{acknowledged:,} lines were acknowledged before the kill, and the journal has {done:,}")
    link.say("resumed", (acknowledged, done))
    return done


def _lines_in_journal(share: Share) -> int:
    before, lines = {}, 0
    for piece in share.pieces:
        before[piece.key] = lines
        lines += piece.lines
    with jlog.Reader(share.journal, start="end") as reader:
        while records := reader.read_backward(1000):
            for record in records:
                if record.key in before:
                    return before[record.key] + line_number(record)
    return 0

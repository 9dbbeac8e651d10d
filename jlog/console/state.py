"""Subscribers, checkpoints and segments of one journal, listed in a process of its own (isolation.py), and changes of them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import jlog
from jlog.console.isolation import serve
from jlog.console.pages import address, failure, field, headed, printed, table, whole
from jlog.console.records import position_of, time_of
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER
from jlog.urls import open_journal, open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jlog.interfaces import JournalProtocol

NAMES = 100  # of subscribers, checkpoints or segments on a page
NUMBERS = ("position", "lag", "bytes held", "idle, s", "workers", "taken", "delayed", "unfinished")
PAGED = (SUBSCRIBER, CHECKPOINT, "segment")
LOCK_SECONDS = 5.0
CHANGE_FIELDS = ("path", "kind", "name", "position")
KINDS = {SUBSCRIBER: "Move the subscriber", CHECKPOINT: "Set the checkpoint"}


def lists(path: str, firsts: Mapping[str, int], may_change: bool) -> Iterator[str]:
    """Yields the lists as HTML. firsts: of each of the PAGED ones, the number of the first entry to show; 0 without one."""
    journal = open_journal(path)
    parts = [positions(journal, kind, firsts.get(kind, 0), may_change) for kind in KINDS]
    if isinstance(journal, jlog.Journal):
        parts.append(segments(journal, firsts.get("segment", 0)))
    yield "".join(parts)


def positions(journal: JournalProtocol, kind: str, first: int, may_change: bool) -> str:
    names, found = named(journal, kind, first)
    numbers = NUMBERS if any(at.work for at in found.values()) else NUMBERS[:4]
    columns = [("name", "name"), *((number, "number") for number in numbers), ("", "")]
    rows = [[printed(name), *cells(at)[: len(numbers)], remark(at)] for name, at in found.items()]
    shown = (
        table(f"{kind}s", columns, rows) + pager(journal.path, kind, first, len(names)) if names else "<p>There are none.</p>"
    )
    form = (
        f'<form action="/confirm">{field("path", journal.path)}{field("kind", kind)}'
        f'<label>{KINDS[kind]} <input name="name" size="16" required></label>'
        '<label>to <input name="position" size="26" required placeholder="begin, 1200, 1h, a checkpoint"></label>'
        "<button>Go on …</button></form>"
    )
    return f"<h2>{kind.capitalize()}s: {len(names):,}</h2>{shown}{form if may_change else ''}"


def named(journal: JournalProtocol, kind: str, first: int) -> tuple[list[str], dict[str, jlog.Position]]:
    """Returns all names, and the positions of those on the page."""
    if isinstance(journal, jlog.Journal):
        names = position_files.names(journal.path, kind)
        some = names[first : first + NAMES]
        return names, journal.subscribers(some) if kind == SUBSCRIBER else journal.checkpoints(some)
    there = journal.subscribers() if kind == SUBSCRIBER else journal.checkpoints()
    names = sorted(there)
    return names, {name: there[name] for name in names[first : first + NAMES]}


def cells(at: jlog.Position) -> list[str]:
    numbers = [f"{number:,}" for number in (at.sequence, at.lag, at.held_bytes, round(at.idle_seconds))]
    if at.work is None:
        return numbers + [""] * 4
    taken = ", ".join(f"{worker['pid']}" for worker in at.work.workers[:NAMES])
    pids = f'<span title="processes {taken}">{len(at.work.workers)}</span>'
    return [*numbers, pids, *(f"{number:,}" for number in (at.work.taken, at.work.delayed, at.work.unfinished))]


def remark(at: jlog.Position) -> str:
    remarks = {"damaged": at.damaged, "expired": at.expired, "not read for a day": at.dead, "being read": at.busy}
    return ", ".join(text for text, holds in remarks.items() if holds)


def segments(journal: jlog.Journal, first: int) -> str:
    found = journal.segments()[::-1]
    columns = (("first sequence", "number"), ("records", "number"), ("bytes", "number"), ("begun, UTC", "time"), ("", ""))
    rows = [
        [
            f"{one.first_sequence:,}",
            f"{one.records:,}",
            f"{one.size_bytes:,}",
            "" if one.created_us is None else escape(time_of(one.created_us)[:19]),
            "" if one.sealed else "open",
        ]
        for one in found[first : first + NAMES]
    ]
    shown = table("segments", columns, rows) + pager(journal.path, "segment", first, len(found))
    return f"<h2>Segments: {len(found):,}</h2>{shown}"


def pager(path: str, kind: str, first: int, count: int) -> str:
    if count <= NAMES:
        return ""
    links = []
    if first > 0:
        links.append(f'<a href="{address("state", path, **{kind: max(0, first - NAMES)})}">before</a>')
    if first + NAMES < count:
        links.append(f'<a id="more-{kind}s" href="{address("state", path, **{kind: first + NAMES})}">more</a>')
    return f"<p>{first + 1:,} to {min(first + NAMES, count):,} of {count:,} {' '.join(links)}</p>"


# --- Changes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One position to move. Raises ValueError for what a form cannot have."""

    path: str
    kind: str
    name: str
    position: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not self.name or not self.position.strip():
            raise ValueError("a change needs a kind, a name and a position")

    def sequence(self) -> int:
        """Returns the sequence that the position means now."""
        with open_reader(self.path, start=position_of(self.position)) as reader:
            return reader.position

    def make(self) -> None:
        journal = open_journal(self.path, lock_timeout=LOCK_SECONDS)
        sequence = self.sequence()
        if self.kind == SUBSCRIBER:
            journal.set_subscriber(self.name, sequence)
        else:
            journal.set_checkpoint(self.name, sequence)


def place_of(change: Change) -> str:
    return f"/state?{urlencode({'path': change.path}, errors='surrogateescape')}"


def confirmation(change: Change) -> str:
    """Says what the change will do. The form has the sequence, so that what is done is what was said."""
    journal, sequence = open_journal(change.path), change.sequence()
    is_topic = not isinstance(journal, jlog.Journal)
    only = () if is_topic else ([change.name],)
    at = (journal.subscribers if change.kind == SUBSCRIBER else journal.checkpoints)(*only).get(change.name)
    if at is None and change.kind == SUBSCRIBER:
        return failure(f"{change.path} has no subscriber {change.name!r}")
    now = f"It is at {at.sequence:,} now. " if at else "It does not exist yet. "
    if change.kind == CHECKPOINT or at is None or sequence == at.sequence:
        effect = ""
    elif sequence < at.sequence:
        effect = f"It goes back: {at.sequence - sequence:,} sequences come again. "
    else:
        # A topic keeps what its groups have read.
        effect = f"It skips {sequence - at.sequence:,} sequences{'' if is_topic else ', which retention may then remove'}. "
    fields = {"path": change.path, "kind": change.kind, "name": change.name, "position": str(sequence)}
    asked = f"{KINDS[change.kind]} <b>{printed(change.name)}</b> to {sequence:,}?"
    return whole(
        change.path,
        f"{headed(change.path, 'state')}<p>{asked} {now}{effect}</p>"
        f'<form action="/change" method="post">{"".join(field(*pair) for pair in fields.items())}'
        f'<button id="confirm">Yes</button> <a href="{address("state", change.path)}">No</a></form>',
    )


if __name__ == "__main__":
    serve(lists)

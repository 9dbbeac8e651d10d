"""The page about the state of one journal, and the confirmation of a change."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import jlog
from jlog.console.curves import curve
from jlog.console.pages import address, failure, field, headed, live, printed, table, whole
from jlog.console.records import position_of
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jlog.console.samples import Watched

NAMES = 100  # of subscribers, checkpoints or segments on a page
NUMBERS = ("position", "lag", "bytes held", "idle, s", "workers", "taken", "delayed", "unfinished")
PAGED = (SUBSCRIBER, CHECKPOINT, "segment")
LOCK_SECONDS = 5.0
CHANGE_FIELDS = ("path", "kind", "name", "position")
KINDS = {SUBSCRIBER: "Move the subscriber", CHECKPOINT: "Set the checkpoint"}


def state(watched: Watched, firsts: Mapping[str, int], may_change: bool) -> str:
    """firsts: of each of the PAGED lists, the number of the first entry to show; 0 where it has none."""
    path = watched.path
    parts = [headed(path, "state"), live(address("curves", path), curves(watched))]
    parts += [positions(path, kind, firsts.get(kind, 0), may_change) for kind in KINDS]
    parts.append(segments(path, firsts.get("segment", 0)))
    return whole(path, "".join(parts))


def curves(watched: Watched) -> str:
    complaint = f'<p class="bad">{printed(watched.error)}</p>' if watched.error else ""
    rate = curve("Appended", watched.rates(), " records/s")
    return f'{complaint}<div class="curves">{rate}{curve("Largest lag", watched.lags(), " records")}</div>'


def positions(path: str, kind: str, first: int, may_change: bool) -> str:
    names = position_files.names(path, kind)
    some = names[first : first + NAMES]
    journal = jlog.Journal(path)
    found = journal.subscribers(some) if kind == SUBSCRIBER else journal.checkpoints(some)
    numbers = NUMBERS if any(at.work for at in found.values()) else NUMBERS[:4]
    columns = [("name", "name"), *((number, "number") for number in numbers), ("", "")]
    rows = [[printed(name), *cells(at)[: len(numbers)], remark(at)] for name, at in found.items()]
    body = table(f"{kind}s", columns, rows) + pager(path, kind, first, len(names)) if names else "<p>There are none.</p>"
    form = (
        f'<form action="/confirm">{field("path", path)}{field("kind", kind)}'
        f'<label>{KINDS[kind]} <input name="name" size="16" required></label>'
        '<label>to <input name="position" size="26" required placeholder="begin, 1200, 1h, a checkpoint"></label>'
        "<button>Go on …</button></form>"
    )
    return f"<h2>{kind.capitalize()}s: {len(names):,}</h2>{body}{form if may_change else ''}"


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


def segments(path: str, first: int) -> str:
    found = jlog.Journal(path).segments()[::-1]
    columns = (
        ("first sequence", "number"),
        ("records", "number"),
        ("bytes", "number"),
        ("first record, UTC", "time"),
        ("", ""),
    )
    rows = [
        [
            f"{one.first_sequence:,}",
            f"{one.records:,}",
            f"{one.size_bytes:,}",
            escape(f"{one.first_timestamp:%Y-%m-%d %H:%M:%S}") if one.first_timestamp else "",
            "" if one.sealed else "open",
        ]
        for one in found[first : first + NAMES]
    ]
    return f"<h2>Segments: {len(found):,}</h2>{table('segments', columns, rows)}{pager(path, 'segment', first, len(found))}"


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
        with jlog.Reader(self.path, start=position_of(self.position)) as reader:
            return reader.position

    def make(self) -> None:
        journal = jlog.Journal(self.path, lock_timeout=LOCK_SECONDS)
        sequence = self.sequence()
        if self.kind == SUBSCRIBER:
            journal.set_subscriber(self.name, sequence)
        else:
            journal.set_checkpoint(self.name, sequence)


def place_of(change: Change) -> str:
    return f"/state?{urlencode({'path': change.path}, errors='surrogateescape')}"


def confirmation(change: Change) -> str:
    """Says what the change will do. The form has the sequence, so that what is done is what was said."""
    journal, sequence = jlog.Journal(change.path), change.sequence()
    at = (journal.subscribers if change.kind == SUBSCRIBER else journal.checkpoints)([change.name]).get(change.name)
    if at is None and change.kind == SUBSCRIBER:
        return failure(f"{change.path} has no subscriber {change.name!r}")
    now = f"It is at {at.sequence:,} now. " if at else "It does not exist yet. "
    if at is None or sequence == at.sequence:
        effect = ""
    elif sequence < at.sequence:
        effect = f"It goes back: {at.sequence - sequence:,} sequences come again. "
    else:
        effect = f"It skips {sequence - at.sequence:,} sequences, which retention may then remove. "
    if change.kind == CHECKPOINT:
        effect = ""
    fields = {"path": change.path, "kind": change.kind, "name": change.name, "position": str(sequence)}
    asked = f"{KINDS[change.kind]} <b>{printed(change.name)}</b> to {sequence:,}?"
    return whole(
        change.path,
        f"{headed(change.path, 'state')}<p>{asked} {now}{effect}</p>"
        f'<form action="/change" method="post">{"".join(field(*pair) for pair in fields.items())}'
        f'<button id="confirm">Yes</button> <a href="{address("state", change.path)}">No</a></form>',
    )

"""The display of `jlogtool top`, on a terminal and elsewhere."""

from __future__ import annotations

import math
import textwrap
import time
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from jlog.cli.exits import FAILED
from jlog.cli.terminal.output import complain, print_table
from jlog.cli.terminal.screen import Screen
from jlog.cli.terminal.tables import JOURNALS, SUBSCRIBERS, SubscriberRow, TableView, fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jlog.cli.terminal.sampling import Sample, Sampler

FIRST_RATES_AFTER = 0.5
INTERVALS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
HELP = """\
Rates are per second, over the time between two looks.

  q            quit
  Tab          to the other table: the one whose header is bright takes the keys
  arrows, Page Up, Page Down, Home, End    scroll
  s            sort by the next column; or by one of
{journals}
{subscribers}
  r            reverse the order
  + -          look less often, more often
  ?            this text; any key goes back

LAG      records that are not committed; LAG/S: how fast that grows or shrinks
OLDEST   age of the next record that it reads
HELD     bytes of sealed segments that it keeps from being removed
STATE    read: a process reads under this name; dead: it has records to read, and
         has not committed for a day; expired: for so long that it holds nothing
         back any more; damaged: its position cannot be read
WR       processes that have it open for writing
"""


def watch(sampler: Sampler, interval: float) -> int:
    """Shows the journals on the terminal until a key or a signal ends it. Returns the exit code."""
    samples = sampler.look()
    with Screen() as screen:
        Top(screen, sampler, samples, interval).run()
    return 0 if screen.ended is None else 128 + screen.ended


class Top:
    """The tables on the screen, and the keys that change them."""

    def __init__(self, screen: Screen, sampler: Sampler, samples: list[Sample], interval: float) -> None:
        self.screen = screen
        self.sampler = sampler
        self.samples = samples
        self.interval = interval
        self.looked = time.monotonic()
        self.patience = FIRST_RATES_AFTER
        self.journals = TableView(JOURNALS, "REC/S")
        self.subscribers = TableView(SUBSCRIBERS, "LAG")
        self.on_subscribers = True
        self.helping = False

    def run(self) -> None:
        while self.screen.ended is None:
            self.screen.draw(self.frame)
            for key in self.screen.wait(self.due - time.monotonic()):
                if key == "q":
                    return
                self.press(key)
            if time.monotonic() >= self.due:
                self.samples, self.looked, self.patience = self.sampler.look(), time.monotonic(), math.inf

    @property
    def due(self) -> float:
        return self.looked + min(self.patience, self.interval)

    def press(self, key: str) -> None:
        if self.helping:
            self.helping = False
        elif key == "?":
            self.helping = True
        elif key == "tab":
            self.on_subscribers = not self.on_subscribers
        elif key == "+":
            self.interval = min((one for one in INTERVALS if one > self.interval), default=self.interval)
        elif key == "-":
            self.interval = max((one for one in INTERVALS if one < self.interval), default=self.interval)
        elif self.on_subscribers:
            self.subscribers.press(key)
        else:
            self.journals.press(key)

    def frame(self, width: int, height: int) -> Text:
        if self.helping:
            return Text(help_text())
        subscribers = subscriber_rows(self.samples)
        room = max(2, height - 4)
        for_journals = max(1, min(len(self.samples), max(room // 3, room - len(subscribers))))
        self.journals.show(self.samples, for_journals)
        self.subscribers.show(subscribers, room - for_journals)
        self.journals.fit(width)
        self.subscribers.fit(width, without="JOURNAL" if len(self.samples) == 1 else "")
        lines = [
            Text(fitted(self.title(), width), "bold"),
            self.journals.header(width, focused=not self.on_subscribers),
            *(self.journals.line(sample, width) for sample in self.journals.seen),
            Text(""),
            self.subscribers.header(width, focused=self.on_subscribers),
            *(self.subscribers.line(row, width) for row in self.subscribers.seen),
        ]
        return Text("\n").join(lines[:height])

    def title(self) -> str:
        view: TableView[Any] = self.subscribers if self.on_subscribers else self.journals
        first = min(view.top + 1, len(view.rows))
        last = min(view.top + view.room, len(view.rows))
        return (
            f"jlogtool top  {time.strftime('%H:%M:%S')}  every {self.interval:g}s  {first}-{last} of {len(view.rows)} "
            f"by {view.column.title}{', reversed' if view.reversed else ''}  ? help  q quit"
        )


def subscriber_rows(samples: Sequence[Sample]) -> list[SubscriberRow]:
    return [
        SubscriberRow(name, sample, at) for sample in samples if sample.stats for name, at in sample.stats.subscribers.items()
    ]


def print_snapshot(samples: list[Sample]) -> None:
    """Prints everything once, as plain text."""
    journals, subscribers = TableView(JOURNALS, "JOURNAL"), TableView(SUBSCRIBERS, "LAG")
    journals.show([sample for sample in samples if not sample.error], 1)
    subscribers.show(subscriber_rows(samples), 1)
    print_table(*journals.plain_table())
    if subscribers.rows:
        click.echo()
        print_table(*subscribers.plain_table())
    unreadable = [sample for sample in samples if sample.error]
    for sample in unreadable:
        complain(sample.error)
    if unreadable:
        raise click.exceptions.Exit(FAILED)


def help_text() -> str:
    letters = [
        textwrap.fill(
            ", ".join(f"{column.key}\xa0{column.title}" for column in columns),
            78,
            initial_indent=f"{'':15}{name}: ",
            subsequent_indent=" " * 17,
        )
        for name, columns in (("journals", JOURNALS), ("subscribers", SUBSCRIBERS))
    ]
    return HELP.format(journals=letters[0], subscribers=letters[1]).replace("\xa0", " ")

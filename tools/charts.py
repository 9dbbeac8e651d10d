"""Draws docs/choosing.json, which bench/choosing.py measured, into docs/drawings: `charts.py [FOLDER]`. Prints it as tables."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import drawings

FIGURES = drawings.FOLDER.parent / "choosing.json"
WIDTH = 480  # as narrow as the text allows, so that a telephone shrinks it little
LEFT, RIGHT = 64, 24
PANEL = 176  # height of a panel's plot, in pixels
STEP = PANEL + 104  # from one panel to the next
STYLE = """
.grid { stroke: #d0d4da; }
.line { fill: none; stroke-width: 2; }
.spread { stroke-width: 1.5; stroke-opacity: 0.6; stroke-dasharray: none !important; }
.first { stroke: #2f6fc4; }
.second { stroke: #b07a1c; stroke-dasharray: 7 3; }
.third { stroke: #c04a3f; stroke-dasharray: 2 3; }
@media (prefers-color-scheme: dark) {
  .grid { stroke: #3a424c; }
  .first { stroke: #6ea8f5; }
  .second { stroke: #d9a441; }
  .third { stroke: #e5776b; }
}"""
ENDS = ("min", "median", "max")
KINDS = ("first", "second", "third")

Figure = dict[str, float]  # median, min and max
Figures = dict[str, dict[str, Figure]]  # by value of the option, and by name


@dataclass(frozen=True)
class Panel:
    """A plot of one quantity: the names of its lines among the figures, and what the figures are divided by."""

    title: str
    names: tuple[str, ...]
    head: str  # of its columns in the table, before each name
    unit: float = 1
    logarithmic: bool = False


RATES = ("one process", "two processes")
TIMES = ("50 %", "99 %", "99.9 %")
PANELS = {
    "sync": (
        Panel("million records for each second of CPU time", RATES, "million records, ", 1e6, logarithmic=True),
        Panel("µs that so many of the appends do not exceed", TIMES, "µs, ", logarithmic=True),
    ),
    "precommit": (
        Panel("million records for each second of CPU time", RATES, "million records, ", 1e6),
        Panel("µs that so many of the appends do not exceed", TIMES, "µs, ", logarithmic=True),
    ),
    "segment_bytes": (
        Panel("million records for each second of CPU time", RATES[:1], "million records, ", 1e6),
        Panel("number of files", ("files",), "", logarithmic=True),
        Panel("ms", ("open a reader", "clean"), "ms, ", logarithmic=True),
    ),
}


class Scale:
    """Maps figures to depths below the top of a plot, in pixels."""

    def __init__(self, figures: list[float], logarithmic: bool) -> None:
        self._logarithmic = logarithmic
        if logarithmic:
            low, high = math.floor(math.log10(min(figures))), math.ceil(math.log10(max(figures)))
            self.ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
        else:
            power = 10.0 ** math.floor(math.log10(max(figures)))
            step = next(part for part in (power / 5, power / 2, power, 2 * power) if max(figures) <= 6 * part)
            self.ticks = [step * number for number in range(math.ceil(max(figures) / step) + 1)]

    def depth(self, figure: float) -> float:
        low, high, at = (
            math.log10(number) if self._logarithmic else number for number in (self.ticks[0], self.ticks[-1], figure)
        )
        return PANEL * (high - at) / (high - low)


class Chart(drawings.Drawing):
    """Panels below each other, with the values of an option from left to right."""

    style = drawings.STYLE + STYLE
    width = WIDTH

    def __init__(self, title: str, panels: int) -> None:
        super().__init__(title, panels * STEP + 8)

    def panel(self, number: int, panel: Panel, figures: Figures) -> None:
        top = number * STEP + 64
        lines = {name: [at[name] for at in figures.values()] for name in panel.names}
        scale = Scale(
            [figure[end] / panel.unit for line in lines.values() for figure in line for end in ENDS], panel.logarithmic
        )
        self._parts.append(f'<text class="title" x="16" y="{top - 40}">{escape(panel.title)}</text>')
        for tick in scale.ticks:
            y = top + scale.depth(tick)
            self._parts.append(f'<path class="grid" d="M{LEFT},{y:.1f} H{WIDTH - RIGHT}"/>')
            self._parts.append(f'<text class="label" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>')
        columns = self._columns(list(figures), top + PANEL + 20)
        for place, (name, line) in enumerate(lines.items()):
            depths = [{end: top + scale.depth(figure[end] / panel.unit) for end in ENDS} for figure in line]
            self._line(KINDS[place], columns, depths)
            self._legend(LEFT + place * 150, top - 18, name, KINDS[place])

    def _columns(self, names: list[str], y: int) -> list[float]:
        """Writes the values of the option, and returns where they stand."""
        step = (WIDTH - RIGHT - LEFT) / len(names)
        columns = [LEFT + (number + 0.5) * step for number in range(len(names))]
        for x, name in zip(columns, names, strict=True):
            self._parts.append(f'<text class="label" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(name)}</text>')
        return columns

    def _line(self, kind: str, columns: list[float], depths: list[Figure]) -> None:
        """Draws the medians as a line, and at each of them the way from the least to the greatest."""
        for x, depth in zip(columns, depths, strict=True):
            self._parts.append(f'<path class="spread {kind}" d="M{x:.1f},{depth["min"]:.1f} V{depth["max"]:.1f}"/>')
        points = " ".join(f"{x:.1f},{depth['median']:.1f}" for x, depth in zip(columns, depths, strict=True))
        self._parts.append(f'<polyline class="line {kind}" points="{points}"/>')

    def _legend(self, x: int, y: int, name: str, kind: str) -> None:
        self._parts.append(f'<path class="line {kind}" d="M{x},{y} h28"/>')
        self.label(x + 34, y + 4, name)


def chart(option: str, figures: Figures) -> Chart:
    found = Chart(f"What {option} costs: {', and '.join(panel.title for panel in PANELS[option])}", len(PANELS[option]))
    for number, panel in enumerate(PANELS[option]):
        found.panel(number, panel, figures)
    return found


def table(option: str, figures: Figures) -> str:
    """Returns the figures in Markdown: the median, and in brackets the least and the greatest of the rounds if they differ."""
    columns = [(panel, name) for panel in PANELS[option] for name in panel.names]
    heads = [panel.head + name for panel, name in columns]
    lines = [[f"`{option}`", *heads], ["---", *["---:"] * len(columns)]]
    lines += [[value, *(spread(at[name], panel.unit) for panel, name in columns)] for value, at in figures.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(figure: Figure, unit: float) -> str:
    median, low, high = (rounded(figure[end] / unit) for end in ("median", "min", "max"))
    return median if low == high else f"{median} ({low}–{high})"


def rounded(number: float) -> str:
    """Returns two significant digits, or all of those before the point."""
    digits = 0 if number.is_integer() else max(1 - math.floor(math.log10(number)), 0)
    return f"{number:,.{digits}f}"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else drawings.FOLDER
    found = json.loads(FIGURES.read_text())
    for option in PANELS:
        (folder / f"choosing-{option}.svg").write_text(chart(option, found[option]).svg(), encoding="utf-8")
        print(table(option, found[option]), end="\n\n")


if __name__ == "__main__":
    main()

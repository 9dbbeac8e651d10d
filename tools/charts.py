"""Draws measurements as SVG, with matplotlib from the extra `bench`.

`charts.py` draws docs/choosing.json and docs/rivals.json, which bench/choosing.py and bench/rivals.py measured, into
docs/drawings, and prints them as tables. It also draws the rates of docs/comparisons.md there.
`charts.py RESULTS.json docs/benchmarks.svg` draws the results of `make bench ARGS='--json RESULTS.json'`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

DOCS = Path(__file__).resolve().parent.parent / "docs"
FIGURES = DOCS / "choosing.json"
RIVALS = DOCS / "rivals.json"
COMPARISONS = DOCS / "comparisons.md"
# As narrow as the text allows, so that a telephone shrinks it little.
WIDTH_INCHES, PANEL_INCHES, BAR_INCHES = 5.6, 2.8, 0.42
COLOURS = ("#2f6fc4", "#b07a1c", "#c04a3f")
STYLES = ("-", (0, (7, 3)), (0, (2, 3)))
TARGET = "#d62828"
DARK = """\
<style>
@media (prefers-color-scheme: dark) {
  svg, svg text { fill: #e6ebf0 !important; }
  [style*="fill: #ffffff"] { fill: #14181d !important; }
  [style*="stroke: #000000"] { stroke: #e6ebf0 !important; }
  [style*="stroke: #d0d4da"] { stroke: #3a424c !important; }
  [style*="fill: #2f6fc4"] { fill: #6ea8f5 !important; }
  [style*="stroke: #2f6fc4"] { stroke: #6ea8f5 !important; }
  [style*="stroke: #b07a1c"] { stroke: #d9a441 !important; }
  [style*="stroke: #c04a3f"] { stroke: #e5776b !important; }
}
</style>
</svg>
"""
ENDS = ("min", "median", "max")

OURS, OTHERS = COLOURS[0], "#8a94a0"

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
    limits: tuple[float, ...] = ()  # lines across, for what the values should stay under


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

QUEUES = (
    Panel("records put a second, one a call (logarithmic)", ("put",), "put a second", logarithmic=True),
    Panel(
        "records taken and finished a second, one a call (logarithmic)",
        ("take",),
        "taken and finished a second",
        logarithmic=True,
    ),
)
WRITERS = Panel("million records of 100 bytes a second, by one process", ("write",), "")
STEADY = ("jlog", "multiprocessing.SimpleQueue")
RIVAL_PANELS = {
    "latency": tuple(
        Panel(
            f"µs that {part} of the records do not exceed",
            tuple(f"{name}, {part}" for name in STEADY),
            "µs, ",
            logarithmic=True,
            limits=(10, 100),
        )
        for part in ("50 %", "99 %")
    ),
    "durable": (
        Panel(
            "records a second that survive a power loss",
            ("jlog, threads", "jlog, coroutines", "SQLite, threads"),
            "",
            logarithmic=True,
        ),
    ),
}
ACROSS = {"latency": "records a second", "durable": "threads or coroutines"}


# --- Drawings -----------------------------------------------------------------------------------------------------------


def canvas(rows: int, row_inches: float) -> tuple[Canvas, Any]:
    """Returns an empty drawing with `rows` plots below each other. The same figures always give the same file."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.rcParams |= {"svg.hashsalt": "jlog", "svg.fonttype": "none", "font.family": "sans-serif"}
    figure, axes = pyplot.subplots(rows, squeeze=False, figsize=(WIDTH_INCHES, row_inches * rows), layout="constrained")
    return figure, axes


def save(figure: Canvas, target: Path, source: str) -> None:
    """Writes the drawing, with dark colours for dark screens; `source` is the digest of the figures."""
    figure.savefig(target, format="svg", metadata={"Date": None, "Description": source})
    target.write_text(target.read_text(encoding="utf-8").removesuffix("</svg>\n") + DARK, encoding="utf-8")


def digest(figures: object) -> str:
    return "figures " + hashlib.sha256(json.dumps(figures).encode()).hexdigest()


def draw_option(option: str, figures: Figures, target: Path) -> None:
    """Draws panels below each other, with the values of the option from left to right."""
    figure, axes = canvas(len(PANELS[option]), PANEL_INCHES)
    for panel, plot in zip(PANELS[option], axes.flat, strict=True):
        draw_panel(plot, panel, figures)
    save(figure, target, digest(figures))


def draw_panel(plot: Axes, panel: Panel, figures: Figures) -> None:
    """Draws the medians as lines, and at each of them the range from the least to the greatest."""
    plot.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    for name, colour, style in zip(panel.names, COLOURS, STYLES, strict=False):
        low, median, high = ([at[name][end] / panel.unit for at in figures.values()] for end in ENDS)
        plot.plot(list(figures), median, color=colour, linestyle=style, label=name)
        plot.vlines(list(figures), low, high, color=colour, alpha=0.6)
    for limit in panel.limits:
        plot.axhline(limit, color=TARGET, linewidth=0.8)
    if panel.logarithmic:
        plot.set_yscale("log")
        plot.minorticks_off()
    else:
        plot.set_ylim(bottom=0)
    plot.yaxis.set_major_formatter(lambda tick, _at: f"{tick:,.10g}")
    plot.grid(axis="y", color="#d0d4da")
    plot.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=len(COLOURS), frameon=False)


def draw_rivals(part: str, figures: dict[str, Any], target: Path) -> None:
    """Draws what bench/rivals.py measured in one of its parts."""
    if part == "queues":
        figure, axes = canvas(len(QUEUES), BAR_INCHES * len(figures) + 0.8)
        for panel, plot in zip(QUEUES, axes.flat, strict=True):
            draw_bars(plot, panel, figures)
    else:
        figure, axes = canvas(len(RIVAL_PANELS[part]), PANEL_INCHES + 0.4)
        for panel, plot in zip(RIVAL_PANELS[part], axes.flat, strict=True):
            draw_panel(plot, panel, by_value(part, figures))
            plot.set_xlabel(ACROSS[part])
            plot.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=len(COLOURS), frameon=False, fontsize=9)
    save(figure, target, digest(figures))


def draw_bars(plot: Axes, panel: Panel, figures: Figures) -> None:
    """Draws a bar for each name, the greatest on top, with its median beside it and the range of the rounds in it."""
    (part,) = panel.names
    plot.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    for at, (name, found) in enumerate(sorted(figures.items(), key=lambda item: item[1][part]["median"])):
        ends = found[part]
        plot.barh(at, ends["median"], color=OURS if name.startswith("jlog") else OTHERS, height=0.4)
        plot.plot([ends["min"], ends["max"]], [at, at], color="black", linewidth=1)
        # Above its bar, since beside it a telephone would show the names and none of the bars.
        text = f"{name}: {rounded(ends['median'])}"
        plot.text(0.01, at + 0.24, text, transform=plot.get_yaxis_transform(), fontsize=9, va="bottom")
    plot.set_yticks([])
    plot.set_ylim(-0.6, len(figures) - 0.2)
    if panel.logarithmic:
        plot.set_xscale("log")
        plot.minorticks_off()
    plot.xaxis.set_major_formatter(lambda tick, _at: f"{tick:,.10g}")
    plot.tick_params(axis="x", labelsize=8)


def draw_comparison(figures: Figures, target: Path) -> None:
    """Draws a bar for each program of docs/comparisons.md."""
    figure, axes = canvas(1, BAR_INCHES * len(figures) + 0.8)
    draw_bars(axes[0, 0], WRITERS, figures)
    save(figure, target, digest(figures))


def compared() -> Figures:
    """Returns the column "write" of the table in docs/comparisons.md, one record a call for jlog; of a range, the greatest
    value."""
    rows = COMPARISONS.read_text(encoding="utf-8").partition("| million records/s |")[2].partition("\n\n")[0].splitlines()[2:]
    found = {}
    for name, figure in ((cell.strip() for cell in row.split("|")[1:3]) for row in rows):
        rate = max(map(float, re.findall(r"[\d.]+", figure)))
        found[re.sub(r"[*`]", "", name)] = {"write": dict.fromkeys(ENDS, rate)}
    del found["jlog, 1,000 a call"]
    return found


def by_value(part: str, figures: dict[str, Any]) -> Figures:
    """Returns the figures of rivals by rate or number of threads, and then by name."""
    found: Figures = {}
    for name, values in figures.items():
        for value, figure in values.items():
            at = found.setdefault(f"{int(value):,}", {})
            if part == "latency":
                short = name.partition(",")[0]
                at |= {f"{short}, {percentile[1:]} %": spread for percentile, spread in figure.items()}
            else:
                at[name] = figure
    return found


def draw_contests(contests: list[dict[str, Any]], target: Path) -> None:
    """Draws a bar for each contest: how many times as fast as its rival, from the least to the most of the rounds."""
    figure, axes = canvas(1, BAR_INCHES * len(contests) + 1)
    plot = axes[0, 0]
    for at, contest in enumerate(reversed(contests)):
        ratio = contest["ratio"]
        plot.barh(at, ratio["median"], color=COLOURS[0], height=0.4)
        plot.plot([ratio["min"], ratio["max"]], [at, at], color="black", linewidth=1)
        if wanted := re.search(r"[\d.]+", contest["target"]):
            plot.plot([float(wanted[0])] * 2, [at - 0.24, at + 0.22], color=TARGET, linewidth=2)
        # Above its bar, since beside it a telephone would show the names and none of the bars.
        name = f"{contest['name']}  ({contest['rival']['name']})"
        plot.text(0.01, at + 0.24, name, transform=plot.get_yaxis_transform(), fontsize=9, va="bottom")
    plot.set_yticks([])
    plot.set_ylim(-0.6, len(contests) - 0.2)
    plot.axvline(1, color="gray", linewidth=0.8, zorder=0)
    plot.set_xscale("log", base=2)
    ticks = [0.5, 1, 2, 4, 8, 16]
    plot.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    legend = "the median,\na line from the least to the most, and in red the target"
    plot.set_xlabel(f"times as fast as the rival in brackets: {legend}")
    save(figure, target, digest(contests))


# --- Tables -------------------------------------------------------------------------------------------------------------


def table(option: str, figures: Figures) -> str:
    """Returns the figures of an option in Markdown."""
    columns = [(panel, name, panel.head + name) for panel in PANELS[option] for name in panel.names]
    return table_of(f"`{option}`", columns, figures)


def rivals_table(part: str, figures: dict[str, Any]) -> str:
    """Returns a part of the rivals in Markdown."""
    if part == "queues":
        return table_of("", [(panel, panel.names[0], panel.head) for panel in QUEUES], figures)
    columns = [(panel, name, panel.head + name) for panel in RIVAL_PANELS[part] for name in panel.names]
    return table_of(ACROSS[part], columns, by_value(part, figures))


def table_of(corner: str, columns: list[tuple[Panel, str, str]], figures: Figures) -> str:
    """Returns a table: the median, and in brackets the least and the greatest of the rounds if they differ."""
    lines = [[corner, *(head for _, _, head in columns)], ["---", *["---:"] * len(columns)]]
    lines += [[value, *(spread(at[name], panel.unit) for panel, name, _ in columns)] for value, at in figures.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(figure: Figure, unit: float) -> str:
    median, low, high = (rounded(figure[end] / unit) for end in ("median", "min", "max"))
    return median if low == high else f"{median} ({low}–{high})"


def rounded(number: float) -> str:
    """Returns two significant digits, or all of those before the point."""
    digits = 0 if number.is_integer() else max(1 - math.floor(math.log10(number)), 0)
    return f"{number:,.{digits}f}"


def main() -> None:
    if sys.argv[1:]:
        results, target = map(Path, sys.argv[1:])
        contests = json.loads(results.read_text(encoding="utf-8"))["contests"]
        draw_contests([contest for contest in contests if contest["ratio"]], target)
        return
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    for option in PANELS:
        draw_option(option, found[option], DOCS / "drawings" / f"choosing-{option}.svg")
        print(table(option, found[option]), end="\n\n")
    for part, measured in json.loads(RIVALS.read_text(encoding="utf-8")).items():
        draw_rivals(part, measured["figures"], DOCS / "drawings" / f"rivals-{part}.svg")
        print(rivals_table(part, measured["figures"]), end="\n\n")
    draw_comparison(compared(), DOCS / "drawings" / "comparison.svg")


if __name__ == "__main__":
    main()

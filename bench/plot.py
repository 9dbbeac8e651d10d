"""Draws the results of `make bench ARGS='--json results.json'`: python bench/plot.py results.json docs/benchmarks.svg"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

OURS, TARGET = "#2a6f97", "#d62828"
DARK = """\
<style>
@media (prefers-color-scheme: dark) {
  svg { fill: #e6ebf0; }
  [style*="fill: #ffffff"] { fill: #14181d !important; }
  [style*="fill: #2a6f97"] { fill: #6ea8f5 !important; }
  [style*="stroke: #000000"] { stroke: #e6ebf0 !important; }
}
</style>
</svg>
"""


def target_of(contest: dict[str, Any]) -> float | None:
    found = re.search(r"[\d.]+", contest["target"])
    return float(found[0]) if found else None


def draw(contests: list[dict[str, Any]], target: Path) -> None:
    """Draws a bar for each contest: how many times as fast as its rival, from the least to the most of the rounds."""
    figure, axes = pyplot.subplots(figsize=(5.6, 0.42 * len(contests) + 1), layout="constrained")
    for at, contest in enumerate(reversed(contests)):
        ratio = contest["ratio"]
        axes.barh(at, ratio["median"], color=OURS, height=0.4)
        axes.plot([ratio["min"], ratio["max"]], [at, at], color="black", linewidth=1)
        wanted = target_of(contest)
        if wanted is not None:
            axes.plot([wanted, wanted], [at - 0.24, at + 0.22], color=TARGET, linewidth=2)
        # Above its bar, since beside it a telephone would show the names and none of the bars.
        name = f"{contest['name']}  ({contest['rival']['name']})"
        axes.text(0.01, at + 0.24, name, transform=axes.get_yaxis_transform(), fontsize=9, va="bottom")
    axes.set_yticks([])
    axes.set_ylim(-0.6, len(contests) - 0.2)
    axes.axvline(1, color="gray", linewidth=0.8, zorder=0)
    axes.set_xscale("log", base=2)
    ticks = [0.5, 1, 2, 4, 8, 16]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    legend = "the median,\na line from the least to the most, and in red the target"
    axes.set_xlabel(f"times as fast as the rival in brackets: {legend}")
    figure.savefig(target, format="svg", metadata={"Date": None})
    add_dark_colours(target)


def add_dark_colours(target: Path) -> None:
    text = target.read_text()
    target.write_text(text.removesuffix("</svg>\n") + DARK)


def main() -> None:
    matplotlib.rcParams["svg.hashsalt"] = "jlog"  # the same numbers make the same picture
    results, target = (Path(argument) for argument in sys.argv[1:])
    contests = json.loads(results.read_text())["contests"]
    draw([contest for contest in contests if contest["ratio"]], target)


if __name__ == "__main__":
    main()

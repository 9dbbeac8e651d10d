"""docs/drawings: the charts are those that tools/charts.py draws, and each drawing is shown."""

from __future__ import annotations

import json

import charts
import pytest

from docs.console import DOCS


@pytest.mark.parametrize("option", charts.PANELS)
def test_a_chart_and_its_table_are_those_of_the_figures(option: str) -> None:
    figures = json.loads(charts.FIGURES.read_text(encoding="utf-8"))[option]
    drawn = (DOCS / "drawings" / f"choosing-{option}.svg").read_text(encoding="utf-8")
    assert charts.digest(figures) in drawn, "run tools/charts.py"
    assert charts.table(option, figures) in (DOCS / "choosing.md").read_text(encoding="utf-8"), "run tools/charts.py"


@pytest.mark.parametrize("part", ["queues", "latency", "durable"])
def test_a_chart_of_rivals_and_its_table_are_those_of_the_figures(part: str) -> None:
    figures = json.loads(charts.RIVALS.read_text(encoding="utf-8"))[part]["figures"]
    drawn = (DOCS / "drawings" / f"rivals-{part}.svg").read_text(encoding="utf-8")
    assert charts.digest(figures) in drawn, "run tools/charts.py"
    assert charts.rivals_table(part, figures) in (DOCS / "benchmarks.md").read_text(encoding="utf-8"), "run tools/charts.py"


def test_the_chart_of_comparisons_is_that_of_its_table() -> None:
    drawn = (DOCS / "drawings" / "comparison.svg").read_text(encoding="utf-8")
    assert charts.digest(charts.compared()) in drawn, "run tools/charts.py"


def test_each_drawing_is_shown() -> None:
    page = "".join(
        (DOCS / name).read_text(encoding="utf-8")
        for name in ("how-it-works.md", "choosing.md", "comparisons.md", "benchmarks.md")
    )
    assert {path.name for path in (DOCS / "drawings").iterdir() if f"](drawings/{path.name})" not in page} == set()

"""docs/drawings: what tools/drawings.py and tools/charts.py write, and all of it is shown."""

from __future__ import annotations

import json

import charts
import drawings
import pytest

from docs.console import DOCS


@pytest.mark.parametrize("draw", drawings.DRAWINGS, ids=lambda draw: draw.__name__)
def test_a_drawing_is_that_of_its_program(draw: drawings.Draw) -> None:
    text = (DOCS / "drawings" / f"{draw.__name__}.svg").read_text(encoding="utf-8")
    assert text == draw().svg(), "run tools/drawings.py"


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


def test_each_drawing_is_shown() -> None:
    page = "".join(
        (DOCS / name).read_text(encoding="utf-8")
        for name in ("how-it-works.md", "choosing.md", "comparisons.md", "benchmarks.md")
    )
    assert {path.name for path in (DOCS / "drawings").iterdir() if f"](drawings/{path.name})" not in page} == set()


def test_text_that_its_box_cannot_hold_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="wider than 40 pixels"):
        drawings.Drawing("title", 100).box(0, 0, 40, 20, "longer than that")

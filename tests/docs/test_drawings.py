"""docs/drawings: what tools/drawings.py writes, and all of it is shown."""

from __future__ import annotations

import drawings
import pytest

from docs.console import DOCS


@pytest.mark.parametrize("draw", drawings.DRAWINGS, ids=lambda draw: draw.__name__)
def test_a_drawing_is_that_of_its_program(draw: drawings.Draw) -> None:
    text = (DOCS / "drawings" / f"{draw.__name__}.svg").read_text(encoding="utf-8")
    assert text == draw().svg(), "run tools/drawings.py"


def test_each_drawing_is_shown() -> None:
    page = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    assert {path.name for path in (DOCS / "drawings").iterdir() if f"](drawings/{path.name})" not in page} == set()


def test_text_that_its_box_cannot_hold_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="wider than 40 pixels"):
        drawings.Drawing("title", 100).box(0, 0, 40, 20, "longer than that")

"""README.md: its figures are those of docs/benchmarks.md, and its recording is one of the demo, which plays by itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import recording

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
RECORDING = ROOT / "docs" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"
FIGURES = re.findall(r"^\| .*\| (\d[\d.]*) (million records/s|µs) \| .*?(\d[\d.]*)", README, re.MULTILINE)


def shown(drawing: ElementTree.Element) -> list[str]:
    """The lines of a recording, each with all its text."""
    return ["".join(line.itertext()) for line in drawing.iter(f"{SVG}g") if line.get("class") == "line"]


def test_there_are_three_figures() -> None:
    assert len(FIGURES) == 3


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure[0])
def test_a_figure_is_that_of_the_benchmarks(figure: tuple[str, str, str]) -> None:
    value, _, compared = figure
    cells = [cell for line in BENCHMARKS.splitlines() if line.startswith("|") for cell in line.split("|")]
    medians = {cell.split()[0] for cell in cells if cell.strip()}
    assert {value, compared} <= medians


def test_the_recording_is_of_a_demo_that_proved_its_result() -> None:
    drawing = ElementTree.parse(RECORDING).getroot()
    lines = shown(drawing)
    assert lines[0] == "$ jlogtool demo"
    assert any("every acknowledged line reached audit and index" in line for line in lines)


def test_the_recording_needs_nothing_from_elsewhere() -> None:
    text = RECORDING.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|<script|href", text)


def test_a_recording_shows_each_line_when_the_terminal_did() -> None:
    program = "print('one'); print('live', end='\\r'); print('\\x1b[1;31mtwo\\x1b[0m & three')"
    lines = recording.record([sys.executable, "-c", program])
    drawing = ElementTree.fromstring(recording.draw("try", lines))
    assert shown(drawing) == ["$ try", "one", "two & three"]
    assert [text.text for text in drawing.iter(f"{SVG}text") if text.get("class") == "bold red"] == ["two"]
    seconds = [line.second for line in lines]
    assert seconds == sorted(seconds)


def test_a_command_that_fails_is_not_recorded() -> None:
    with pytest.raises(SystemExit, match="exit code 3"):
        recording.record([sys.executable, "-c", "raise SystemExit(3)"])

"""CONTRIBUTING.md: its drawing has the rooms that are there, and each file that it names is there."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def rooms_checked() -> list[str]:
    spec = importlib.util.spec_from_file_location("check_layers", ROOT / "tools" / "check_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.ROOMS)


def test_the_drawing_has_every_room_from_top_to_bottom() -> None:
    lines = re.findall(r"│ ((?:[\w/]+ ?)+?)  +\S.*│$", TEXT, re.MULTILINE)
    drawn = [[name.replace("/", ".") for name in line.split()] for line in lines]
    checked = [[name.removeprefix("jlog.") for name in line.split()] for line in rooms_checked()]
    assert drawn == checked


def test_each_file_that_it_names_is_there() -> None:
    named = re.findall(r"`((?:jlog|pyx|tests|tools|docs)/[\w/.-]+)`", TEXT)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []

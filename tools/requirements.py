"""Prints the requirements of pyproject.toml, those of its extras too that are given: `requirements.py test lint`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """Yields those of the extras; where one names other extras of the project, theirs in its place."""
    for extra in extras:
        for text in project["optional-dependencies"][extra]:
            name, bracket, others = text.partition("[")
            if bracket and name == project["name"]:
                yield from requirements(project, others.rstrip("]").split(","))
            else:
                yield text


def main() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    found = [*project["dependencies"], *requirements(project, sys.argv[1:])]
    sys.stdout.write("".join(f"{text}\n" for text in dict.fromkeys(found)))


if __name__ == "__main__":
    main()

"""Checks that arrows point one way among the files of pyx/, which import-linter cannot read.

A file uses only what is in rows below its own. What is built on the public API stays out of the core.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Topmost first; NAME.h, NAME.pxd and NAME.pyx are one.
ROWS = """
writer
attachment
sync ingest
calls arrow follow watch
iterate
append cursor rows
encode blocks rebuild roll
open_block direct
end window closing
member recovery index record wake
buffered
segment precommit
copies
lock page columns
format file
atomic checksum clock fork recent utf8
failpoint
""".strip().splitlines()

USES = (
    re.compile(r"^\s*from jlog\._core\.(\w+) c?import", re.MULTILINE),
    re.compile(r"^\s*from jlog\._core c?import (\w+)", re.MULTILINE),
    re.compile(r"^\s*c?import jlog\._core\.(\w+)", re.MULTILINE),
    re.compile(r'^\s*cdef extern from "(\w+)\.h"', re.MULTILINE),
    re.compile(r'^#include "(\w+)\.h"', re.MULTILINE),
)
ON_THE_PUBLIC_API = ("cli", "demo", "flow", "kafka", "logging", "metrics", "spark", "transform")
CORE = re.compile(r"^\s*(?:from|import) (?:jlog\._core|jlog import _core)\b", re.MULTILINE)


def problems() -> list[str]:
    height = {name: -row for row, names in enumerate(ROWS) for name in names.split()}
    found = []
    for path in sorted((ROOT / "pyx").glob("*.[hp]*")):
        text = path.read_text(encoding="utf-8")
        used = {name for pattern in USES for name in pattern.findall(text)} - {path.stem}
        if path.stem not in height:
            found.append(f"pyx/{path.name}: give {path.stem} a row in tools/check_layers.py")
            continue
        found += [
            f"pyx/{path.name}: uses {name}, which is not below it"
            for name in sorted(used & height.keys())
            if height[name] >= height[path.stem]
        ]
    for name in ON_THE_PUBLIC_API:
        for path in sorted([*(ROOT / "jlog").glob(f"{name}.py"), *(ROOT / "jlog" / name).rglob("*.py")]):
            if CORE.search(path.read_text(encoding="utf-8")):
                found.append(f"{path.relative_to(ROOT)}: reaches into jlog._core; use the public API")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)

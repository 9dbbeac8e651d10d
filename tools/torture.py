#!/usr/bin/env python3
"""Tortures jlog: writers, readers, retention, archive, kills, stops and faults at once, checked against the acknowledged
records.

`tools/torture.py --minutes 60` runs for an hour, and ends with status 1 at the first error. It needs a build with fail points:
`make build`, and then `.venv-test/bin/python tools/torture.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]

from torture.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

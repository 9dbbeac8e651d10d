#!/usr/bin/env python3
"""Tortures mirrors, captures and transforms on a cluster of three brokers, and compares both ends with what was acknowledged.

`tools/kafka_torture.py --minutes 60` runs for an hour, and ends with status 1 at the first error. It needs Java and Maven:
`make build`, and then `.venv-test/bin/python tools/kafka_torture.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]

from kafka_torture.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

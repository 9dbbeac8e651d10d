"""Moves the same lines from a journal through Spark to Parquet, and queries them there with SQL."""

from __future__ import annotations

import base64
import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from rich.table import Table

import jlog
from jlog.demo.fleet import Broken
from jlog.demo.steps import Demo
from jlog.spark.session import INSTALL_JAVA, has_java
from through_kafka import fill

FILES_SHOWN = 5
QUERY = f"""
    SELECT base64(key) AS file, count(*) AS lines, sum(length(value)) AS bytes
    FROM records GROUP BY ROLLUP (key) ORDER BY lines DESC, file NULLS FIRST LIMIT {FILES_SHOWN + 1}
"""


def through_spark(demo: Demo, *, after_stdin: bool) -> None:
    """Runs where Spark is installed; elsewhere it prints what to install. `make demo` installs it until stdin ends."""
    if after_stdin:
        demo.say("the same records go to a table with Spark, which is being installed since the start; SPARK=0 leaves it out")
        demo.activity = "Spark is being installed"
        sys.stdin.read()
        importlib.invalidate_caches()
    try:
        from jlog.spark.session import missing

        command = missing()
    except ImportError:
        command = "pip install 'pyjlog[spark]'"
    if command:
        if not has_java():
            command = f"install Java ({INSTALL_JAVA}) and run `make demo` again, which brings Spark"
        demo.say(f"without Spark this part is left out, which takes the lines to Parquet. To see it: {command}")
        return
    journal, lake = os.path.join(demo.scratch, "to-spark"), os.path.join(demo.directory, "lake")
    demo.activity = "Spark starts, and takes the lines to Parquet"
    fill(demo, journal)
    found = _pipeline(journal, lake)
    _check(demo, journal, found)
    demo.say("SELECT count(*), sum(length(value)) … GROUP BY ROLLUP (key)", "bold")
    demo.screen.console.print(_table(found["query"]))
    demo.say(f"journal, Spark, Parquet: {found['records_out']:,} records, and the query counts what the journal holds")


def _pipeline(journal: str, lake: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "jlog.cli", "pipeline", journal, lake, "--query", QUERY]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Broken(f"jlogtool pipeline: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _check(demo: Demo, journal: str, found: dict[str, Any]) -> None:
    """Checks each number that is shown against the journal."""
    lines: Counter[bytes | None] = Counter()
    size: Counter[bytes | None] = Counter()
    with jlog.Reader(journal) as reader:
        for record in reader:
            for key in (record.key, None):
                lines[key] += 1
                size[key] += len(record.value or b"")
    if (found["records_in"], found["records_out"], found["records_bad"]) != (
        demo.source.lines,
        lines[None],
        0,
    ):
        raise Broken(f"Spark was given {demo.source.lines:,} records, and its summary is {found}")
    for row in found["query"]:
        key = _key(row)
        if (row["lines"], row["bytes"]) != (lines[key], size[key]):
            raise Broken(f"of {key!r} the journal has {lines[key]:,} lines, {size[key]:,} bytes; SQL counts {row}")


def _key(row: dict[str, Any]) -> bytes | None:
    return None if row["file"] is None else base64.b64decode(row["file"])


def _table(rows: list[dict[str, Any]]) -> Table:
    found = Table()
    found.add_column("key")
    found.add_column("lines", justify="right")
    found.add_column("bytes", justify="right")
    for row in rows:
        key = _key(row)
        name = "all" if key is None else key.decode(errors="replace")
        found.add_row(name, f"{row['lines']:,}", f"{row['bytes']:,}")
    return found

"""`jlogtool dump --blocks`: the blocks that the records are stored in."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import click

import jlog
from jlog.cli.exits import DAMAGED
from jlog.cli.records.past_damage import report_damage
from jlog.cli.terminal.output import binary_stdout, iso_time, print_table, to_json

KINDS = {1: "records", 2: "state"}
CODECS = {0: "none", 1: "lz4"}


def dump_blocks(journal: str, as_json: bool) -> None:
    opened = jlog.Journal(journal)
    if as_json:
        out = binary_stdout()
        for path, block in opened.blocks():
            out.write(to_json(_block_fields(path, block)).encode("utf-8", "backslashreplace") + b"\n")
        out.flush()
    else:
        columns = ("segment", "offset ", "kind", "codec", "first ", "records ", "stored ", "raw ", "written")
        names = (
            "offset",
            "kind",
            "codec",
            "first_sequence",
            "records",
            "stored_bytes",
            "raw_bytes",
            "written",
        )
        rows = (_block_fields(path, block) for path, block in opened.blocks())
        print_table(columns, [[os.path.basename(row["path"]), *(row.get(name, "") for name in names)] for row in rows])
    report = opened.verify()
    for damage in report.damage:
        report_damage(damage)
    if not report.ok:
        raise click.exceptions.Exit(DAMAGED)


def _block_fields(path: str, block: Any) -> dict[str, Any]:
    if isinstance(block, jlog.Damage):
        return {**asdict(block), "kind": "damaged"}
    fields = {"path": path, **block._asdict()}
    fields["kind"] = KINDS.get(block.kind, block.kind)
    fields["codec"] = CODECS.get(block.codec, block.codec)
    fields["written"] = _time_of(block.clock_us)
    return fields


def _time_of(microseconds: int) -> str | None:
    try:
        return iso_time(datetime.fromtimestamp(microseconds / 1e6, timezone.utc))
    except (OverflowError, ValueError, OSError):
        return None

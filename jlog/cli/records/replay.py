"""`--pace`: prints records with the intervals of their timestamps."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, BinaryIO

import click

from jlog.cli.arguments.parameters import Parsed
from jlog.cli.records.past_damage import LOOK_EVERY
from jlog.cli.terminal.output import stdout_is_gone
from jlog.reading.pace import Pace

if TYPE_CHECKING:
    from jlog.cli.arguments.click_parts import AddOptions
    from jlog.cli.records.formats import Formatter
    from jlog.cli.records.matching import Records


def parse_pace(text: str) -> Pace:
    try:
        return Pace(float(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a number above 0: 1 is as recorded, 2 twice as fast") from None


pace_option: AddOptions = click.option(
    "--pace",
    type=Parsed("FACTOR", parse_pace),
    help="Print records with the intervals of their timestamps: 1 as recorded, 2 twice as fast.",
)


def write_records(out: BinaryIO, to_bytes: Formatter, records: Records, pace: Pace | None) -> None:
    """Writes the records at once, or each when it is due. Raises BrokenPipeError as soon as nobody reads the output any
    more."""
    if pace is None:
        out.write(to_bytes(records))
        out.flush()
        return
    for record in records:
        while (seconds := pace.delay(record.timestamp_us)) > 0:
            if stdout_is_gone():
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), "stdout")
            time.sleep(min(seconds, LOOK_EVERY))
        out.write(to_bytes([record]))
        out.flush()

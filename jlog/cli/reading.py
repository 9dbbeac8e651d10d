"""Reading on over damage, for `dump` and `tail`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jlog.cli.exits import DAMAGED
from jlog.cli.output import complain
from jlog.errors import CorruptJournal

if TYPE_CHECKING:
    import jlog

BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20


class Reading:
    """A Reader that goes on behind damage, with a line on stderr for each damaged place."""

    def __init__(self, reader: jlog.Reader) -> None:
        self.reader = reader
        self.damaged = False

    def batch(self, max_records: int = BATCH_RECORDS, timeout: float | None = 0) -> jlog.RecordBatch:
        """Empty where nothing came within `timeout` seconds."""
        while True:
            batch = self._try_batch(min(max_records, BATCH_RECORDS), timeout)
            if batch is not None:
                return batch

    def _try_batch(self, max_records: int, timeout: float | None) -> jlog.RecordBatch | None:
        """None where there was damage, which has been skipped."""
        try:
            return self.reader.read(max_records, BATCH_BYTES, timeout)
        except CorruptJournal:
            self.damaged = True
            report_damage(self.reader.skip_damage())
            return None

    def finish(self) -> None:
        """Ends the command with exit code 3 if there was damage."""
        if self.damaged:
            raise click.exceptions.Exit(DAMAGED)


def report_damage(damage: jlog.Damage) -> None:
    complain(f"{damage.path}: damaged at byte {damage.offset}: {damage.reason}; {_lost(damage)}")


def _lost(damage: jlog.Damage) -> str:
    first, count = damage.first_sequence, damage.records_lost
    if count == 0:
        return "no record is lost"
    if count == 1:
        return f"record {first} is lost"
    return f"records {first} to {first + count - 1} are lost"

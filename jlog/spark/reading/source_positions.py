"""The source position of a streaming query, which its checkpoint keeps for each journal, and the check that it still holds."""

from __future__ import annotations

from typing import Any

import jlog
from jlog.errors import JournalError
from jlog.spark.reading.journals import SparkJournal

SourcePosition = dict[str, dict[str, Any]]


def source_positions_of(sources: dict[str, SparkJournal], sequences: dict[str, int]) -> SourcePosition:
    """Returns the source position. Spark compares these as text, so equal ones are written alike."""
    return {name: _source_position(sources[name], sequences[name]) for name in sorted(sequences)}


def _source_position(source: SparkJournal, sequence: int) -> dict[str, Any]:
    journal = jlog.Journal(source.path)
    epoch = max((first, number) for number, first in journal.epochs if first <= sequence)[1]
    return {"sequence": sequence, "uuid": journal.uuid, "epoch": epoch}


def resume(source: SparkJournal, source_position: dict[str, Any], end: int, *, fail_on_data_loss: bool) -> int:
    """Returns the sequence to go on with. `end` is that of all records. Raises JournalError where the journal does not contain
    the records that the query has had."""
    journal = jlog.Journal(source.path)
    sequence = int(source_position["sequence"])
    known = [number for number, _ in journal.epochs]
    if source_position["uuid"] != journal.uuid:
        kept, reason = 0, "it is another journal now"
    elif source_position["epoch"] not in known:
        kept, reason = 0, "it was replaced by an older copy"
    else:
        parts = [first for _, first in journal.epochs[known.index(source_position["epoch"]) + 1 :][:1]]
        kept = min([*parts, end])
        reason = "it has lost its tail, or is another copy"
    if sequence <= kept:
        return sequence
    if fail_on_data_loss:
        raise JournalError(
            f"{source.path}: the query has had the records before {sequence}, and the journal has only those before {kept} of "
            f"them: {reason}. Restore it; or begin the query anew, with another checkpoint directory; the option "
            f"failOnDataLoss=false goes on at {kept}"
        )
    return kept

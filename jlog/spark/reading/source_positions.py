"""The source position of a streaming query, which its checkpoint keeps for each journal, and the check that it still holds."""

from __future__ import annotations

from typing import Any

from jlog.errors import JournalError
from jlog.spark.reading.sources import SparkSource

SourcePosition = dict[str, dict[str, Any]]


def source_position_of(source: SparkSource, sequence: int) -> dict[str, Any]:
    uuid, epoch = source.history(sequence)
    return {"sequence": sequence, "uuid": uuid, "epoch": epoch}


def before_the_first() -> dict[str, Any]:
    """Returns the position in an archive in which nothing is archived yet."""
    return {"sequence": 0, "uuid": None, "epoch": None}


def query_of(positions: SourcePosition) -> str | None:
    """Returns the id of the query with a subscriber that these are positions of; None where they do not have it."""
    return next((str(at["query"]) for at in positions.values() if "query" in at), None)


def resume(source: SparkSource, source_position: dict[str, Any], end: int, *, fail_on_data_loss: bool) -> int:
    """Returns the sequence to go on with. `end` is that of all records. Raises JournalError where the journal does not contain
    the records that the query has had."""
    sequence = int(source_position["sequence"])
    kept, reason = source.kept(source_position, end)
    if sequence <= kept:
        return sequence
    if fail_on_data_loss:
        raise JournalError(
            f"{source.path}: the query has read the records before {sequence}, but the journal has only those before {kept}: "
            f"{reason}. Restore it; or begin the query anew, with another checkpoint directory; the option "
            f"failOnDataLoss=false goes on at {kept}"
        )
    return kept

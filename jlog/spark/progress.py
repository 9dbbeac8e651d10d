"""How far a streaming query has come in each journal, from the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class JournalProgress:
    """sequence: the query has the records before this one, once its batch is done.
    latest_sequence: the end of the records that it may read.
    records_behind, bytes_behind: the distance between the two. The bytes are those of the segments, about.
    records_not_durable: records after the durable end, which are not synced yet, where the driver cannot sync them.
    newest_record_age: seconds since the timestamp of the newest archived record. None for a journal.
    """

    sequence: int
    latest_sequence: int
    records_behind: int
    bytes_behind: int
    records_not_durable: int = 0
    newest_record_age: float | None = None


def progress(last_progress: Any) -> dict[str, JournalProgress]:
    """Returns the progress in each journal or archive by its name: `jlog.spark.progress(query.lastProgress)`.

    last_progress: `query.lastProgress`, an entry of `query.recentProgress`, the `progress` of a listener's event, or its JSON.
        None, before the first batch, gives an empty dict.

    Sources of other kinds are left out.
    """
    if last_progress is None:
        return {}
    text = last_progress if isinstance(last_progress, str) else getattr(last_progress, "json", None)
    report = json.loads(text) if text is not None else last_progress
    found: dict[str, JournalProgress] = {}
    for source in report["sources"]:
        ends, latest = offset_in(source.get("endOffset")), offset_in(source.get("latestOffset"))
        for name, at in latest.items():
            if _is_ours(at) and _is_ours(ends.get(name)):
                found[name] = _of_journal(ends[name], at)
    return found


def offset_in(given: Any) -> dict[str, Any]:
    """Returns an offset, which is JSON or its content."""
    try:
        content = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return {}
    return dict(content) if isinstance(content, Mapping) else {}


def _is_ours(position: Any) -> bool:
    return isinstance(position, Mapping) and {"sequence", "uuid", "epoch"} <= position.keys()


def _of_journal(end: Mapping[str, Any], latest: Mapping[str, Any]) -> JournalProgress:
    return JournalProgress(
        sequence=int(end["sequence"]),
        latest_sequence=int(latest["sequence"]),
        records_behind=int(latest.get("recordsBehindLatest", max(0, latest["sequence"] - end["sequence"]))),
        bytes_behind=int(latest.get("bytesBehindLatest", 0)),
        records_not_durable=int(latest.get("recordsNotDurable", 0)),
        newest_record_age=latest.get("newestRecordAgeSeconds"),
    )

"""The reports of a pipeline's batches, which `--progress` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jlog.pipeline.expected import messages_between
from jlog.spark.progress import JournalProgress, offset_in, progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BatchReport = dict[str, Any]


class Reports:
    """Reports each batch once Spark has reported its progress."""

    def __init__(self, topics: Sequence[str], on_batch: Callable[[BatchReport], object] | None) -> None:
        """topics: URLs of topics, in the order that they have among the query's sources; they are the first of these. on_batch:
        None where nobody wants reports."""
        self._topics = topics
        self._on_batch = on_batch
        self._rows: dict[int, dict[str, int]] = {}  # of batches that are not reported yet, by number

    def keep(self, number: int, **rows: int) -> None:
        """Keeps the counts of a batch until it is reported."""
        if self._on_batch is not None:
            self._rows[number] = rows

    def report(self, query: StreamingQuery) -> None:
        """Reports the batches whose progress Spark has reported since the last call."""
        if self._on_batch is None or not self._rows:
            return
        for at in query.recentProgress:
            if "addBatch" not in at["durationMs"]:
                continue  # an idle query reports the number of its next batch
            rows = self._rows.pop(at["batchId"], None)
            if rows is not None:
                seconds = at["batchDuration"] / 1000
                report = {"query": query.name, "batch": at["batchId"], "time": at["timestamp"], "seconds": seconds}
                self._on_batch({**report, **rows, "behind": self._behind(at)})

    def _behind(self, at: Mapping[str, Any]) -> dict[str, BatchReport]:
        """Returns the distance of a batch's end from the newest record of each source."""
        found: dict[str, BatchReport] = {}
        for url, source in zip(self._topics, at["sources"], strict=False):
            found[url] = {"records": messages_between(offset_in(source["endOffset"]), offset_in(source["latestOffset"]))}
        return {**found, **{name: _of_journal(journal) for name, journal in progress(at).items()}}


def _of_journal(at: JournalProgress) -> BatchReport:
    found: BatchReport = {"records": at.records_behind, "bytes": at.bytes_behind}
    if at.newest_record_age is not None:
        found["newest_record_age"] = at.newest_record_age
    return found

"""A sink that keeps nothing, to find out what a flow would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jlog.flow.ends import Refuse, SourcePosition, SourcePositionChange
from jlog.flow.records import RecordLike

Refusal = Callable[[RecordLike], str]


class DryRunSink:
    """Counts the records that it is given, as if it had stored the source position. refusal: returns why the real sink
    would refuse a record, or an empty text."""

    where = "nowhere: this is a dry run"
    transaction_records = 20_000
    overhead_bytes = 0

    def __init__(self, source_positions: SourcePosition, refusal: Refusal = lambda _: "") -> None:
        self.left_out: int = 0
        self.problem = ""
        self.made: int = 0  # records that it was given, in committed transactions
        self._pending = 0
        self._source_positions = source_positions
        self._refusal = refusal

    def open(self, *, forget: bool = False) -> SourcePosition:  # noqa: ARG002
        self.drop()
        return dict(self._source_positions)

    def write(self, batch: Iterable[RecordLike], refuse: Refuse) -> int:
        size = 0
        for index, record in enumerate(batch):
            reason = self._refusal(record)
            if reason:
                if not refuse(index, record, reason):
                    break
                continue
            self._pending += 1
            size += len(record.value or b"")
        return size

    def look(self) -> None:
        """Is always ready."""

    def leave_out(self) -> None:
        self.left_out += 1

    def prepare(self, source_positions: SourcePositionChange) -> None:
        """Keeps nothing."""

    def commit(self) -> None:
        self.made += self._pending
        self.drop()

    def abort(self) -> bool:
        self.drop()
        return True

    def drop(self) -> None:
        self._pending = self.left_out = 0

    def close(self) -> None: ...

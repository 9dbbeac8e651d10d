"""What may happen between a source and a sink, beside the errors that are jlog's everywhere."""

from __future__ import annotations

from jlog.errors import JournalError


class Retry(JournalError):
    """It may go better the next time. Whether the open transaction was committed is not known: the sink says it when it
    is opened again. `cause` is what to raise where nobody tries again."""

    def __init__(self, message: str, cause: JournalError) -> None:
        super().__init__(message)
        self.cause = cause


class Refused(JournalError):
    """The sink will not have one of the records of the open transaction, which has to be given up. `record` is that one,
    where it is known."""

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record


class RecordRefused(JournalError):
    """The sink, or the function between, will not have this record. All before it has been moved, it and what follows
    has not."""

    def __init__(self, message: str, sequence: int | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence

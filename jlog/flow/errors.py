"""The errors of a source or a sink, in addition to jlog.errors."""

from __future__ import annotations

from jlog.errors import JournalError


class Retry(JournalError):
    """An error that may pass. It is not known whether the open transaction was committed: the sink says so when it is opened
    again. `cause` is the error to raise where nobody tries again."""

    def __init__(self, message: str, cause: JournalError) -> None:
        super().__init__(message)
        self.cause = cause


class Unsettled(Retry):
    """The end changes at this moment, or not all of its parts know of a change yet. A flow tries again also where it has not
    begun, unlike with an end that can't be reached."""


class Refused(JournalError):
    """The sink refuses one of the records of the open transaction, which has to be given up. `record` is anything that the
    source's describe() takes for that record; None where it is not known which one it is."""

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record


class RecordRefused(JournalError):
    """The sink, or the function before it, refuses this record. All records before it have been moved; it and the following
    ones have not."""

    def __init__(self, message: str, sequence: int | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence

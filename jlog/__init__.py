"""jlog: a journal of records that many processes write and many subscribers read."""

from importlib import import_module
from typing import TYPE_CHECKING

from jlog.care.verify import Report
from jlog.errors import (
    CheckpointNotFound,
    CorruptJournal,
    DecodeError,
    JournalClosed,
    JournalError,
    JournalExists,
    JournalFull,
    JournalLocked,
    JournalMoved,
    JournalNotFound,
    LeaseLost,
    PositionLost,
    RecordTooLarge,
    SchemaConflict,
    SubscriberBusy,
    SubscriberExists,
    SubscriberNotFound,
    UnsupportedFormat,
)
from jlog.flow.records import NewRecord
from jlog.interfaces import JournalProtocol, ReaderProtocol, RecordBatchProtocol, RecordProtocol, WriterProtocol
from jlog.journal import Journal
from jlog.options import Options, Retention
from jlog.positions.position_files import Position
from jlog.reading.reader import Reader
from jlog.record import Record, RecordBatch
from jlog.storage.damage import Damage
from jlog.storage.segments import Segment
from jlog.transform import transform, transforming
from jlog.urls import open_journal, open_reader, open_worker, open_writer
from jlog.writer import Writer

if TYPE_CHECKING:
    from jlog import archive, typed
    from jlog._core.work.task import Task
    from jlog.care.statistics import Stats, SubscriberStats
    from jlog.query.scan import scan
    from jlog.repair.repair import RepairReport
    from jlog.working.worker import Worker
else:
    # Few programs use these names, and their modules would take an eighth of the time of `import jlog`. So each is imported
    # when it is first used. Type checkers do not see this function: with it they would take every name for one of jlog's.
    _IMPORTED_LATER = {
        "RepairReport": "jlog.repair.repair",
        "Stats": "jlog.care.statistics",
        "SubscriberStats": "jlog.care.statistics",
        "Task": "jlog._core.work.task",
        "Worker": "jlog.working.worker",
        "scan": "jlog.query.scan",
    }

    def __getattr__(name):
        if name in {"archive", "typed"}:
            return import_module(f"jlog.{name}")
        if name in _IMPORTED_LATER:
            return getattr(import_module(_IMPORTED_LATER[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})  # what Tab offers


__version__ = "0.1.0"
__all__ = [
    "CheckpointNotFound",
    "CorruptJournal",
    "Damage",
    "DecodeError",
    "Journal",
    "JournalClosed",
    "JournalError",
    "JournalExists",
    "JournalFull",
    "JournalLocked",
    "JournalMoved",
    "JournalNotFound",
    "JournalProtocol",
    "LeaseLost",
    "NewRecord",
    "Options",
    "Position",
    "PositionLost",
    "Reader",
    "ReaderProtocol",
    "Record",
    "RecordBatch",
    "RecordBatchProtocol",
    "RecordProtocol",
    "RecordTooLarge",
    "RepairReport",
    "Report",
    "Retention",
    "SchemaConflict",
    "Segment",
    "Stats",
    "SubscriberBusy",
    "SubscriberExists",
    "SubscriberNotFound",
    "SubscriberStats",
    "Task",
    "UnsupportedFormat",
    "Worker",
    "Writer",
    "WriterProtocol",
    "archive",
    "open_journal",
    "open_reader",
    "open_worker",
    "open_writer",
    "scan",
    "transform",
    "transforming",
    "typed",
]

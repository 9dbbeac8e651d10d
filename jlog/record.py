"""The records that reading gives."""

from jlog._core.records.record import Record, RecordBatch

__all__ = ["Record", "RecordBatch"]

"""Bulk loading: records that are written into a file without the journal, by any process, and become a segment of it as they
are; and records that are gathered in a body, and appended together."""

from jlog._core.records.encode import EncodedRecords
from jlog._core.write.ingest import Piece, SegmentBuilder, read_piece
from jlog._core.write.writer import extend_body, ingest

__all__ = ["EncodedRecords", "Piece", "SegmentBuilder", "extend_body", "ingest", "read_piece"]

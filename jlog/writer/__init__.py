"""Appending: `Writer`, which threads, processes and coroutines use at once. Bulk loading: records that are written into a file
without the journal, by any process, become a segment of it as they are; others are gathered in a body."""

from jlog._core.records.encode import EncodedRecords
from jlog._core.write.ingest import Piece, SegmentBuilder, read_piece
from jlog._core.write.writer import extend_body, ingest
from jlog.writer.writer import Writer

__all__ = ["EncodedRecords", "Piece", "SegmentBuilder", "Writer", "extend_body", "ingest", "read_piece"]

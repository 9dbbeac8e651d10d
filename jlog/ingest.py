"""Records that are written into a file without the journal, by any process, and become a segment of it as they are."""

from jlog._core.write.ingest import Piece, SegmentBuilder, read_piece

__all__ = ["Piece", "SegmentBuilder", "read_piece"]

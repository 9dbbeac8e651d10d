"""Decompresses record batches."""

from __future__ import annotations

import lz4.frame

UNPACKED_MAX = 128 << 20  # bytes of a batch; brokers take 1 MiB compressed, unless they are told otherwise


def unpacked(packed: memoryview) -> bytes | None:
    """Returns what an LZ4 frame has; None where it is no whole frame, or has too much. lz4 releases the GIL meanwhile."""
    room = min(8 * len(packed) + (64 << 10), UNPACKED_MAX)
    context = lz4.frame.create_decompression_context()
    pieces: list[bytes] = []
    total, ended = 0, False
    while not ended:
        try:
            piece, used, ended = lz4.frame.decompress_chunk(context, packed, max_length=room)
        except RuntimeError:
            return None
        total += len(piece)
        packed = packed[used:]
        if total > UNPACKED_MAX or not (ended or len(packed)):
            return None
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)

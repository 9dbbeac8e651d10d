"""The bodies of compressed blocks: LZ4 by the package lz4, which releases the GIL meanwhile."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

_lz4 = None  # lz4.block; imported at the first use, since a journal without compression does not need it


cdef block():
    global _lz4
    if _lz4 is None:
        import lz4.block
        _lz4 = lz4.block
    return _lz4


cdef bytes compressed_or_none(raw):
    """Returns the body compressed; None if that is not smaller."""
    cdef bytes compressed = block().compress(raw, store_size=False)
    return compressed if PyBytes_GET_SIZE(compressed) < len(raw) else None


def decompress(bytes stored not None, uint32_t raw_bytes) -> bytes:
    """Returns the raw body of an LZ4 block. Raises ValueError if the bytes are not such a block."""
    lz4 = block()
    try:
        raw = lz4.decompress(stored, uncompressed_size=raw_bytes)
    except lz4.LZ4BlockError as error:
        raise ValueError(f"LZ4 cannot decompress it: {error}") from None
    if len(raw) != raw_bytes:
        raise ValueError(f"it decompresses to {len(raw)} bytes instead of {raw_bytes}")
    return raw

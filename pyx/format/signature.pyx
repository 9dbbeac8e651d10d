"""Finds the journal that a file belongs to, by the structure at the beginning of the file."""

from collections import namedtuple

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from jlog._core.format.format cimport (
    JLOG_BOUNDS_MAGIC, JLOG_CRC_OFFSET, JLOG_POSITION_MAGIC, JLOG_SEGMENT_MAGIC, jlog_bounds, jlog_load32, jlog_position,
    jlog_segment_header, jlog_structure_crc)

SIGNATURE_BYTES = max(sizeof(jlog_segment_header), sizeof(jlog_position), sizeof(jlog_bounds))
Signature = namedtuple("Signature", "uuid epoch first_sequence")


def whose(bytes image not None):
    """Returns the Signature of a file that begins with these bytes. Returns None if they are damaged, or are the beginning of
    neither a segment, nor a position, nor `bounds`. A field that the file does not state is None."""
    cdef const uint8_t *at = image
    cdef jlog_segment_header *segment = <jlog_segment_header *> at
    cdef jlog_position *position = <jlog_position *> at
    cdef jlog_bounds *bounds = <jlog_bounds *> at
    if is_valid(image, JLOG_SEGMENT_MAGIC, sizeof(jlog_segment_header)):
        return Signature(segment.uuid[:16], segment.epoch, segment.first_sequence)
    if is_valid(image, JLOG_POSITION_MAGIC, sizeof(jlog_position)):
        return Signature(position.uuid[:16], position.epoch, None)
    if is_valid(image, JLOG_BOUNDS_MAGIC, sizeof(jlog_bounds)):
        return Signature(bounds.uuid[:16], None, None)
    return None


cdef bint is_valid(bytes image, const char *magic, size_t size) except -1:
    cdef const uint8_t *at = image
    return (<size_t> len(image) >= size and memcmp(at, magic, 8) == 0
            and jlog_load32(at + JLOG_CRC_OFFSET) == jlog_structure_crc(at, size))

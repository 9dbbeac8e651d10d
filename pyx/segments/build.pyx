"""Builds what is written into segment files: their headers, blocks of records, and blocks of state."""

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from jlog._core.format.format cimport (
    JLOG_CODEC_NONE, JLOG_KIND_RECORDS, JLOG_KIND_STATE, JLOG_TAG_KEY, JLOG_TAG_LONG, JLOG_TAG_NULL, JLOG_TAG_STATE,
    jlog_block_header, jlog_crc32c, jlog_earliest_absolute_us, jlog_segment_header, jlog_structure_crc, jlog_walk,
    jlog_walk_records)
from jlog._core.segments.segment cimport fill_segment_header
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us

from jlog._core.format.constants import NONE


def segment_header(bytes uuid not None, uint64_t epoch, uint64_t first_sequence, previous, int64_t created_us,
                   uint64_t replacements) -> bytes:
    """Returns the header of a segment file. `previous`: (segment, end offset, end sequence) of the file before, or None."""
    cdef jlog_segment_header header
    segment, offset, sequence = previous if previous is not None else (NONE, 0, 0)
    fill_segment_header(&header, uuid, epoch, first_sequence, segment, offset, sequence, replacements)
    header.created_us = created_us
    header.crc = jlog_structure_crc(&header, sizeof(header))
    return (<uint8_t *> &header)[:sizeof(header)]


def moved_block(bytes block not None, bytes uuid not None, uint64_t segment, uint64_t offset) -> bytes:
    """Returns the same block, header and stored body, for another place."""
    cdef jlog_block_header header
    if len(block) < <Py_ssize_t> sizeof(header):
        raise ValueError("these bytes are not a block")
    memcpy(&header, <const uint8_t *> block, sizeof(header))
    jlog_place_block_header(&header, uuid, segment, offset)
    return (<uint8_t *> &header)[:sizeof(header)] + block[sizeof(header):]


def encode_block(bytes uuid not None, uint64_t segment, uint64_t offset, bytes raw not None, int64_t base_time_us,
                 uint64_t first_sequence, *, bint snapshot=False, uint64_t durable_end=0, int64_t floor_us=INT64_MIN) -> bytes:
    """Returns a block for this place: its header, and its body, which is not compressed."""
    cdef jlog_block_header header
    cdef jlog_block_content content
    cdef jlog_walk walk
    if jlog_walk_records(raw, len(raw), base_time_us, &walk) != 0:
        raise ValueError("these bytes are not records")
    content.kind = JLOG_KIND_STATE if snapshot else JLOG_KIND_RECORDS
    content.codec = JLOG_CODEC_NONE
    content.has_state = walk.has_state
    content.record_count = walk.record_count
    content.first_sequence = first_sequence
    content.raw_bytes = content.stored_bytes = len(raw)
    content.raw_crc = content.stored_crc = jlog_crc32c(0, <const uint8_t *> raw, len(raw))
    content.base_time_us = base_time_us
    content.max_timestamp_us = max(walk.clock_max_us, walk.explicit_max_us)
    content.earliest_us = jlog_earliest_us(walk.record_count, walk.explicit_count, jlog_earliest_absolute_us(raw, len(raw)),
                                           base_time_us)
    jlog_build_block_header(&header, &content, max(jlog_clock_us(CLOCK_REALTIME), floor_us), durable_end, uuid, segment, offset)
    return (<uint8_t *> &header)[:sizeof(header)] + raw


def encode_state(dict state not None) -> bytes:
    """Returns the state records for these entries, each with its key and its value."""
    parts = []
    for key, value in state.items():
        tag = JLOG_TAG_LONG | JLOG_TAG_STATE | JLOG_TAG_KEY | (JLOG_TAG_NULL if value is None else 0)
        for number in (tag, 0, len(value or b""), len(key), 0):
            parts.append(int(number).to_bytes(4, "little"))
        parts += [key, value or b""]
    return b"".join(parts)


def segment_start(bytes uuid not None, uint64_t epoch, uint64_t first_sequence, previous, dict state not None,
                  *, uint64_t durable_end=0, int64_t floor_us=INT64_MIN, uint64_t replacements=0) -> bytes:
    """Returns the beginning of a segment file: its header and its state block. `previous`: (segment, end offset, end sequence)
    of the file before, or None."""
    cdef jlog_segment_header header
    segment, offset, sequence = previous if previous is not None else (NONE, 0, 0)
    fill_segment_header(&header, uuid, epoch, first_sequence, segment, offset, sequence, replacements)
    return (<uint8_t *> &header)[:sizeof(header)] + encode_block(
        uuid, first_sequence, sizeof(header), encode_state(state), header.created_us, first_sequence,
        snapshot=True, durable_end=durable_end, floor_us=floor_us)

"""The constants of the format that Python code needs. format.h and record.h explain them."""

from jlog._core.format.format cimport (
    JLOG_DUAL_SLOT_STRIDE, JLOG_FORMAT_VERSION, JLOG_KIND_STATE, JLOG_RESERVATION_STRIDE, JLOG_NONE, JLOG_NUMBER_MAX,
    JLOG_SEGMENT_VERSION, JLOG_VALUE_BYTES_MAX, jlog_block_header, jlog_segment_header)

FORMAT_VERSION = JLOG_FORMAT_VERSION
SEGMENT_VERSION = JLOG_SEGMENT_VERSION
NONE = JLOG_NONE
NUMBER_MAX = JLOG_NUMBER_MAX
RESERVATION_STRIDE = JLOG_RESERVATION_STRIDE
VALUE_BYTES_MAX = JLOG_VALUE_BYTES_MAX
KIND_STATE = JLOG_KIND_STATE
SEGMENT_HEADER_BYTES = sizeof(jlog_segment_header)
BLOCK_HEADER_BYTES = sizeof(jlog_block_header)
DUAL_SLOT_OFFSETS = 0, JLOG_DUAL_SLOT_STRIDE  # offsets of the two copies of a dual-slot record

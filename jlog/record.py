"""The records that reading gives, and records in Arrow's columns."""

from jlog._core.format.constants import VALUE_BYTES_MAX
from jlog._core.records.arrow import (
    FIELDS,
    HEADERS_MAP,
    HEADERS_TEXT_MAP,
    ArrowBatch,
    Field,
    fields_of,
    requested_fields,
    schema_of,
    stream_of,
)
from jlog._core.records.columns import import_pyarrow
from jlog._core.records.record import Record, RecordBatch, columns_of, no_codec, records_of_arrow, with_decoder

__all__ = [
    "FIELDS",
    "HEADERS_MAP",
    "HEADERS_TEXT_MAP",
    "VALUE_BYTES_MAX",
    "ArrowBatch",
    "Field",
    "Record",
    "RecordBatch",
    "columns_of",
    "fields_of",
    "import_pyarrow",
    "no_codec",
    "records_of_arrow",
    "requested_fields",
    "schema_of",
    "stream_of",
    "with_decoder",
]

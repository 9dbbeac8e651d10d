"""Records as every sink takes them. All that a function has made passes here, before any sink sees it."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from jlog.flow.ends import Refused
from jlog.flow.records import Function, Headers, NewRecord, RecordLike
from jlog.record import Record

BYTES_LIKE = (bytes, bytearray, memoryview)
TIME_US_MAX = (1 << 63) - 1
NO_TIME = "its time does not fit into 64 bits of microseconds since 1970"


def apply(function: Function, record: RecordLike) -> list[RecordLike]:
    """Returns the records that a function makes of one record: none, one or several. Bytes are a new value of the same
    record. Raises Refused for a result that no sink takes."""
    made = function(record)
    if made is None:
        return []
    several = made if isinstance(made, (list, tuple)) else [made]
    return [
        normal(NewRecord(bytes(one), record.key, record.headers, record.timestamp_us) if isinstance(one, BYTES_LIKE) else one)
        for one in several
    ]


def normal(record: Any) -> RecordLike:
    """Returns the record with value and key as bytes, headers that can be read again, and a time that every journal has
    room for. Raises Refused, with the reason."""
    if isinstance(record, Record):
        return record
    try:
        value, key, headers, time_us = record.value, record.key, record.headers, record.timestamp_us
    except AttributeError:
        raise Refused(
            f"a transform must return a record, bytes, a list of them or None, not {type(record).__name__}; "
            "jlog.NewRecord.like(record, value=...) creates a record"
        ) from None
    return NewRecord(as_bytes(value, "value"), as_bytes(key, "key"), _headers(headers), time_in_range(time_us))


def as_bytes(value: Any, what: str) -> bytes | None:
    """Returns the bytes of anything like bytes. Raises Refused for another value."""
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, BYTES_LIKE):
        raise Refused(f"a record's {what} must be bytes or None, not {type(value).__name__}")
    return bytes(value)


def _headers(headers: Any) -> Headers:
    found = []
    try:
        for name, value in headers.items() if isinstance(headers, Mapping) else headers or ():
            name.encode()  # raises UnicodeEncodeError for a name that cannot be stored
            found.append((str(name), as_bytes(value, f"header {name!r}")))
    except (AttributeError, TypeError, ValueError) as error:
        raise Refused(f"a record's headers must be pairs of a str and bytes or None ({error})") from None
    return tuple(found)


def time_in_range(time_us: Any) -> int | None:
    """Returns the time as an int. Raises Refused for one that is not a whole number, or that no journal has room for."""
    if time_us is None:
        return None
    try:
        found = index(time_us)
    except TypeError:
        raise Refused(f"a record's time must be whole microseconds since 1970 or None, not {time_us!r}") from None
    if not -TIME_US_MAX <= found <= TIME_US_MAX:
        raise Refused(f"{NO_TIME} ({found})")
    return found

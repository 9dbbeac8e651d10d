"""Reads records from lines of JSON, as `dump --format jsonl` prints them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

import click

from jlog.cli.records.framing import split_lines
from jlog.flow.records import RecordColumns
from jlog.positions.names import timestamp_us_of
from jlog.system.texts import parse_iso_time

FIELDS = {"value", "value_base64", "key", "key_base64", "headers", "timestamp", "timestamp_us", "sequence"}


def split_jsonl(pieces: Iterator[bytes], name: str) -> Iterator[RecordColumns]:
    """Yields the records of the lines that are complete. A missing field is null, and the sequence is ignored."""
    number = 0
    for lines in split_lines(pieces, name):
        found = RecordColumns([], [], [], [])
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                _add(found, json.loads(line))
            except (ValueError, RecursionError) as error:
                if found.values:
                    yield found
                if isinstance(error, RecursionError):
                    error = ValueError("its values are nested too deeply")
                raise click.ClickException(f"{name}, line {number}: {error}; the lines before it are appended") from None
        if found.values:
            yield found


def _add(columns: RecordColumns, record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError('a record must be an object, {"value": "text"}')
    if unknown := record.keys() - FIELDS:
        named = ", ".join(map(json.dumps, sorted(unknown)[:3]))
        raise ValueError(
            f"a record has no field {named}; its fields are {', '.join(sorted(FIELDS))}. To append each line as a value, leave "
            "out --format jsonl"
        )
    headers = record.get("headers")
    if headers is not None and not isinstance(headers, list):
        raise ValueError(f"headers must be a list, not {json.dumps(headers)}")
    parsed = [_header(header) for header in headers or []]
    value, key, timestamp_us = _bytes(record, "value"), _bytes(record, "key"), _timestamp(record)
    columns.values.append(value)
    columns.keys.append(key)
    columns.headers.append(parsed)
    columns.timestamps_us.append(timestamp_us)


def _bytes(record: dict[str, Any], name: str) -> bytes | None:
    coded = record.get(f"{name}_base64")
    return _text(record.get(name), name) if coded is None else _decoded(coded, f"{name}_base64")


def _text(value: Any, name: str) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text or null, not {json.dumps(value)}")
    return None if value is None else value.encode()


def _decoded(coded: Any, name: str) -> bytes:
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{name} is not base64") from None


def _header(header: Any) -> tuple[str, bytes | None]:
    if not isinstance(header, list) or not 2 <= len(header) <= 3 or not isinstance(header[0], str):
        raise ValueError(f'a header must be ["name", "text"] or ["name", null, "base64"], not {json.dumps(header)}')
    header[0].encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
    return header[0], _text(header[1], "a header") if len(header) == 2 else _decoded(header[2], "a header")


def _timestamp(record: dict[str, Any]) -> int | None:
    microseconds, time = record.get("timestamp_us"), record.get("timestamp")
    if microseconds is None and time is not None:
        if not isinstance(time, str):
            raise ValueError(f"timestamp must be a time, not {json.dumps(time)}")
        return timestamp_us_of(parse_iso_time(time))
    if microseconds is not None and not (type(microseconds) is int and -(1 << 63) <= microseconds < 1 << 63):
        raise ValueError(f"timestamp_us must be an integer of 64 bits, not {json.dumps(microseconds)}")
    return microseconds

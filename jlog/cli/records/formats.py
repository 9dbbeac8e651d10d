"""The formats of records on stdout, for `--format`, each with its function."""

from __future__ import annotations

import base64
import functools
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from json.encoder import encode_basestring
from typing import Any

import click

from jlog import RecordBatch, RecordProtocol
from jlog.cli.arguments.click_parts import AddOptions, as_one
from jlog.cli.arguments.parameters import refuse_beside
from jlog.cli.records.matching import Match, Records
from jlog.cli.terminal.output import in_colour, printable

Formatter = Callable[[Records], bytes]

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, which is written after it

_BYTES_PER_LINE = 16
_AS_TEXT = bytes(byte if 32 <= byte < 127 else ord(".") for byte in range(256))


_LEVELS = {"WARNING": "yellow", "WARN": "yellow", "ERROR": "red", "CRITICAL": "red", "FATAL": "red"}


@dataclass(frozen=True)
class Format:
    name: str
    to_bytes: Formatter

    def showing(self, match: Match | None) -> Formatter:
        """Returns the function for records that match; in `pretty`, the matches stand out."""
        if match is None or self.name != "pretty":
            return self.to_bytes
        return functools.partial(pretty, found=match.shown)


def format_of(format_name: str | None, as_json: bool, framing: str) -> Format:
    if as_json:
        refuse_beside("--json", "format_name")
        format_name = "jsonl"
    if format_name is None:
        is_framed = click.get_current_context().get_parameter_source("framing") is click.core.ParameterSource.COMMANDLINE
        at_terminal = sys.stdout is not None and sys.stdout.isatty()
        format_name = "pretty" if at_terminal and not is_framed else "raw"
    if format_name != "raw":
        refuse_beside(f"--format {format_name}", "framing")
        return Format(format_name, {"jsonl": jsonl, "hex": hex_dump, "pretty": pretty}[format_name])
    return Format("raw", raw_lines if framing == "lines" else raw_length32)


format_options: AddOptions = as_one(
    "output",
    format_of,
    click.option(
        "--format",
        "format_name",
        type=click.Choice(["raw", "jsonl", "hex", "pretty"]),
        help="raw: the value alone; jsonl: a JSON object on each line; hex: bytes in hexadecimal; pretty: for people.  "
        "[default: pretty at a terminal, else raw]",
    ),
    click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl."),
    click.option(
        "--framing",
        type=click.Choice(["lines", "length32"]),
        default="lines",
        show_default=True,
        help="For raw: a newline after each value, or its length in 4 bytes, little-endian, before it.",
    ),
)


def _values(records: Records) -> list[bytes]:
    values = records.values() if isinstance(records, RecordBatch) else [record.value for record in records]
    return [value or b"" for value in values]


def raw_lines(records: Records) -> bytes:
    values = _values(records)
    return b"\n".join(values) + b"\n" if values else b""


def raw_length32(records: Records) -> bytes:
    length = struct.Struct("<I").pack
    return b"".join([part for value in _values(records) for part in (length(len(value)), value)])


def jsonl(records: Records) -> bytes:
    lines = []
    for record in records:
        time = _json_time(record.timestamp_us)
        key, value = _json_bytes("key", record.key), _json_bytes("value", record.value)
        headers = ", ".join([_json_header(name, header) for name, header in record.headers])
        lines.append(f'{{"sequence": {record.sequence}, "timestamp": {time}, {key}, {value}, "headers": [{headers}]}}\n')
    # A header's name that is not UTF-8 is escaped; json.loads makes the same string of it.
    return "".join(lines).encode("utf-8", "backslashreplace")


def _json_time(timestamp_us: int) -> str:
    text = time_text(timestamp_us)
    return f'"{text}"' if text else f'null, "timestamp_us": {timestamp_us}'


def _json_bytes(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {encode_basestring(value.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{base64.b64encode(value).decode()}"'


def _json_header(name: str, value: bytes | None) -> str:
    if value is None:
        return f"[{encode_basestring(name)}, null]"
    try:
        return f"[{encode_basestring(name)}, {encode_basestring(value.decode())}]"
    except UnicodeDecodeError:
        return f'[{encode_basestring(name)}, null, "{base64.b64encode(value).decode()}"]'


def time_text(timestamp_us: int) -> str | None:
    """Formats a time as 2026-11-20T12:34:56.123456Z. Returns None outside the years 1 to 9999, for a timestamp may be any 64
    bits."""
    second, microsecond = divmod(timestamp_us, 1_000_000)
    text = _second(second)
    return text and f"{text}.{microsecond:06d}Z"


@functools.lru_cache(maxsize=1024)
def _second(second: int) -> str | None:
    """Formats whole seconds. Many records share one, and a datetime for each record costs more than everything else."""
    try:
        return (EPOCH + timedelta(seconds=second)).isoformat()
    except OverflowError:
        return None


def pretty(records: Records, found: re.Pattern[bytes] | None = None) -> bytes:
    """Formats records for people: one line each, without characters that control a terminal. The header `level` comes before
    the value, and what is `found` in that stands out."""
    style = _styles()
    lines = []
    for record in records:
        level = "".join(_level(value, style) for name, value in record.headers if name == "level")
        headers = "".join(f" {printable(name)}={_text(value)}" for name, value in record.headers if name != "level")
        key = "" if record.key is None else style(_text(record.key), fg="yellow") + " "
        lines.append(
            f"{style(str(record.sequence), fg='green')} {style(_time_text(record), dim=True)} {level}{key}"
            f"{_marked(record.value, found, style)}{style(headers, fg='cyan')}\n"
        )
    return "".join(lines).encode("utf-8", "backslashreplace")


def _level(value: bytes | None, style: Callable[..., str]) -> str:
    text = _text(value)
    return style(text, fg=_LEVELS.get(text.upper())) + " "


def _marked(value: bytes | None, found: re.Pattern[bytes] | None, style: Callable[..., str]) -> str:
    if value is None or found is None:
        return _text(value)
    parts, at = [], 0
    for match in found.finditer(value):
        if match.end() > match.start():
            parts += [_text(value[at : match.start()]), style(_text(match[0]), fg="red", bold=True)]
            at = match.end()
    return "".join(parts) + _text(value[at:])


def hex_dump(records: Records) -> bytes:
    """Formats a heading for each record, and then the bytes of its value: offset, sixteen bytes in hexadecimal, the same in
    ASCII."""
    style = _styles()
    lines = []
    for record in records:
        value = record.value
        size = "null" if value is None else f"{len(value)} bytes"
        key = "" if record.key is None else f" key={record.key.hex()}"
        lines.append(style(f"{record.sequence} {_time_text(record)} {size}{key}", bold=True) + "\n")
        for name, header in record.headers:
            lines.append(f"  {printable(name)}={'null' if header is None else header.hex()}\n")
        lines += _hex_lines(value or b"")
    return "".join(lines).encode("utf-8", "backslashreplace")


def _hex_lines(value: bytes) -> list[str]:
    lines = []
    for offset in range(0, len(value), _BYTES_PER_LINE):
        part = value[offset : offset + _BYTES_PER_LINE]
        text = part.translate(_AS_TEXT).decode()
        lines.append(f"  {offset:08x}  {part.hex(' '):<{_BYTES_PER_LINE * 3}} |{text}|\n")
    return lines


def _time_text(record: RecordProtocol) -> str:
    return time_text(record.timestamp_us) or f"{record.timestamp_us}us"


def _text(value: bytes | None) -> str:
    return "null" if value is None else printable(value.decode("utf-8", "backslashreplace"))


def _styles() -> Callable[..., str]:
    """Returns click.style where there are colours, elsewhere a function that returns the bare text."""
    if in_colour():
        return click.style

    def bare(text: str, **_: Any) -> str:
        return text

    return bare

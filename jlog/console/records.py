"""Pages of records, and how a record is shown: its content is hostile text."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jlog
from jlog.errors import CorruptJournal
from jlog.positions.times import parse_time, reads_as_a_time

if TYPE_CHECKING:
    import re
    from datetime import datetime

RECORDS = 50  # of a page
SCANNED = 50_000  # records that a page looks at for those that match
SECONDS = 3.0  # after which a page is shown as far as it came
BATCH_RECORDS, BATCH_BYTES = 500, 4 << 20
TEXT_CHARACTERS = 2_000
HEX_BYTES = 256
JSON_BYTES = 64 << 10


@dataclass(frozen=True)
class Row:
    """The texts that a page shows of a record, whose value may be large and is not kept."""

    sequence: str
    time: str
    key: str
    value: str
    headers: str
    folded: str | None

    def cells(self) -> list[str]:
        return [self.sequence, self.time, self.key, self.value, self.headers]


@dataclass
class Page:
    first: int  # sequence of the oldest retained record
    start: int  # where the page begins
    following: int  # where the next page begins
    end: int
    rows: list[Row] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


def page_from(path: str, start: str, pattern: re.Pattern[bytes] | None) -> Page:
    """Reads the records of a page from the position on; those whose values match, within the next SCANNED records. Raises
    ValueError for a text that is not a position, and what jlog.Reader raises."""
    until = time.monotonic() + SECONDS
    journal = jlog.Journal(path)
    position = position_of(start)
    if isinstance(position, int):
        position = max(journal.first_sequence, position)
    with jlog.Reader(path, start=position) as reader:
        page = Page(journal.first_sequence, reader.position, reader.position, journal.next_sequence)
        while len(page.rows) < RECORDS and page.following - page.start < SCANNED and time.monotonic() < until:
            try:
                batch = reader.read(BATCH_RECORDS, BATCH_BYTES)
            except CorruptJournal as error:
                page.damage.append(str(error))
                reader.skip_damage()
                continue
            if not len(batch):
                page.following = reader.position
                break
            for record in batch:
                page.following = record.sequence + 1
                if pattern is None or pattern.search(record.value or b""):
                    page.rows.append(row_of(record))
                    if len(page.rows) == RECORDS:
                        break
    return page


def position_of(text: str) -> int | str | datetime:
    """Returns a position as people write it, for a Reader. Raises ValueError for a time that is not one."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    return parse_time(text).time if reads_as_a_time(text) else text


def row_of(record: jlog.Record) -> Row:
    value = record.value
    key = "" if record.key is None else text_of(record.key)
    return Row(str(record.sequence), time_of(record), key, text_of(value), headers_of(record), folded(value))


def text_of(content: bytes | None) -> str:
    """Returns UTF-8 as text, in which each character that does not print is escaped; anything else as hex."""
    if content is None:
        return "null"
    part = content[: 4 * TEXT_CHARACTERS]
    try:
        text = part.decode("utf-8", "strict" if len(part) == len(content) else "ignore")[:TEXT_CHARACTERS]
    except UnicodeDecodeError:
        more = f" … {len(content):,} bytes" if len(content) > HEX_BYTES else ""
        return content[:HEX_BYTES].hex(" ") + more
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
    return shown if len(text.encode()) == len(content) else f"{shown} … {len(content):,} bytes"


def folded(content: bytes | None) -> str | None:
    """Returns a JSON object or array in many lines; None for anything else."""
    if content is None or len(content) > JSON_BYTES or not content.lstrip().startswith((b"{", b"[")):
        return None
    try:
        return text_of(json.dumps(json.loads(content), indent=2, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        return None


def time_of(record: jlog.Record) -> str:
    try:
        return f"{record.timestamp:%Y-%m-%d %H:%M:%S.%f}"
    except (ValueError, OverflowError):  # no calendar has it
        return f"{record.timestamp_us} µs"


def headers_of(record: jlog.Record) -> str:
    return ", ".join(f"{text_of(name.encode(errors='surrogateescape'))}={text_of(value)}" for name, value in record.headers)

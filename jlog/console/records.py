"""Pages of records, and how a record is shown: its content is hostile text."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import jlog
from jlog.console.isolation import serve
from jlog.errors import CorruptJournal
from jlog.flow.ends import Refused
from jlog.system.clock import EPOCH
from jlog.system.texts import FoundTime, parse_position
from jlog.urls import open_journal, open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from jlog.interfaces import ReaderProtocol, RecordProtocol

RECORDS = 50  # of a page
SCANNED = 50_000  # records that a page looks at for those that match
SECONDS = 3.0  # after which a page is shown as far as it came
BATCH_RECORDS, BATCH_BYTES = 500, 4 << 20
TEXT_CHARACTERS = 2_000
HEX_BYTES = 256
JSON_BYTES = 64 << 10


class Row(NamedTuple):
    """The texts that a page shows of a record, whose value may be large and is not kept."""

    sequence: str
    time: str
    key: str
    value: str
    headers: str
    folded: str | None


@dataclass
class Page:
    """What a page shows. Its process hands it over with asdict() and of()."""

    first: int  # sequence of the oldest retained record
    start: int  # where the page begins
    following: int  # where the next page begins
    end: int
    rows: list[Row] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    is_newest: bool = False  # no position was asked for: the newest records, the newest first

    @classmethod
    def of(cls, found: dict[str, Any]) -> Page:
        return cls(**{**found, "rows": [Row(*row) for row in found["rows"]]})


def pages(path: str, start: str, grep: str) -> Iterator[dict[str, Any]]:
    """Yields the page from the position on, as asdict() has it."""
    yield asdict(page_from(path, start, re.compile(grep.encode()) if grep else None))


def page_from(path: str, start: str, pattern: re.Pattern[bytes] | None) -> Page:
    """Reads the records of a page from the position on, or the newest ones without a position; with a pattern those whose
    values match, within SCANNED records. Raises ValueError for a text that is not a position, and what open_reader raises."""
    until = time.monotonic() + SECONDS
    journal = open_journal(path)
    back = RECORDS if pattern is None else SCANNED
    position = position_of(start) if start else max(0, journal.next_sequence - back)
    if isinstance(position, int):
        position = max(journal.first_sequence, position)
    with open_reader(path, start=position) as reader:
        page = Page(journal.first_sequence, reader.position, reader.position, journal.next_sequence)
        while (not start or len(page.rows) < RECORDS) and page.following - page.start < SCANNED and time.monotonic() < until:
            try:
                if not add_some(page, reader, pattern, newest=not start):
                    break
            except CorruptJournal as error:
                page.damage.append(str(error))
                if not isinstance(reader, jlog.Reader):
                    break
                reader.skip_damage()
    if not start:
        page.is_newest, page.rows = True, page.rows[::-1]
    return page


def add_some(page: Page, reader: ReaderProtocol, pattern: re.Pattern[bytes] | None, newest: bool) -> bool:
    """Reads on, and adds what matches, at most RECORDS: the first ones, or the newest. Returns False at the end. Keeps nothing
    that it reads, since a record may have 1 GiB."""
    batch = reader.read(BATCH_RECORDS, BATCH_BYTES)
    for record in batch:
        page.following = record.sequence + 1
        value = record.value
        if pattern is None or pattern.search(value or b""):
            page.rows.append(row_of(record, value))
            if len(page.rows) > RECORDS:
                del page.rows[0]
            if len(page.rows) == RECORDS and not newest:
                return True
    page.following = reader.position
    return len(batch) > 0


def position_of(text: str) -> int | str | datetime:
    """Returns a position as people write it, for a Reader. Raises ValueError for a time that is not one."""
    found = parse_position(text.strip())
    return found.time if isinstance(found, FoundTime) else found


def row_of(record: RecordProtocol, value: bytes | None) -> Row:
    """value: that of the record, which copies it at each call."""
    key = "" if record.key is None else text_of(record.key)
    return Row(str(record.sequence), time_of(record.timestamp_us), key, text_of(value), headers_of(record), folded(value))


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


def time_of(timestamp_us: int) -> str:
    try:
        return f"{EPOCH + timedelta(microseconds=timestamp_us):%Y-%m-%d %H:%M:%S.%f}"
    except OverflowError:  # no calendar has it
        return f"{timestamp_us} µs"


def headers_of(record: RecordProtocol) -> str:
    try:
        headers = record.headers
    except Refused as refused:  # of a topic
        return str(refused)
    return ", ".join(f"{text_of(name.encode(errors='surrogateescape'))}={text_of(value)}" for name, value in headers)


if __name__ == "__main__":
    serve(pages)

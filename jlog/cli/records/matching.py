"""`--grep` and its companions, which select the records that `dump` and `tail` print."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import click

from jlog.cli.arguments.click_parts import AddOptions, as_one
from jlog.cli.arguments.parameters import PATTERN, Parsed
from jlog.system.texts import parse_pattern

if TYPE_CHECKING:
    from jlog import RecordBatchProtocol, RecordProtocol

Records: TypeAlias = "Sequence[RecordProtocol] | RecordBatchProtocol"


def parse_header(text: str) -> tuple[str, re.Pattern[bytes]]:
    """Parses NAME=REGEX."""
    name, equals, pattern = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not NAME=REGEX, such as level=ERROR")
    return name, parse_pattern(os.fsencode(pattern))


# A pattern matches the text between places as it is written, a character after a backslash as that character, unless it has a
# part that matches in several ways.
_PART = re.compile(rb"(?P<place>[.^$])|(?P<several>[][*+?{}()|]|\\(?:[0-9A-Za-z_]|\Z))|\\?(?P<character>.)", re.DOTALL)

HEADER = Parsed("NAME=REGEX", parse_header)


@dataclass(frozen=True)
class Match:
    """Says which records to print: those in which every pattern is found, or the others if not `wanted`."""

    value: re.Pattern[bytes] | None
    key: re.Pattern[bytes] | None
    headers: tuple[tuple[str, re.Pattern[bytes]], ...]
    wanted: bool

    def __call__(self, record: RecordProtocol) -> bool:
        return self._finds_all(record) is self.wanted

    @property
    def shown(self) -> re.Pattern[bytes] | None:
        """The pattern whose matches stand out in the values that are printed."""
        return self.value if self.wanted else None

    @property
    def needle(self) -> bytes | None:
        """Bytes that the value of each wanted record has; None where no such bytes are known."""
        if self.value is None or not self.wanted or self.value.flags & re.IGNORECASE:
            return None
        pieces = [bytearray()]
        for part in _PART.finditer(self.value.pattern):
            if part["several"] is not None:
                return None
            if part["place"] is not None:
                pieces.append(bytearray())
            else:
                pieces[-1] += part["character"]
        return bytes(max(pieces, key=len)) or None

    def _finds_all(self, record: RecordProtocol) -> bool:
        return (
            _finds(self.value, record.value)
            and _finds(self.key, record.key)
            and all(
                any(name == given and _finds(pattern, text) for given, text in record.headers) for name, pattern in self.headers
            )
        )


def _finds(pattern: re.Pattern[bytes] | None, text: bytes | None) -> bool:
    return pattern is None or (text is not None and pattern.search(text) is not None)


def selected(records: Records, match: Match | None) -> Records:
    """Returns the records that match; all without a Match."""
    return records if match is None else [record for record in records if match(record)]


def match_of(
    value: re.Pattern[bytes] | None,
    key: re.Pattern[bytes] | None,
    headers: tuple[tuple[str, re.Pattern[bytes]], ...],
    ignore_case: bool,
    invert_match: bool,
) -> Match | None:
    if value is None and key is None and not headers:
        if ignore_case or invert_match:
            raise click.UsageError("--ignore-case and --invert-match need --grep, --grep-key or --grep-header")
        return None
    if ignore_case:
        value, key = (pattern and re.compile(pattern.pattern, re.IGNORECASE) for pattern in (value, key))
        headers = tuple((name, re.compile(pattern.pattern, re.IGNORECASE)) for name, pattern in headers)
    return Match(value, key, headers, not invert_match)


grep_options: AddOptions = as_one(
    "match",
    match_of,
    click.option("--grep", "value", type=PATTERN, help="Only records in whose value REGEX is found."),
    click.option("--grep-key", "key", type=PATTERN, help="Only records in whose key REGEX is found."),
    click.option("--grep-header", "headers", type=HEADER, multiple=True, help="Only records in whose header REGEX is found."),
    click.option("-i", "--ignore-case", is_flag=True, help="Let these options take a and A as the same."),
    click.option("-v", "--invert-match", is_flag=True, help="Only records that these options leave out."),
)

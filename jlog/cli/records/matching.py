"""`--grep` and its companions, which select the records that `dump` and `tail` print."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from jlog.cli.arguments.parameters import PATTERN

if TYPE_CHECKING:
    from jlog import RecordProtocol

Match = Callable[["RecordProtocol"], bool]


def grep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options. The command gets `match`, a function that says whether to print a record; None prints all."""

    @click.option("--grep", "value", type=PATTERN, help="Only records in whose value REGEX is found.")
    @click.option("--grep-key", "key", type=PATTERN, help="Only records in whose key REGEX is found.")
    @click.option("-i", "--ignore-case", is_flag=True, help="Let --grep and --grep-key take a and A as the same.")
    @click.option("-v", "--invert-match", is_flag=True, help="Only records that --grep and --grep-key leave out.")
    @functools.wraps(command)
    def with_match(
        *arguments: Any,
        value: re.Pattern[bytes] | None,
        key: re.Pattern[bytes] | None,
        ignore_case: bool,
        invert_match: bool,
        **options: Any,
    ) -> None:
        if value is None and key is None:
            if ignore_case or invert_match:
                raise click.UsageError("--ignore-case and --invert-match need --grep or --grep-key")
            command(*arguments, match=None, **options)
            return
        if ignore_case:
            value, key = (pattern and re.compile(pattern.pattern, re.IGNORECASE) for pattern in (value, key))
        command(*arguments, match=_match(value, key, not invert_match), **options)

    return with_match


def _match(value: re.Pattern[bytes] | None, key: re.Pattern[bytes] | None, wanted: bool) -> Match:
    def finds(pattern: re.Pattern[bytes] | None, text: bytes | None) -> bool:
        return pattern is None or (text is not None and pattern.search(text) is not None)

    return lambda record: (finds(value, record.value) and finds(key, record.key)) is wanted

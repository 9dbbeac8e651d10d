"""The options of `append` that say how a file is followed, and what its lines are labelled with."""

from __future__ import annotations

from dataclasses import dataclass

import click

from jlog.cli.arguments.click_parts import AddOptions, as_one
from jlog.cli.arguments.parameters import SECONDS, SIZE
from jlog.cli.records.growing_file import LongLines
from jlog.cli.records.log_file import ROTATED_SECONDS
from jlog.record import VALUE_BYTES_MAX

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Following:
    rotated_seconds: float
    long_lines: LongLines
    options: tuple[str, ...]  # that were used


def _following(rotated_for: float | None, max_line: int | None, long_lines: str | None) -> Following:
    if max_line is not None and not 0 < max_line <= VALUE_BYTES_MAX:
        raise click.UsageError("--max-line is from 1 to 1G: a record has at most 1 GiB")
    chosen = {"--rotated-for": rotated_for, "--max-line": max_line, "--long-lines": long_lines}
    limit = LongLines(LongLines.bytes_max if max_line is None else max_line, long_lines != "leave-out")
    used = tuple(option for option, value in chosen.items() if value is not None)
    return Following(ROTATED_SECONDS if rotated_for is None else rotated_for, limit, used)


follow_options: AddOptions = as_one(
    "following",
    _following,
    click.option(
        "--rotated-for",
        type=SECONDS,
        help="With --follow: how long a rotated file is followed after it has changed or got its name: lines that its writer "
        "still writes are appended.  [1h]",
    ),
    click.option("--max-line", type=SIZE, help="With --follow: longest line, 1 to 1G bytes. Longer ones are cut.  [16M]"),
    click.option(
        "--long-lines",
        type=click.Choice(["cut", "leave-out"]),
        help="With --follow: what becomes of a line that is longer than --max-line.  [cut]",
    ),
)


@dataclass(frozen=True)
class Labels:
    """The key and the headers that each line gets. `{file}` in them stands for the file's name."""

    key: str | None
    headers: tuple[tuple[str, str], ...]

    def of(self, file: str, lines: int) -> tuple[list[bytes] | None, list[Headers] | None]:
        key = None if self.key is None else [_filled(self.key, file)] * lines
        headers: Headers = [(name, _filled(value, file)) for name, value in self.headers]
        return key, [headers] * lines if headers else None


def _filled(text: str, file: str) -> bytes:
    return text.replace("{file}", file).encode(errors="surrogateescape")


def _labels(key: str | None, header: tuple[str, ...]) -> Labels:
    pairs = [text.partition("=") for text in header]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"--header is NAME=VALUE, and not {name or equals!r}")
    return Labels(key, tuple((name, value) for name, _, value in pairs))


label_options: AddOptions = as_one(
    "labels",
    _labels,
    click.option("--key", metavar="TEXT", help="Key of each record; `{file}` in it is FILE."),
    click.option(
        "--header",
        multiple=True,
        metavar="NAME=VALUE",
        help="A header of each record; `{file}` in it is FILE. Several may be given.",
    ),
)

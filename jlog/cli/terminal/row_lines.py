"""A table of anything at a terminal, with one line for each row."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

import click

from jlog.cli.terminal.output import in_colour, printable

LEAST = 12  # characters that a cell keeps, if it has them
BETWEEN = "  "


def print_row_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints the rows, each on one line of the terminal. If the columns do not fit, cells are cut. If that is not enough,
    columns in the middle are left out, and a last line names them. A column whose name ends in a space is aligned to the
    right."""
    from rich.cells import cell_len, set_cell_size

    def cell(text: str, width: int, column: str) -> str:
        if cell_len(text) > width:
            return set_cell_size(text, width - 1) + "…"
        space = " " * (width - cell_len(text))
        return space + text if column.endswith(" ") else text + space

    cells = [[printable(text) for text in row] for row in rows]
    heads = [printable(column.rstrip(" ")) for column in columns]
    needs = [max(1, *map(cell_len, texts)) for texts in zip(heads, *cells, strict=True)]
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("\r\x1b[2K", nl=False)  # clears a line of progress
    shown, widths = fitted(needs, shutil.get_terminal_size().columns)
    for number, row in enumerate([heads, *cells]):
        line = BETWEEN.join(
            "…" if at is None else cell(row[at], width, columns[at]) for at, width in zip(shown, widths, strict=True)
        )
        click.secho(line.rstrip(), bold=(number == 0 and in_colour()) or None)
    left_out = [head for at, head in enumerate(heads) if at not in shown]
    if left_out:
        click.echo(f"{len(left_out)} of {len(heads)} columns are left out: {', '.join(left_out)}; SELECT some, or --format csv")


def fitted(needs: Sequence[int], width: int) -> tuple[list[int | None], list[int]]:
    """Returns the columns to show, in which None stands for those that are left out, and the width of each."""
    least = [min(need, LEAST) for need in needs]
    shown = _chosen(least, width)
    widths = [1 if at is None else least[at] for at in shown]
    wants = [1 if at is None else needs[at] for at in shown]
    left = width - _total(widths)
    while left > 0 and widths != wants:
        narrow = min((at for at in range(len(shown)) if widths[at] < wants[at]), key=widths.__getitem__)
        widths[narrow] += 1
        left -= 1
    return shown, [min(size, max(1, width)) for size in widths]


def _chosen(least: Sequence[int], width: int) -> list[int | None]:
    """Returns as many columns as fit: the first ones, None for those that are left out, and as many of the last ones."""
    count = len(least)
    for kept in range(count, 0, -1):
        last = kept // 2
        gap: list[int | None] = [None] if kept < count else []
        shown = [*range(kept - last), *gap, *range(count - last, count)]
        if _total([1 if at is None else least[at] for at in shown]) <= width:
            return shown
    return [0]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(BETWEEN) * (len(widths) - 1)

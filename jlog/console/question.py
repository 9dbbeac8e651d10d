"""A statement of SQL, answered in a process of its own (apart.py)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import jlog
from jlog.console.apart import serve
from jlog.console.records import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROWS = 500
ANSWER_CHARACTERS = 4 << 20
# Nothing but the journals can be read, and nothing written.
CONFINED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "1",
    "temp_directory": "",
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sources_of(statement: str, path: str, paths: Iterable[str]) -> dict[str, str]:
    """Returns the tables that the statement may use: `journal` for the journal at `path`, and each other journal by the name of
    its directory, if the statement has that word."""
    words = set(_WORD.findall(statement))
    named = {os.path.basename(other): other for other in paths}
    found = {name: other for name, other in named.items() if name in words}
    return found | ({"journal": path} if path else {})


def answers(statement: str, sources: Mapping[str, str], parse: str | None) -> Iterator[dict[str, Any]]:
    """Yields {"columns", "rows", "more", "damage"} with texts."""
    import duckdb

    from jlog.query.duckdb_sql import execute

    damage = []
    with duckdb.connect(config=CONFINED) as connection:
        scans = {
            name: jlog.scan(path, parse=parse).told(lambda found: damage.append((found.path, found.offset)), lambda _: None)
            for name, path in sources.items()
        }
        try:
            found = execute(connection, statement, scans)
            if found is None or found.description is None:
                raise ValueError("The statement is empty.")
            columns = [text_of(column[0].encode(errors="replace")) for column in found.description]
            rows: list[list[str]] = []
            left = ANSWER_CHARACTERS
            while len(rows) < ROWS and left > 0 and (row := found.fetchone()) is not None:
                rows.append([shown(value) for value in row])
                left -= sum(map(len, rows[-1]))
            more = found.fetchone() is not None
        except duckdb.Error as error:
            raise ValueError(str(error)) from None
        yield {"columns": columns, "rows": rows, "more": more, "damage": len(set(damage))}


def shown(value: Any) -> str:
    if value is None or isinstance(value, bytes):
        return text_of(value)
    return text_of(str(value).encode(errors="replace"))


if __name__ == "__main__":
    serve(answers)

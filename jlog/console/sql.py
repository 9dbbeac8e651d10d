"""A statement of SQL, answered in a process of its own (isolation.py)."""

from __future__ import annotations

import os
import re
import resource
from typing import TYPE_CHECKING, Any

import jlog
from jlog.console.isolation import serve
from jlog.console.records import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import duckdb

ROWS = 500
ANSWER_CHARACTERS = 4 << 20
# Only the journals can be read, and nothing can be written. These settings alone do not ensure that, since each version of
# DuckDB has its own way around them. So a statement may only select, the settings are locked, and the kernel lets its process
# write to no file.
CONFINED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "1",
    "temp_directory": "",
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sources_of(statement: str, path: str, paths: Iterable[str]) -> dict[str, list[str]]:
    """Returns the tables that the statement may use, each with its journals: `journal` is the one at `path`. Each other journal
    has the name of its directory, and its whole path, if the statement has that word, or has it in double quotes. If several
    journals have one name, none of them has it as a table."""
    try:
        statement.encode()
    except UnicodeEncodeError:
        raise ValueError("The statement is not UTF-8.") from None
    words = {word.lower() for word in _WORD.findall(statement)}
    found: dict[str, list[str]] = {}  # in SQL, upper case is lower case
    for other in paths:
        name = os.path.basename(other).lower()
        if name in words or f'"{name}"' in statement.lower():
            found.setdefault(name, []).append(other)
        if f'"{other}"' in statement:
            found.setdefault(other.lower(), []).append(other)
    return found | ({"journal": [path]} if path else {})


def answers(statement: str, sources: Mapping[str, list[str]], parse: str | None) -> Iterator[dict[str, Any]]:
    """Yields {"columns", "rows", "more", "damage"} with texts."""
    import duckdb

    from jlog.query.duckdb_sql import execute, reason_of

    os.chdir("/")  # a name that DuckDB takes for a file is not a file of the console's working directory
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    damage = []
    with duckdb.connect(config=CONFINED) as connection:
        scans = {
            name: jlog.scan(path, parse=parse).told(lambda found: damage.append((found.path, found.offset)), lambda _: None)
            for name, (path, *others) in sources.items()
            if not others
        }
        try:
            _check_that_it_selects(connection, statement)
            found = execute(connection, statement, scans, locked=True)
            if found is None or found.description is None:
                raise ValueError("The statement is empty.")
            columns = [text_of(column[0].encode(errors="replace")) for column in found.description]
            rows: list[list[str]] = []
            left = ANSWER_CHARACTERS
            while len(rows) < ROWS and left > 0 and (row := found.fetchone()) is not None:
                rows.append([shown(value) for value in row])
                left -= sum(map(len, rows[-1]))
            more = found.fetchone() is not None
        except duckdb.CatalogException as error:
            raise ValueError(f"{error}{_several(sources)}") from None
        except duckdb.Error as error:
            raise ValueError(reason_of(error)) from None
        yield {"columns": columns, "rows": rows, "more": more, "damage": len(set(damage))}


def _check_that_it_selects(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    import duckdb

    for part in connection.extract_statements(statement):
        if part.type != duckdb.StatementType.SELECT:
            raise ValueError(
                "The console answers SELECT, FROM, WITH, VALUES, DESCRIBE, SUMMARIZE and PIVOT … ON … IN (…), and not "
                f"{part.type.name}; `jlogtool sql` runs every statement."
            )


def _several(sources: Mapping[str, list[str]]) -> str:
    """Says how to name journals whose directories have one name."""
    return "".join(
        f"\n{len(paths)} journals have the name {name}; write the path: "
        + ", ".join(f'FROM "{path}"' for path in sorted(paths))
        for name, paths in sources.items()
        if len(paths) > 1
    )


def shown(value: Any) -> str:
    if value is None or isinstance(value, bytes):
        return text_of(value)
    return text_of(str(value).encode(errors="replace"))


if __name__ == "__main__":
    serve(answers)

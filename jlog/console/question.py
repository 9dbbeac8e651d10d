"""A statement of SQL, answered by a process of its own: however it goes wrong, the console and its pages do not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jlog.console.records import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CPU_SECONDS = 10  # of the process, so that other work of the machine does not end a statement
WAIT_SECONDS = 240.0  # for a process that waits, as for a disk
ROWS = 500
ANSWER_CHARACTERS = 4 << 20
MEMORY_BYTES = 2 << 30  # of the process
AT_ONCE = 2
# Nothing but the journals can be read, and nothing written.
CONFINED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "1",
    "temp_directory": "",
}
TOO_LONG = (
    "The statement took too long, and was ended. Ask for fewer records, as with WHERE sequence >= … or a time, or use "
    "`jlogtool sql`, which has no limit."
)
TOO_LARGE = "The statement needed more memory than the console gives it, and was ended; use `jlogtool sql`."
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_places = asyncio.Semaphore(AT_ONCE)


def sources_of(statement: str, path: str, paths: Iterable[str]) -> dict[str, str]:
    """Returns the tables that the statement may use: `journal` for the journal at `path`, and each other journal by the name of
    its directory, if the statement has that word."""
    words = set(_WORD.findall(statement))
    named = {os.path.basename(other): other for other in paths}
    found = {name: other for name, other in named.items() if name in words}
    return found | ({"journal": path} if path else {})


async def answer(statement: str, sources: Mapping[str, str], parse: str | None) -> dict[str, Any]:
    """Returns {"columns", "rows", "more", "damage"} with texts, or {"error"}."""
    question = json.dumps({"statement": statement, "sources": sources, "parse": parse, "cpu_seconds": CPU_SECONDS})
    async with _places:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jlog.console.question"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(question.encode()), WAIT_SECONDS)
            found: dict[str, Any] = json.loads(out)
            return found
        except asyncio.TimeoutError:
            return {"error": TOO_LONG}
        except ValueError:
            # The limit of CPU time ends it with a signal.
            return {"error": TOO_LONG if (process.returncode or 0) < 0 else TOO_LARGE}
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def run(question: dict[str, Any]) -> dict[str, Any]:
    import duckdb

    import jlog
    from jlog.query.duckdb_plan import execute

    damage = []
    try:
        with duckdb.connect(config=CONFINED) as connection:
            scans = {
                name: jlog.scan(path, parse=question["parse"]).told(
                    lambda found: damage.append((found.path, found.offset)), lambda _: None
                )
                for name, path in question["sources"].items()
            }
            found = execute(connection, question["statement"], scans)
            if found is None or found.description is None:
                return {"error": "The statement is empty."}
            columns = [text_of(column[0].encode(errors="replace")) for column in found.description]
            rows: list[list[str]] = []
            left = ANSWER_CHARACTERS
            while len(rows) < ROWS and left > 0 and (row := found.fetchone()) is not None:
                rows.append([shown(value) for value in row])
                left -= sum(map(len, rows[-1]))
            return {"columns": columns, "rows": rows, "more": found.fetchone() is not None, "damage": len(set(damage))}
    except (duckdb.Error, jlog.JournalError, OSError, ValueError, ImportError) as error:
        return {"error": str(error)}


def shown(value: Any) -> str:
    if value is None or isinstance(value, bytes):
        return text_of(value)
    return text_of(str(value).encode(errors="replace"))


def main() -> None:
    question = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (question["cpu_seconds"],) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    json.dump(run(question), sys.stdout)


if __name__ == "__main__":
    main()

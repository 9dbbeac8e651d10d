"""Work on a journal in a process of its own: however large or slow the journal is, and whatever is asked of it, the console and
its other pages go on."""

from __future__ import annotations

import asyncio
import ctypes
import json
import re
import resource
import signal
import sys
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.system.python import python_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

CPU_SECONDS = 10  # of a process that answers, so that other work of the machine does not end it
WAIT_SECONDS = 240.0  # for a process that waits, as for a disk
MEMORY_BYTES = 4 << 30  # of a process: enough for the largest record, and a copy of it
LINE_BYTES = 64 << 20
PR_SET_PDEATHSIG = 1
NO_MEMORY = 12  # the exit code of a process that has none left
AT_ONCE, AT_ONCE_OF_ONE = 8, 2  # answers: of all journals, and of one, so that a slow one leaves room for others
TOO_LONG = (
    "This took more than {} seconds of CPU time, and was ended. Ask for fewer records: from a later position, with a simpler "
    "pattern, or with WHERE sequence >= … or a time. `jlogtool dump` and `jlogtool sql` have no limit."
)
WAITED = "There was no answer within {:.0f} seconds, and the work was ended: does the disk or the broker answer?"
TOO_LARGE = (
    "This needed more memory than the console gives to a page, {} GiB, and was ended; use `jlogtool dump` or `jlogtool sql`."
)
WRONG = (JournalError, OSError, ValueError, re.error, ImportError)  # whose texts are for the page
BROKEN = "The work ended with exit code {} and without an answer; the console's stderr has the reason."

_places = asyncio.Semaphore(AT_ONCE)
_places_of: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE_OF_ONE))


class Refused(Exception):
    """The reason why there is no answer, in words for the page."""


@asynccontextmanager
async def process(module: str, asked: dict[str, Any]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Starts the module, which calls serve(), and ends it at the end of the block."""
    found = await asyncio.create_subprocess_exec(
        *python_command(module), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES
    )
    try:
        assert found.stdin is not None
        with suppress(ConnectionError):
            found.stdin.write(json.dumps(asked).encode())
            found.stdin.close()
        yield found
    finally:
        with suppress(ProcessLookupError):
            found.kill()
        await found.wait()


async def answer(module: str, path: str, asked: dict[str, Any]) -> Any:
    """Returns what the module's work has found about the journal at `path`. Raises Refused with what went wrong."""
    limited = {**asked, "cpu_seconds": CPU_SECONDS}
    async with _places_of[path], _places, process(module, limited) as work:
        assert work.stdout is not None
        try:
            found = json.loads(await asyncio.wait_for(work.stdout.read(), WAIT_SECONDS))
        except asyncio.TimeoutError:
            raise Refused(WAITED.format(WAIT_SECONDS)) from None
        except ValueError:
            raise Refused(_reason_for(await work.wait())) from None
    if "error" in found:
        raise Refused(found["error"])
    return found["found"]


def _reason_for(exit_code: int) -> str:
    """Returns the reason why the process has ended without an answer."""
    if exit_code == -signal.SIGXCPU:
        return TOO_LONG.format(CPU_SECONDS)
    if exit_code in (NO_MEMORY, -signal.SIGKILL, -signal.SIGABRT):
        return TOO_LARGE.format(MEMORY_BYTES >> 30)
    return BROKEN.format(exit_code)


async def lines(work: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    """Yields what the process says, as {"found": …}, or at last {"error": …}, until it ends."""
    assert work.stdout is not None
    async for line in work.stdout:
        yield json.loads(line)


def serve(work: Callable[..., Iterable[Any]]) -> None:
    """Prints a line of JSON for each thing that the work yields, within the limits. The work is called with what was asked."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # ends with the console, however that ends
    asked = json.load(sys.stdin)
    if cpu_seconds := asked.pop("cpu_seconds", None):
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))  # at the first SIGXCPU, at the second SIGKILL
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(OSError):
        # Where the machine itself runs out of memory, the kernel ends this process first.
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        for found in work(**asked):
            say({"found": found})
    except WRONG as error:
        say({"error": str(error)})
    except MemoryError:
        sys.exit(NO_MEMORY)  # without a line: answer() says it


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()

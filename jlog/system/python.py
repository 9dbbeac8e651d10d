"""Python processes that jlog starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# `-m` and `-c` put the working directory first in sys.path, so that a json.py there would be run. -P prevents that only since
# Python 3.11, and -I hides the packages of PYTHONPATH and of the user. `sys` is built in, so no directory is searched for it.
_BOOT = "import sys; sys.path[:] = {path!r}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"


def python_command(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module as `python -m` does, and imports from the directories of this process alone."""
    return [sys.executable, "-c", _BOOT.format(path=sys.path, module=module), *arguments]


@contextmanager
def away_from_working_directory() -> Iterator[None]:
    """Starts processes of multiprocessing in `/`: they look for their first modules in the directory that they start in."""
    here = os.getcwd()
    os.chdir("/")
    try:
        yield
    finally:
        os.chdir(here)

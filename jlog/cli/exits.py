"""The exit codes."""

from jlog.errors import CorruptJournal

DONE = 0
FAILED = 1
USAGE = 2  # the code that click itself exits with
DAMAGED = 3
FOUND = 4  # of `doctor`: something needs care
INTERRUPTED = 130  # the code that a shell makes of SIGINT


def exit_code_of(error: Exception) -> int:
    """Returns the exit code of a command that ends with this error."""
    return DAMAGED if isinstance(error, CorruptJournal) else FAILED

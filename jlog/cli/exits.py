"""The exit codes."""

from jlog.errors import CorruptJournal

DONE = 0
FAILED = 1
USAGE = 2  # the code that click itself exits with
DAMAGED = 3
FOUND = 4  # of `doctor`: something needs care
SIGNALLED = 128  # and more: the codes that a shell makes of signals
INTERRUPTED = SIGNALLED + 2  # by SIGINT


def exit_code_of(error: Exception) -> int:
    """Returns the exit code of a command that ends with this error."""
    return DAMAGED if isinstance(error, CorruptJournal) else FAILED

"""What the command `jlogtool` imports first. It is installed at the top level, so that nothing else of jlog is imported before.
Until the command runs, Ctrl-C ends it at once: nothing has begun, and Python would show where it interrupted an import."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a program in the background ignores it
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from jlog.cli.tool import main

__all__ = ["main"]

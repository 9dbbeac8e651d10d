"""The first module that the command `jlogtool` imports. It stands at the top level, since one of the package would be imported
after jlog. Until the command runs, Ctrl-C ends it at once: nothing has begun, and Python would show the import that it
interrupted."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a program in the background ignores it
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from jlog.cli.tool import main

__all__ = ["main"]

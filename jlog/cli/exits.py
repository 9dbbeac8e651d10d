"""The exit codes."""

DONE = 0
FAILED = 1
USAGE = 2  # the code that click itself exits with
DAMAGED = 3
INTERRUPTED = 130  # the code that a shell makes of SIGINT

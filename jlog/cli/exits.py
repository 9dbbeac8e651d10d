"""The exit codes."""

DONE = 0
FAILED = 1
USAGE = 2  # what click exits with by itself
DAMAGED = 3
INTERRUPTED = 130  # what a shell makes of SIGINT

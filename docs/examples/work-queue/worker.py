"""Works through a queue of jobs, which are the records of a journal. Any number of processes may do this at the same time.

A queue is a directory with two journals:

    jobs     what is to be done
    dead     jobs that have failed ATTEMPTS times: dead letters, for a person to look at
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jlog

ATTEMPTS = 3
RETRY_SECONDS = 0.2
SUBSCRIBER = "worker"


def work(queue: Path, do: Callable[[jlog.Task], None]) -> None:
    """Does jobs until SIGTERM or Ctrl-C. A job is done once do(task) returns, and has failed if it raises."""
    with jlog.Worker(
        queue / "jobs",
        SUBSCRIBER,
        max_attempts=ATTEMPTS,
        backoff=(RETRY_SECONDS, 60.0),
        dead_letters=queue / "dead",
    ) as worker:
        worker.run(do)

"""Threads of jlog's own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from jlog.errors import JournalError


def start_thread(name: str, run: Callable[..., object], *arguments: object, daemon: bool = True) -> threading.Thread:
    """Starts a thread, which does not keep the process alive if it is a daemon. Raises JournalError where the process can have
    no more of them."""
    try:
        thread = threading.Thread(target=run, args=arguments, name=name, daemon=daemon)
        thread.start()
    except RuntimeError as error:  # also that of a lock without memory
        raise JournalError(
            f"the thread {name!r} cannot be started ({error}): the process or its container has reached its limit of threads "
            "(ulimit -u, pids.max) or of memory; raise it, or end other threads"
        ) from error
    return thread


def refuse_greenlets(call: str) -> None:
    """Raises JournalError where gevent has put greenlets in the place of threads: one that waits in the kernel stops all."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise JournalError(
            f"{call} needs a thread that waits beside the event loop, and gevent has put greenlets in the place of threads: "
            "patch with monkey.patch_all(thread=False), or read with follow() in gevent.get_hub().threadpool"
        )

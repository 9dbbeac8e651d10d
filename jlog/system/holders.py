"""Names the processes that hold a lock, for messages."""

from __future__ import annotations

import os


def holders_of(fd: int, start: int, size: int) -> str:
    """Returns " (PID 4711)" for the processes that hold a lock on these bytes of the file, as far as this user may know them,
    or "". fcntl() itself names none for the lock of an open file description. So this looks at the descriptors of every process
    that shares /proc; it may take milliseconds."""
    wanted = os.fstat(fd)
    processes = sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int)
    found = [pid for pid in processes if _holds(f"/proc/{pid}", wanted, start, start + size)]
    return f" (PID {', '.join(found)})" if found else ""


def _holds(process: str, wanted: os.stat_result, start: int, end: int) -> bool:
    try:
        descriptors = os.listdir(f"{process}/fd")
    except OSError:
        return False  # it has ended, or belongs to another user
    for number in descriptors:
        try:
            if os.path.samestat(os.stat(f"{process}/fd/{number}"), wanted):
                with open(f"{process}/fdinfo/{number}", encoding="ascii") as file:
                    if any(_covers(line.split(), start, end) for line in file if line.startswith("lock:")):
                        return True
        except OSError:
            continue  # closed meanwhile
    return False


def _covers(fields: list[str], start: int, end: int) -> bool:
    """Reads a line such as `lock:  1: OFDLCK ADVISORY WRITE -1 08:01:131 64 64`."""
    return "OFDLCK" in fields and int(fields[-2]) < end and (fields[-1] == "EOF" or int(fields[-1]) >= start)

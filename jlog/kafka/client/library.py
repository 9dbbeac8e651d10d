"""Finds the librdkafka that the Python client has loaded."""

from __future__ import annotations

import importlib.util
from functools import cache

from jlog._core.kafka.client import Library, LibraryUnavailable


def path_of_library() -> str | None:
    """Returns the path of the librdkafka in this process; None where the Python client is missing or has it built in."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return None
    import confluent_kafka  # noqa: F401  loads it

    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            _, slash, path = line.rstrip("\n").partition("/")
            if "librdkafka" in path.rpartition("/")[2]:
                return slash + path
    return None


@cache
def library() -> Library | None:
    """Returns its calls; None where they cannot be had, so that the Python client does all."""
    try:
        path = path_of_library()
        return None if path is None else Library(path)
    except (OSError, LibraryUnavailable):
        return None

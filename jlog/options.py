"""A journal's options: their names, defaults and what values they may have."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from jlog.meta import create_journal

PRECOMMIT_DEFAULT = 128 << 10
PRECOMMIT_MIN = 4 << 10
PRECOMMIT_MAX = 1 << 30
SEGMENT_BYTES_MIN = 4 << 10
SEGMENT_BYTES_MAX = 1 << 40
COMPRESSIONS = ("none", "lz4")
ROLLS = ("never", "minutely", "hourly", "daily", "weekly")
SYNCS = ("none", "interval", "append")


@dataclass(frozen=True)
class Retention:
    """When a sealed segment is removed.

    delete_read: as soon as every subscriber and every checkpoint has passed it; a journal without subscribers keeps
        everything.
    """

    delete_read: bool = True


def check_precommit(precommit: int) -> int:
    """The capacity of the buffer that a writer asks for; 0: none of its own."""
    if isinstance(precommit, bool) or not isinstance(precommit, int):
        raise TypeError(f"precommit is a number of bytes, not {precommit!r}")
    if precommit != 0 and not PRECOMMIT_MIN <= precommit <= PRECOMMIT_MAX:
        raise ValueError(
            f"precommit is 0, or {PRECOMMIT_MIN} (4 KiB) to {PRECOMMIT_MAX} (1 GiB) bytes, not {precommit}"
        )
    return precommit


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def check_options(given: dict[str, Any]) -> dict[str, Any]:
    """Those that were given (are not None), as journal.meta holds them."""
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, choices in (("compression", COMPRESSIONS), ("roll", ROLLS), ("sync", SYNCS)):
        if name in found:
            _check_choice(name, found[name], choices)
    if "segment_bytes" in found:
        size = found["segment_bytes"]
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"segment_bytes is a number of bytes, not {size!r}")
        if not SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes is {SEGMENT_BYTES_MIN} (4 KiB) to {SEGMENT_BYTES_MAX} (1 TiB), not {size}"
            )
    if "sync_interval" in found and not found["sync_interval"] > 0:
        raise ValueError(f"sync_interval is seconds above 0, not {found['sync_interval']!r}")
    if "retention" in found:
        found["retention"] = retention_fields(found["retention"])
    return found


def retention_fields(retention: Retention) -> dict[str, Any]:
    if not isinstance(retention, Retention):
        raise TypeError(f"retention is a jlog.Retention, not {retention!r}")
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in asdict(retention).items()
    }


DEFAULTS: dict[str, Any] = {
    "compression": "none",
    "segment_bytes": 64 << 20,
    "roll": "never",
    "sync": "none",
    "sync_interval": 1.0,
    "retention": retention_fields(Retention()),
}


def writer_options(
    path: str, precommit: int, given: dict[str, Any], create: bool
) -> tuple[int, dict[str, Any]]:
    """Makes the journal if there is none and it may be made. Returns the buffer capacity to open it with, 0 for a writer
    that bypasses the buffer; and the options that were given."""
    capacity = check_precommit(precommit)
    options = check_options(given)
    if create and not os.path.exists(os.path.join(path, "journal.meta")):
        create_journal(
            path, {**DEFAULTS, **options, "precommit": capacity or PRECOMMIT_DEFAULT}, exist_ok=True
        )
    return capacity, options

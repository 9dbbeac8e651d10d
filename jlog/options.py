"""The options of a journal: names, defaults and allowed values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Literal

from jlog.errors import JournalError, UnsupportedFormat
from jlog.system.arguments import FOR_EVER, check_choice, check_count, check_flag, check_seconds

PRECOMMIT_DEFAULT = 128 << 10
PRECOMMIT_MIN = 4 << 10
PRECOMMIT_MAX = 1 << 30
SEGMENT_BYTES_MIN = 4 << 10
SEGMENT_BYTES_MAX = 1 << 40
SYNC_INTERVAL_MAX = 86400 * 366
DEDUP_MAX = 10_000_000  # ids; each takes some 250 bytes of memory in every process that appends with ids
BYTES_MAX = (1 << 63) - 1  # larger than any disk
URL_LENGTH_MAX = 64 << 10  # of an archive; journal.meta, which holds it, may have 4 MiB
Compression = Literal["none", "lz4"]
Roll = Literal["never", "minutely", "hourly", "daily", "weekly"]
Sync = Literal["none", "interval", "append"]
COMPRESSIONS = ("none", "lz4")  # the index is the codec in a block's header
ROLL_PERIODS_US = {
    "never": 0,
    "minutely": 60_000_000,
    "hourly": 3_600_000_000,
    "daily": 86_400_000_000,
    "weekly": 604_800_000_000,
}
ROLLS = tuple(ROLL_PERIODS_US)
SYNCS = ("none", "interval", "append")  # the index is the mode in the shared page
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.DOTALL)


@dataclass(frozen=True)
class Retention:
    """Rules that remove sealed segments, oldest first. The open segment is never removed.

    delete_read: removes the segments that every subscriber and every checkpoint has passed, on commit and on roll. A journal
        without subscribers keeps everything. False: read segments are kept too.
    max_bytes, max_age: removes the oldest segments while the content of the segment files is more than so many bytes, and those
        whose newest record was written longer ago than this timedelta, by the clock of the writing machine.
    keep_for_subscribers: max_bytes and max_age spare segments that a subscriber or a checkpoint has not passed. False: unread
        records are removed too, and a reader that comes too late gets PositionLost.
    subscriber_max_age: a timedelta. A subscriber that has not committed for so long, and whose next record was written as long
        ago, holds nothing back any more.
    limit_bytes: above this content of the segment files append raises JournalFull, until something could be removed.
    archive: a URL, `file:///…` or `s3://…`: Journal.clean() copies each segment there, reads it back and only then removes
        it. Commits and rolls then remove nothing. Journal.archive() only copies.
    archive_on_roll: each roll has a thread of its process copy all sealed segments to the archive, and then remove those that
        may go. Nobody waits for it. What is not copied when the process ends is copied after the next roll of any process, or
        by Journal.archive().

    Raises TypeError or ValueError for values that are not allowed.
    """

    delete_read: bool = True
    max_bytes: int | None = None
    max_age: timedelta | None = None
    keep_for_subscribers: bool = True
    subscriber_max_age: timedelta | None = None
    limit_bytes: int | None = None
    archive: str | None = None
    archive_on_roll: bool = False

    def __post_init__(self) -> None:
        for name in ("delete_read", "keep_for_subscribers", "archive_on_roll"):
            check_flag(name, getattr(self, name))
        for name in ("max_bytes", "limit_bytes"):
            object.__setattr__(self, name, _check_bytes(name, getattr(self, name)))
        for name in ("max_age", "subscriber_max_age"):
            _check_age(name, getattr(self, name))
        if self.archive is not None:
            _check_archive(self.archive)
        self._check_together()

    def _check_together(self) -> None:
        if self.max_bytes is not None and self.limit_bytes is not None and self.max_bytes > self.limit_bytes:
            raise ValueError(
                f"max_bytes {self.max_bytes} is above limit_bytes {self.limit_bytes}: append would raise JournalFull before "
                "anything is removed; set a smaller max_bytes"
            )
        removes = self.delete_read or self.max_bytes is not None or self.max_age is not None
        if self.archive is None and self.archive_on_roll:
            raise ValueError("archive_on_roll copies segments to the archive; name one with archive")
        if self.archive is not None and not removes and not self.archive_on_roll:
            raise ValueError(
                "an archive takes removed segments, and delete_read=False without max_bytes and max_age removes nothing; "
                "give one of them, or archive_on_roll"
            )


def _check_bytes(name: str, size: Any) -> int | None:
    if size is None:
        return None
    return check_count(name, size, 1, BYTES_MAX, what="a number of bytes", more=", or None for no limit")


def _check_age(name: str, age: Any) -> None:
    if age is None:
        return
    if not isinstance(age, timedelta):
        raise TypeError(f"{name} must be a datetime.timedelta, such as timedelta(days=7), or None, not {age!r}")
    if age <= timedelta(0):
        raise ValueError(f"{name} must be above zero, not {age}")
    _age_of(name, age.total_seconds())  # it is stored in seconds, which are rounded


def _check_archive(url: Any) -> None:
    if not isinstance(url, str):
        raise TypeError(f"archive must be a URL or None, not {url!r}; for a path write path.absolute().as_uri()")
    if len(url) > URL_LENGTH_MAX:
        raise ValueError(f"archive must be a URL of at most {URL_LENGTH_MAX} characters, not of {len(url)}")
    found = _URL.match(url)
    if found is None or (found[1] == "file" and not found[2].startswith("/")):
        raise ValueError(f"archive must be a URL such as file:///var/archive or s3://bucket/prefix, not {url!r}")
    from urllib.parse import urlsplit  # few programs need it

    if urlsplit(url).password:
        raise ValueError(
            "leave the password out of the archive's URL, which every reader of the journal sees in journal.meta; fsspec "
            "takes it from its configuration"
        )


def _check_protocol(url: str) -> None:
    """Checks once, when the option is set, that fsspec knows the protocol: a process that only reads the option need not have
    fsspec."""
    try:
        import fsspec
    except ImportError:
        raise JournalError("an archive needs fsspec, which is not installed: pip install 'pyjlog[archive]'") from None
    known = fsspec.available_protocols()
    protocol = url.partition("://")[0]
    if protocol not in known:
        raise ValueError(f"archive begins with {protocol}://, which fsspec does not know; it knows {', '.join(known)}")


def check_precommit(precommit: int) -> int:
    """Returns the capacity of the buffer that a writer asks for; 0: the writer bypasses the buffer."""
    if precommit == 0 and not isinstance(precommit, (bool, float)):
        return 0
    more = " (4 KiB to 1 GiB), or 0"
    return check_count("precommit", precommit, PRECOMMIT_MIN, PRECOMMIT_MAX, what="a number of bytes", more=more)


def check_lock_timeout(lock_timeout: float | None) -> float | None:
    return None if lock_timeout is None else check_seconds("lock_timeout", lock_timeout, zero=True, more=FOR_EVER)


def check_options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that were given (are not None), as journal.meta holds them."""
    # An opening iterates over no items(): without memory that crashes CPython 3.11.
    found: dict[str, Any] = {name: given[name] for name in given if given[name] is not None}
    for name, choices in (("compression", COMPRESSIONS), ("roll", ROLLS), ("sync", SYNCS)):
        if name in found:
            check_choice(name, found[name], choices)
    if "segment_bytes" in found:
        size = found["segment_bytes"]
        found["segment_bytes"] = check_count(
            "segment_bytes", size, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, what="a number of bytes", more=" (4 KiB to 1 TiB)"
        )
    if "sync_interval" in found:
        check_seconds("sync_interval", found["sync_interval"], SYNC_INTERVAL_MAX)
    if "dedup" in found:
        found["dedup"] = dedup_stored(found["dedup"])
    if "retention" in found:
        found["retention"] = retention_fields(found["retention"])
        if found["retention"]["archive"] is not None:
            _check_protocol(found["retention"]["archive"])
    return found


def retention_fields(retention: Retention) -> dict[str, Any]:
    if not isinstance(retention, Retention):
        raise TypeError(f"retention must be a jlog.Retention, not {retention!r}")
    # A subclass may have more fields, which no journal could be read with.
    names = [field.name for field in fields(Retention)]
    values = [getattr(retention, name) for name in names]
    return dict(zip(names, [value.total_seconds() if isinstance(value, timedelta) else value for value in values], strict=True))


def retention_of(options: dict[str, Any]) -> Retention:
    """Creates a Retention from journal.meta's options. Raises UnsupportedFormat for a field that a newer jlog has written: it
    may keep something."""
    stored = options["retention"]
    unknown = sorted(set(stored) - {field.name for field in fields(Retention)})
    if unknown:
        raise UnsupportedFormat(
            f"the journal's retention has {', '.join(unknown)}, which this jlog does not know: upgrade pyjlog"
        )
    ages = {name: _age_of(name, stored[name]) for name in ("max_age", "subscriber_max_age") if stored.get(name) is not None}
    return Retention(**{**stored, **ages})


def _age_of(name: str, seconds: Any) -> timedelta:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{name} has more seconds than a timedelta holds; write a shorter time") from None


@dataclass(frozen=True)
class Options:
    """The options that belong to the journal and not to one writer."""

    precommit: int
    compression: Compression
    segment_bytes: int
    roll: Roll
    sync: Sync
    sync_interval: float
    dedup: int | timedelta
    retention: Retention = field(default_factory=Retention)


def dedup_stored(dedup: int | timedelta) -> int | dict[str, float]:
    """Returns the option `dedup` as journal.meta holds it."""
    if isinstance(dedup, timedelta):
        _check_age("dedup", dedup)
        return {"seconds": dedup.total_seconds()}
    return check_count("dedup", dedup, 1, DEDUP_MAX, what="a number of ids", more=", or a timedelta")


def dedup_of(options: dict[str, Any]) -> int | timedelta:
    """Returns the option `dedup` from journal.meta's options: so many ids, or the time for which one is known."""
    stored = options["dedup"]
    if not isinstance(stored, dict):
        dedup_stored(stored)
        return int(stored)
    age = _age_of("dedup", stored.get("seconds"))
    dedup_stored(age)
    return age


DEFAULTS: dict[str, Any] = {
    "compression": "none",
    "segment_bytes": 64 << 20,
    "roll": "never",
    "sync": "none",
    "sync_interval": 1.0,
    "dedup": 100_000,
    "retention": retention_fields(Retention()),
}


def stored_options(stored: dict[str, Any]) -> dict[str, Any]:
    """Returns all options of a journal, from the content of its journal.meta. They are checked as if a caller had given them,
    for anybody may have written the file. Raises TypeError or ValueError for values that are not allowed, UnsupportedFormat for
    an option of a newer jlog.

    A missing option has its default; but then nothing is removed for having been read, as nobody has asked for it.
    """
    unknown = sorted(set(stored) - set(DEFAULTS) - {"precommit"})
    if unknown:
        raise UnsupportedFormat(
            f"the journal has the option {', '.join(unknown)}, which this jlog does not know: upgrade pyjlog"
        )
    if None in stored.values():
        raise TypeError("an option is null")
    kept = retention_fields(Retention(delete_read=False))
    found = {**DEFAULTS, "precommit": PRECOMMIT_DEFAULT, "retention": kept, **stored}
    check_options({name: found[name] for name in found if name not in ("retention", "dedup")})
    dedup_of(found)
    if check_precommit(found["precommit"]) == 0:
        raise ValueError("precommit is 0, but a journal needs a buffer")
    stored_retention = found["retention"]
    if not isinstance(stored_retention, dict):
        raise TypeError(f"retention must be a JSON object, not {stored_retention!r}")
    # Fields of a newer jlog are refused by the calls that remove something.
    known = {field.name for field in fields(Retention)} & stored_retention.keys()
    retention_of({"retention": {name: stored_retention[name] for name in known}})
    return found


def option_numbers(options: dict[str, Any]) -> tuple[int, ...]:
    """Returns a journal's options as the core takes them: bytes of the buffer, bytes of a segment, limit in bytes (0: none),
    microseconds between syncs, microseconds of a rolling period (0: none), codec, sync mode."""
    return (
        options["precommit"],
        options["segment_bytes"],
        options["retention"].get("limit_bytes") or 0,
        int(options["sync_interval"] * 1e6),
        ROLL_PERIODS_US[options["roll"]],
        COMPRESSIONS.index(options["compression"]),
        SYNCS.index(options["sync"]),
    )

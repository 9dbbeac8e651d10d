"""The options of the source, which Spark hands over as strings under names in any case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

from jlog.positions.names import check_name
from jlog.system.texts import is_number, parse_count, parse_flag, parse_iso_time, parse_pattern, parse_seconds, parse_size

EARLIEST, LATEST = "earliest", "latest"
FAILFAST, PERMISSIVE = "failfast", "permissive"
PARTITION_BYTES = 64 << 20
TRIGGER_DELAY = 15 * 60.0  # seconds, as in Spark's source for Kafka

Bound = int | str | datetime  # a sequence, "earliest", "latest", or a time
Bounds = Bound | dict[str, Bound]  # one for all journals, or one for each by its name

Value = TypeVar("Value")


@dataclass(frozen=True)
class ReadOptions:
    paths: tuple[str, ...]
    journals: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    start: Bounds | None = None  # None: earliest, or the position of the subscriber
    end: Bounds | None = None  # None: latest
    fail_on_data_loss: bool = True
    mode: str = FAILFAST
    damage_path: str | None = None
    archive: bool | str = True
    durable: bool = False
    pushdown: bool = False
    partition_bytes: int = PARTITION_BYTES
    max_records_per_partition: int | None = None
    min_partitions: int = 1
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_records_per_trigger: int | None = None
    max_trigger_delay: float = TRIGGER_DELAY  # seconds
    subscriber: str | None = None
    checkpoint: str | None = None


def parse(given: Mapping[str, str]) -> ReadOptions:
    """Parses the options. A ValueError names the option, the error in its value, and the values that it takes."""
    names = {name.lower(): name for name in [*_PARSERS, *_OF_BOUNDS, "path", "paths"]}
    found: dict[str, Any] = {}
    for name, text in given.items():
        known = names.get(name.lower())
        if known is None:
            raise ValueError(f"the source jlog has no option {name}; it has {', '.join(sorted(names.values()))}")
        if known in _PARSERS:
            attribute, parser = _PARSERS[known]
            found[attribute] = parsed(known, text, parser)
    texts = {names[name.lower()]: text for name, text in given.items()}
    found["paths"] = _paths(texts)
    if "journals" in found and "pattern" in found:
        raise ValueError("journals and journalPattern both set which journals are read; give one of them")
    for end in ("start", "end"):
        found[end] = _bounds(texts, f"{end}ingSequence", f"{end}ingTimestamp")
    options = ReadOptions(**found)
    least, most = options.min_records_per_trigger, options.max_records_per_trigger
    if least is not None and most is not None and least > most:
        raise ValueError(f"minRecordsPerTrigger, {least}, is above maxRecordsPerTrigger, {most}: give a smaller one")
    return options


def parsed(name: str, text: str, parser: Callable[[str], Value]) -> Value:
    try:
        return parser(text)
    except ValueError as error:
        raise ValueError(f"option {name}: {error}") from None


def _paths(texts: Mapping[str, str]) -> tuple[str, ...]:
    paths = json.loads(texts["paths"]) if "paths" in texts else []
    paths += [texts["path"]] if texts.get("path") else []
    if not paths:
        raise ValueError(
            "no path is given; load(PATH) takes a journal's directory, or one with journals below it. Spark does not pass the "
            "path of CREATE TABLE ... USING jlog to a Python source: use CREATE TEMPORARY VIEW NAME USING jlog "
            "OPTIONS (path PATH)"
        )
    return tuple(paths)


def _bounds(texts: Mapping[str, str], by_sequence: str, by_time: str) -> Bounds | None:
    if by_sequence in texts and by_time in texts:
        raise ValueError(f"{by_sequence} and {by_time} both set where reading begins or ends; give one of them")
    for name, parser in ((by_sequence, _sequence), (by_time, _time)):
        if name in texts:
            return parsed(name, texts[name], partial(_for_journals, parser=parser))
    return None


def _for_journals(text: str, parser: Callable[[str], Bound]) -> Bounds:
    """Parses a bound, or JSON with one for each journal."""
    if not text.lstrip().startswith("{"):
        return parser(text)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f'{text!r} is not valid JSON of the form {{"orders": 1000}}: {error}') from None
    return {journal: parser(str(bound)) for journal, bound in found.items()}


def _sequence(text: str) -> Bound:
    wanted = text.strip().lower()
    if wanted in (EARLIEST, LATEST):
        return wanted
    if is_number(wanted):
        return int(wanted)
    raise ValueError(f'{text!r} is neither earliest, latest, a sequence, nor JSON such as {{"orders": 1000}}')


def _time(text: str) -> Bound:
    stripped = text.strip()
    try:
        if is_number(stripped):
            return datetime.fromtimestamp(int(stripped) / 1000, timezone.utc)
        return parse_iso_time(stripped)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time with a UTC offset; write 2026-11-20T12:34:56Z, milliseconds since 1970, or JSON with "
            "one of them for each journal"
        ) from None


def _archive(text: str) -> bool | str:
    try:
        return parse_flag(text)
    except ValueError:
        if "://" in text:
            return text
    raise ValueError(f"{text!r} is neither true, false, nor a URL such as s3://bucket/prefix")


def _mode(text: str) -> str:
    wanted = text.strip().lower()
    if wanted not in (FAILFAST, PERMISSIVE):
        raise ValueError(f"{text!r} is neither {FAILFAST} nor {PERMISSIVE}")
    return wanted


def _size(text: str) -> int:
    size = parse_size(text)
    if size == 0:
        raise ValueError(f"{text!r} is not a size above 0; write 131072, 128K or 64MiB")
    return size


def _delay(text: str) -> float:
    """Parses a duration. A number without a unit is one of milliseconds, as in Spark."""
    return parse_seconds(f"{text}ms" if is_number(text.strip()) else text.lower())


def _names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ValueError("name one or more journals below the path: orders,clicks")
    return found


_OF_BOUNDS = ("startingSequence", "endingSequence", "startingTimestamp", "endingTimestamp")
_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "journals": ("journals", _names),
    "journalPattern": ("pattern", parse_pattern),
    "failOnDataLoss": ("fail_on_data_loss", parse_flag),
    "mode": ("mode", _mode),
    "damagePath": ("damage_path", str),
    "archive": ("archive", _archive),
    "durable": ("durable", parse_flag),
    "pushdown": ("pushdown", parse_flag),
    "maxBytesPerPartition": ("partition_bytes", _size),
    "maxRecordsPerPartition": ("max_records_per_partition", parse_count),
    "minPartitions": ("min_partitions", parse_count),
    "maxRecordsPerTrigger": ("max_records_per_trigger", parse_count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _size),
    "minRecordsPerTrigger": ("min_records_per_trigger", parse_count),
    "maxTriggerDelay": ("max_trigger_delay", _delay),
    "subscriber": ("subscriber", partial(check_name, what="subscriber")),
    "checkpointLocation": ("checkpoint", str),
}

"""The options that every flow takes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from jlog.flow.records import Function
from jlog.flow.stop import Stop

Policy = Literal["stop", "skip", "dead-letter"]

LINGER_SECONDS = 0.1  # default; up to 5 s, so that a transaction never comes near the brokers' limit
MAX_LINGER_SECONDS = 5.0


def nothing(_: object) -> None:
    """Ignores an event or a count."""


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """The options that a mirror, a capture, a standby and a transform share. They are given as keyword arguments.

    function: turns each record into a record, bytes (the same record with this value), a list of these, or None to drop it.
    refused: "stop", "skip" or "dead-letter", for records that the sink or the function refuses.
    dead_letter: with refused="dead-letter", the path of a journal or the URL of a topic. Where the sink is a topic, a plain
        name is that of a topic in the same cluster.
    until_end: run() ends where the source ended when it began.
    rate: records a second, at most.
    linger: seconds, from 0 to 5, that a transaction waits for more records after its first one. While they keep coming without
        a pause it takes five times as long. Less is a lower latency, and more transactions for the same records.
    skip_missing: goes on after records that retention has removed.
    config, config_file: settings of librdkafka (see jlog.kafka.Settings); also for one end alone, as source.sasl.username and
        sink.sasl.username.
    on_event: is called with each line that a person should see.
    on_commit: is called with the number of records of each transaction.
    stop: a request to stop that several flows share.
    """

    function: Function | None = None
    refused: Policy = "stop"
    dead_letter: str | os.PathLike[str] | None = None
    until_end: bool = False
    rate: float | None = None
    linger: float = LINGER_SECONDS
    skip_missing: bool = False
    config: Any = None
    config_file: str | os.PathLike[str] | None = None
    on_event: Callable[[str], None] = nothing
    on_commit: Callable[[int], None] = nothing
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be a number of records a second, above 0, not {self.rate!r}")
        if not 0 <= self.linger <= MAX_LINGER_SECONDS:
            raise ValueError(f"linger must be a number of seconds, from 0 to {MAX_LINGER_SECONDS:g}, not {self.linger!r}")
        if self.refused not in get_args(Policy):
            raise ValueError(f"refused must be one of {', '.join(get_args(Policy))}, not {self.refused!r}")
        if (self.refused == "dead-letter") != (self.dead_letter is not None):
            raise ValueError("refused='dead-letter' needs a place for dead letters (dead_letter), and the other way round")

    @classmethod
    def take(cls, given: dict[str, Any]) -> FlowOptions:
        """Takes these options out of keyword arguments that also have others. None counts as not given."""
        mine = {one.name: given.pop(one.name, None) for one in fields(cls)}
        return cls(**{name: value for name, value in mine.items() if value is not None})

    @classmethod
    def only(cls, given: dict[str, Any]) -> FlowOptions:
        """Takes these options. Raises TypeError where there are others."""
        found = cls.take(given)
        if given:
            raise TypeError(f"{', '.join(given)}: not an option; there are {', '.join(one.name for one in fields(cls))}")
        return found

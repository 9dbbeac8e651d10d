"""The counts of a flow, and the lags of running flows, which are looked at in a thread so that nobody waits for brokers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from jlog.flow.ends import Lag
from jlog.flow.stop import Stopped

LOOK_EVERY = 5.0  # seconds between two looks at the lags


@dataclass
class FlowStats:
    """The counts of a flow since it was created."""

    records: int = 0  # records of the source, in committed transactions
    bytes: int = 0  # bytes of their values
    transactions: int = 0
    aborted: int = 0
    refused: int = 0  # records that were left out, or put with the dead letters
    missing: int = 0  # records that retention removed before they were read, and that were passed over
    retries: int = 0
    last_error: str = ""
    problem: str = ""  # why a part of an end is not moved, while the rest is


class Watched(Protocol):
    """A flow as its metrics see it; it may run in another process."""

    @property
    def stats(self) -> FlowStats: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def was_open(self) -> bool: ...
    def lag(self) -> Lag | None: ...


class Lags:
    """The lags of `flows`, every few seconds. `known` has none where it could not be found out."""

    def __init__(self, flows: Mapping[str, Watched]) -> None:
        self.known: dict[str, Lag] = {}
        self._flows = flows
        self._said: dict[str, str] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="jlog-lags", daemon=True).start()

    def close(self) -> None:
        """Ends the thread. Does not wait for it."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY if self.known or self._said else 0.2):
            for name, flow in [*self._flows.items()]:
                if not flow.was_open:
                    continue  # where it begins is not known yet
                try:
                    lag = flow.lag()
                    self._said.pop(name, None)
                except Stopped:
                    continue  # the flow ends
                except Exception as error:  # noqa: BLE001 - whatever it is, the lags of the others are reported
                    lag = None
                    if self._said.get(name) != str(error):
                        logging.getLogger("jlog.metrics").warning("%s: %s", name, error)
                    self._said[name] = str(error)
                if lag is None:
                    self.known.pop(name, None)
                else:
                    self.known[name] = lag

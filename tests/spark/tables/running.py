"""Calls to driver.py, which runs in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark.running import Driver
from spark.sessions import ROOT

SCRIPT = Path(__file__).with_name("driver.py")
PYSPARK = ROOT / "build" / "pyspark-4.1"


class Refused(Exception):
    """The driver's error: its kind and its text."""


class TableDriver:
    def __init__(self, folder: Path, jars: str) -> None:
        self._driver = Driver(folder, "local[2]", SCRIPT, PYSPARK, JARS=jars)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*arguments: object, **named: object) -> Any:
            self.begin(verb, *arguments, **named)
            outcome, *content = json.loads(self._driver.said("^@(.*)"))
            if outcome == "failed":
                raise Refused(": ".join(content))
            return content[0]

        return call

    def begin(self, verb: str, *arguments: object, **named: object) -> None:
        """Does not wait for the end of the call."""
        self._driver.call(verb, arguments, named)

    def wait_for_its_death(self) -> None:
        try:
            said = self._driver.said("^@(.*)")
        except AssertionError:  # it has ended
            return
        raise AssertionError(f"it lives, and says {said}")

    def kill(self) -> None:
        self._driver.kill()

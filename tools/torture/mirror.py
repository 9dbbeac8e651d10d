"""A mirror: moves the journal's records to a topic, each once, however often it is killed."""

from __future__ import annotations

import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import jlog
from torture.subscriber import expected

if TYPE_CHECKING:
    from torture.gate import Gate
    from torture.log import Log

STEP_SECONDS = 0.05


def mirror(spec: dict[str, Any], gate: Gate, log: Log) -> None:
    from jlog.kafka import Mirror

    chance = Random(f"{spec['seed']} {spec['name']}")
    while gate.is_open():
        try:
            with closing(Mirror(spec["path"], spec["url"])) as moving:
                for _ in range(chance.randrange(50, 1000)):
                    if not gate.is_open():
                        break
                    moving.step(STEP_SECONDS)
        except jlog.SubscriberBusy:
            time.sleep(STEP_SECONDS)
        except (OSError, jlog.JournalLocked) as error:
            expected(error, log)

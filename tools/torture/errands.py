"""Errands: the work that a keeper or a mover does again and again, each in a directory of its own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torture.records import EXPECTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from torture.gate import Gate
    from torture.log import Log


def run_errands(
    spec: dict[str, Any], gate: Gate, log: Log, chance: Random, pause_seconds: float, errand: Callable[[Path], None]
) -> None:
    """Calls `errand` with the path of its directory, until the gate ends it. It waits at most so many seconds in between."""
    number = 0
    while gate.is_open():
        number += 1
        work = Path(f"{spec['scratch']}/{spec['name']}-{number}")
        try:
            errand(work)
        except OSError as error:
            if error.errno not in EXPECTED:
                raise
            log("!", error.errno)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        time.sleep(chance.random() * pause_seconds)

"""The sizes and numbers of all measurements."""

from __future__ import annotations

from dataclasses import dataclass

from jlog.bench.contest import Settings


@dataclass(frozen=True)
class Sizes(Settings):
    reopen_bytes: int = 1_000_000_000
    memory_bytes: int = 2_000_000_000

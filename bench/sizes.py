"""The sizes and numbers of all measurements."""

from __future__ import annotations

from dataclasses import dataclass

from jlog.bench.contest import ContestSettings


@dataclass(frozen=True)
class Sizes(ContestSettings):
    reopen_bytes: int = 1_000_000_000
    memory_bytes: int = 2_000_000_000

from typing import NamedTuple

from jlog._core.format.dual_slot import Bounds
from jlog._core.segments.segment import Block

class ScanDamage(NamedTuple):
    path: str
    offset: int
    reason: str
    first_sequence: int
    records_lost: int

class End(NamedTuple):
    segment: int
    offset: int
    sequence: int
    last: Block | None
    clock_us: int
    durable: int
    damage: list[ScanDamage]

def scan(directory: str, uuid: bytes, bounds: Bounds) -> End: ...

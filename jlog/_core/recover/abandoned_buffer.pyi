from typing import NamedTuple

from jlog._core.buffer.precommit import Precommit
from jlog._core.format.dual_slot import Bounds
from jlog._core.segments.segment import Block

def only_processes_died(directory: str, uuid: bytes, precommit: Precommit, bounds: Bounds) -> bool: ...
def is_longer(body: bytes, block: Block) -> bool: ...

class Body(NamedTuple):
    segment: int
    offset: int
    first_sequence: int
    base_time_us: int
    raw: bytes
    records: int
    clock_us: int

class Page(NamedTuple):
    ready: bool
    current: bool
    whole: bool
    direct: bool
    sync_failed: bool
    segment: int
    offset: int
    first_sequence: int
    open_first_sequence: int
    bodies: list[Body]

def look_at_page(directory: str, uuid: bytes) -> Page | None: ...
def invalidate_page(directory: str, uuid: bytes) -> None: ...

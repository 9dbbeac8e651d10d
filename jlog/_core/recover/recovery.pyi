from typing import NamedTuple

from jlog._core.buffer.precommit import Precommit
from jlog._core.format.dual_slot import Bounds, BoundsFile
from jlog._core.segments.segment import Block, SegmentFile
from jlog._core.system.lock import Deadline

TEMPORARY: str

class Damage(NamedTuple):
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
    damage: list[Damage]

def scan(directory: str, uuid: bytes, bounds: Bounds) -> End: ...
def encode_block(
    uuid: bytes,
    segment: int,
    offset: int,
    raw: bytes,
    base_time_us: int,
    first_sequence: int,
    *,
    snapshot: bool = False,
    durable_end: int = 0,
    clamp_us: int = ...,
) -> bytes: ...
def encode_state(state: dict[bytes, bytes] | dict[bytes, bytes | None]) -> bytes: ...
def segment_start(
    uuid: bytes,
    epoch: int,
    first_sequence: int,
    previous: tuple[int, int, int] | None,
    state: dict[bytes, bytes],
    *,
    durable_end: int = 0,
    clamp_us: int = ...,
    replacements: int = 0,
) -> bytes: ...
def create_segment(directory: str, first_sequence: int, start: bytes) -> None: ...
def sync_data(fd: int, path: str) -> None: ...
def sync_directory(path: str) -> None: ...
def recover_after_power_loss(
    directory: str,
    uuid: bytes,
    epoch: int,
    precommit: Precommit,
    bounds_file: BoundsFile,
    segment_bytes: int,
    deadline: Deadline = ...,
) -> list[Damage]: ...
def make_page(
    precommit: Precommit,
    generation: int,
    segment_bytes: int,
    segment: int,
    offset: int,
    first_sequence: int,
    clamp_us: int,
) -> None: ...
def quarantine_what_follows(directory: str, segment: int, offset: int) -> None: ...
def write_unsynced_again(directory: str, uuid: bytes, bounds: Bounds) -> None: ...
def copy_unsynced(directory: str, uuid: bytes, bounds: Bounds, open_segment: int, open_offset: int) -> bool: ...
def copy_segment(file: SegmentFile, end: int) -> None: ...
def write_again(directory: str, segment: int, uuid: bytes, end: int, fd: int, durable_end: int) -> None: ...
def write_blocks(file: SegmentFile, end: int, fd: int, durable_end: int = 0) -> None: ...

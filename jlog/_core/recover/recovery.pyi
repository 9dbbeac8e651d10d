from jlog._core.buffer.precommit import Precommit
from jlog._core.format.dual_slot import Bounds, BoundsFile
from jlog._core.recover.scan import ScanDamage
from jlog._core.segments.segment import SegmentFile
from jlog._core.system.lock import Deadline

TEMPORARY: str

def create_segment(directory: str, first_sequence: int, start: bytes) -> None: ...
def recover_after_power_loss(
    directory: str,
    uuid: bytes,
    epoch: int,
    precommit: Precommit,
    bounds_file: BoundsFile,
    segment_bytes: int,
    deadline: Deadline = ...,
    at_least: int | None = ...,
) -> list[ScanDamage]: ...
def make_page(
    precommit: Precommit,
    generation: int,
    segment_bytes: int,
    segment: int,
    offset: int,
    first_sequence: int,
    floor_us: int,
) -> None: ...
def quarantine_what_follows(directory: str, segment: int, offset: int) -> None: ...
def write_unsynced_again(directory: str, uuid: bytes, bounds: Bounds) -> None: ...
def copy_unsynced(directory: str, uuid: bytes, bounds: Bounds, open_segment: int, open_offset: int) -> bool: ...
def copy_segment(file: SegmentFile, end: int) -> None: ...
def rewrite_unsynced_blocks(directory: str, segment: int, uuid: bytes, end: int, fd: int, durable_end: int) -> None: ...
def write_blocks(file: SegmentFile, end: int, fd: int, durable_end: int = 0) -> None: ...

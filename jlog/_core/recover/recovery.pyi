from jlog._core.buffer.precommit import Precommit
from jlog._core.format.dual_slot import BoundsFile
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
def state_version(directory: str, segment: int, uuid: bytes) -> None: ...
def write_blocks(file: SegmentFile, end: int, fd: int, durable_end: int = 0) -> None: ...

from typing import NamedTuple

SIGNATURE_BYTES: int
COPIES_AT: tuple[int, int]

class Signature(NamedTuple):
    uuid: bytes
    epoch: int | None
    first_sequence: int | None

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

def segment_header(
    uuid: bytes,
    epoch: int,
    first_sequence: int,
    previous: tuple[int, int, int] | None,
    created_us: int,
    replacements: int,
) -> bytes: ...
def moved_block(block: bytes, uuid: bytes, segment: int, offset: int) -> bytes: ...
def read_buffer(directory: str, uuid: bytes) -> list[Body]: ...
def look_at_page(directory: str, uuid: bytes) -> Page | None: ...
def invalidate_page(directory: str, uuid: bytes) -> None: ...
def whose(image: bytes) -> Signature | None: ...

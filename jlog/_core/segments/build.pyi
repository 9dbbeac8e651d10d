def segment_header(
    uuid: bytes, epoch: int, first_sequence: int, previous: tuple[int, int, int] | None, created_us: int, replacements: int
) -> bytes: ...
def moved_block(block: bytes, uuid: bytes, segment: int, offset: int) -> bytes: ...
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
    floor_us: int = ...,
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
    floor_us: int = ...,
    replacements: int = 0,
) -> bytes: ...

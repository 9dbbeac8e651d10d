from typing import NamedTuple

from typing_extensions import disjoint_base

from jlog._core.records.encode import EncodedRecords

MORE: int
FULL: int
SUSPECT: int
SPOILED: int
TOO_LARGE: int

class Added(NamedTuple):
    end: int
    status: int
    messages: int
    last_us: int

class Header(NamedTuple):
    is_message: bool
    time_us: int
    microseconds: int
    message_bytes: int
    stored_bytes: int

class Chain(NamedTuple):
    end: int
    messages: int
    first_us: int
    last_us: int
    ordered: bool

@disjoint_base
class Messages:
    def __init__(self, magic: int, big_endian: bool, lz4: bool | None) -> None: ...
    @property
    def header_bytes(self) -> int: ...
    def header(self, data: bytes, at: int = ...) -> Header | None: ...
    def chain(self, data: bytes, at: int, most: int) -> Chain: ...
    def add(
        self, body: EncodedRecords, data: bytes, at: int, limit: int, *, is_end: bool = False, trusted: int = 0
    ) -> Added: ...

from types import EllipsisType
from typing import NamedTuple

from typing_extensions import disjoint_base

from jlog._core.system.lock import Deadline, LockFile

SIGNATURE_BYTES: int

class Signature(NamedTuple):
    uuid: bytes
    epoch: int | None
    first_sequence: int | None

class Bounds(NamedTuple):
    first_sequence: int
    mark_segment: int
    mark_offset: int
    mark_sequence: int
    reservation_limit: int
    closed: tuple[int, int, int] | None

class StoredPosition(NamedTuple):
    sequence: int
    epoch: int
    moved_us: int

@disjoint_base
class BoundsFile:
    def __init__(self, path: str, uuid: bytes, lock_file: LockFile | None, *, writable: bool = True) -> None: ...
    @property
    def path(self) -> str: ...
    @staticmethod
    def create(
        path: str,
        uuid: bytes,
        reservation_limit: int,
        closed: tuple[int, int, int],
        *,
        first_sequence: int = 0,
        mark: tuple[int, int, int] = ...,
        temporary: str | None = None,
        sync: bool = True,
    ) -> None: ...
    def close(self) -> None: ...
    def read(self) -> Bounds: ...
    def update(
        self,
        *,
        first_sequence: int = 0,
        mark: tuple[int, int, int] | None = None,
        reservation_limit: int = 0,
        closed: tuple[int, int, int] | EllipsisType | None = ...,
        durable: bool = False,
        deadline: Deadline = ...,
    ) -> Bounds: ...

@disjoint_base
class HeldPosition:
    def __init__(self, file: LockFile, uuid: bytes, epoch: int, path: str) -> None: ...
    def write(self, sequence: int) -> None: ...

def both_copies(fd: int, uuid: bytes, *, bounds: bool = False) -> list[bytes | None]: ...
def birth_us(fd: int) -> int: ...
def change_us(file: int | LockFile, path: str) -> int: ...
def read_positions(directory: int, path: str, names: list[str], uuid: bytes) -> list[tuple[str, StoredPosition | None]]: ...
def read_position(file: int | LockFile, uuid: bytes, path: str) -> StoredPosition: ...
def write_position(file: int | LockFile, uuid: bytes, epoch: int, sequence: int, path: str) -> None: ...
def whose(image: bytes) -> Signature | None: ...

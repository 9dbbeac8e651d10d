from collections.abc import Mapping
from typing import Any, Protocol, type_check_only

from typing_extensions import disjoint_base

from jlog._core.process.life import Life
from jlog._core.process.process import WritingProcess
from jlog._core.system.lock import Deadline
from jlog.errors import JournalClosed

@type_check_only
class Policy(Protocol):
    def read(self, path: str) -> tuple[bytes, int, tuple[int, ...]]: ...
    def opened_alone(self, path: str, capacity: int, next_sequence: int) -> int: ...
    def change(self, path: str, options: Mapping[str, Any]) -> tuple[int, ...]: ...

@type_check_only
class Care(Protocol):
    def after_roll(self) -> None: ...
    def free_space(self, deadline: Deadline) -> None: ...

@disjoint_base
class Operations:
    def __init__(self, process: WritingProcess, policy: Policy, life: Life) -> None: ...

def sealed_bytes(path: str, uuid: bytes, open_segment: int) -> int: ...
def closed_error(path: str) -> JournalClosed: ...

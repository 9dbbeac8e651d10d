from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import disjoint_base

from jlog._core.read.cursor import Cursor
from jlog._core.system.lock import Deadline
from jlog._core.work.task import Task, TaskHolder
from jlog._core.work.window import Window

_T = TypeVar("_T")

@disjoint_base
class Interrupt:
    raised: bool

@disjoint_base
class TaskSource(TaskHolder):
    stopped: bool
    def __init__(self, window: Window, cursor: Cursor, again: Cursor, policy: Any, lease: float | None) -> None: ...
    def begin(self) -> None: ...
    def with_cursor(self, call: Callable[[], _T]) -> _T: ...
    def take(self, most: int, deadline: Deadline, interrupt: Interrupt | None = None) -> list[Task]: ...
    def seize(self, sequence: int) -> Task: ...
    def untold(self, error: BaseException) -> None: ...
    def ring(self) -> None: ...
    def close(self) -> None: ...

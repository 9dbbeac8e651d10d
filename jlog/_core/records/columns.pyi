from types import ModuleType

from typing_extensions import disjoint_base

from jlog._core.records.arrow import TEXTS as TEXTS
from jlog._core.records.arrow import Field

def import_pyarrow() -> ModuleType: ...

@disjoint_base
class Batch:
    @property
    def count(self) -> int: ...

@disjoint_base
class Columns(Batch):
    def __init__(self, fields: tuple[Field, ...], path: str | None = None, rows: int = 0, value_bytes: int = 0) -> None: ...
    @property
    def fields(self) -> tuple[Field, ...]: ...

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeAlias

from typing_extensions import Buffer, disjoint_base

HEADERS: str
EPOCH: datetime
_Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]

@disjoint_base
class EncodedRecords:
    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[_Headers | None] | None,
        timestamps_us: Sequence[int | None] | None,
    ) -> None: ...

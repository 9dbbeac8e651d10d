from collections.abc import Sequence
from typing import Any

TYPES: dict[str, int]

def json_columns(
    offsets: Any, data: Any, first: int, count: int, fields: Sequence[tuple[str, str]]
) -> list[tuple[bytearray, bytearray | None, bytearray]]: ...

"""The types that the fields of a sample of JSON objects have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow

from jlog.query.json_columns import ANY_FIELDS, DIGITS, named

DEPTH_MAX = 32  # of objects and arrays that become structs and lists; deeper ones are null
DIGITS_READ = 40  # of a whole number: Python refuses to read thousands, and no type of 64 bits holds these


class Inference:
    """Infers fields, at most `left` of them, those within others included."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.is_over: bool = False  # whether there were more

    def fields(self, objects: Sequence[dict[str, Any]], depth: int = 0) -> list[pyarrow.Field]:
        """Returns the fields with their names in the objects: the most frequent ones, in the order of the objects."""
        counts = Counter(name for found in objects for name in found if _is_text(name))
        names = list(counts)
        if len(names) > self._left:
            self.is_over = True
            chosen = {name for name, _ in counts.most_common(self._left)}
            names = [name for name in names if name in chosen]
        self._left -= len(names)
        return [self._field(name, [found.get(name) for found in objects], depth) for name in names]

    def _field(self, name: str, values: Sequence[Any], depth: int) -> pyarrow.Field:
        """Returns the field with the type that most values have."""
        kinds = Counter(_kind(value) for value in values if value is not None)
        kind = kinds.most_common(1)[0][0] if kinds else "str"
        if kind == "list" and depth < DEPTH_MAX:
            items = [item for value in values if isinstance(value, list) for item in value]
            return pyarrow.field(name, pyarrow.list_(self._field("item", items, depth + 1)))
        if kind == "dict" and depth < DEPTH_MAX:
            return pyarrow.field(name, self._object([value for value in values if isinstance(value, dict)], depth + 1))
        if kind == "number":
            return _of_numbers(name, [value for value in values if _kind(value) == "number"])
        return pyarrow.field(name, pyarrow.bool_() if kind == "bool" else pyarrow.string())

    def _object(self, objects: Sequence[dict[str, Any]], depth: int) -> pyarrow.DataType:
        if len({name for found in objects for name in found}) > self._left:
            self.is_over = True
            return ANY_FIELDS
        fields = self.fields(objects, depth)
        return pyarrow.struct(named(fields, ())) if fields else pyarrow.string()


def decoded(value: bytes | None) -> Any:
    """Returns what the value says in JSON; None where it is not JSON. Of a whole number with many digits, the first ones."""
    try:
        return None if value is None else json.loads(value.decode(), parse_int=lambda text: int(text[:DIGITS_READ]))
    except (ValueError, RecursionError):
        return None


def _of_numbers(name: str, numbers: Sequence[int | float]) -> pyarrow.Field:
    """Returns a type that holds all digits of the whole numbers: the text of the numbers where no other one does."""
    whole = [number for number in numbers if isinstance(number, int)]
    if len(whole) < len(numbers):
        return pyarrow.field(name, pyarrow.float64()) if all(map(_is_float, whole)) else pyarrow.field(name, *DIGITS)
    if all(-(1 << 63) <= number < 1 << 63 for number in whole):
        return pyarrow.field(name, pyarrow.int64())
    return (
        pyarrow.field(name, pyarrow.uint64())
        if all(0 <= number < 1 << 64 for number in whole)
        else pyarrow.field(name, *DIGITS)
    )


def _is_float(number: int) -> bool:
    return int(float(number)) == number


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "number" if name in ("int", "float") else name


def _is_text(text: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in text)

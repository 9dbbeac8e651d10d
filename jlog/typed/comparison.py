"""Compares an object with the one that readers get back."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any


def changed(value: Any, decoded: Any, place: str = "") -> str | None:
    """Returns the place of the first part that has changed, such as `lines.0.price`; "" where it is the whole. None: it is the
    same. A NaN is the same as another one, and a list the same as a tuple of its items."""
    if value is decoded or _is_equal(value, decoded):
        return None
    old: dict[Any, Any]
    new: dict[Any, Any]
    if isinstance(value, (list, tuple)) and isinstance(decoded, (list, tuple)):
        old, new = dict(enumerate(value)), dict(enumerate(decoded))
    elif type(value) is not type(decoded):
        return place
    elif isinstance(value, (float, Decimal)):
        return None if math.isnan(value) and math.isnan(decoded) else place
    elif isinstance(value, datetime):
        return None if _instant(value) == _instant(decoded) else place
    elif isinstance(value, dict):
        old, new = value, decoded
    else:
        names = _fields_of(value)
        if names is None:
            return place
        old, new = ({name: getattr(part, name, None) for name in names} for part in (value, decoded))
    if old.keys() != new.keys():
        return place
    for name, part in old.items():
        found = changed(part, new[name], f"{place}.{name}" if place else str(name))
        if found is not None:
            return found
    return None


def _instant(time: datetime) -> datetime:
    """Returns the time in UTC. Python takes a time in the hour that a zone's clocks repeat for unequal to every time of another
    zone (PEP 495)."""
    return time if time.tzinfo is None else time.astimezone(timezone.utc)


def _is_equal(value: Any, decoded: Any) -> bool:
    try:
        return bool(value == decoded)
    except Exception:  # noqa: BLE001 - its comparison fails: its parts are compared
        return False


def _fields_of(value: Any) -> list[str] | None:
    """Returns the names of what an object consists of; None where its own comparison says all."""
    kind: Any = type(value)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.compare]
    if hasattr(kind, "__struct_fields__"):
        return list(kind.__struct_fields__)
    if hasattr(kind, "model_fields"):  # a model's author excludes a field from what is stored
        return [*(name for name, field in kind.model_fields.items() if not field.exclude), *(value.model_extra or ())]
    if hasattr(kind, "__attrs_attrs__"):
        return [field.name for field in kind.__attrs_attrs__ if field.eq]
    return list(getattr(value, "__dict__", ())) if kind.__eq__ is object.__eq__ else None

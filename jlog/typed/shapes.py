"""The shapes of types: what their records look like, so that a change which readers would not understand is found."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

# What a JSON Schema says beside the form of a record. Of a union's classes their own fields tell the discriminator.
SAID_BESIDE = {"$defs", "default", "deprecated", "description", "discriminator", "examples", "title"}
CHOICES = {"anyOf", "enum", "oneOf"}
BY_FIELD = {"properties", "required", "additionalProperties"}


def shape_of(form: str, type_: Any) -> dict[str, Any] | None:
    """Returns the shape of a type's records: its JSON Schema, and how they are stored; None where it has no such schema."""
    import msgspec.json

    try:
        found = type_.model_json_schema() if hasattr(type_, "model_json_schema") else msgspec.json.schema(type_)
    except (TypeError, RuntimeError):  # of msgspec, of pydantic
        return None
    return {"form": form, "schema": found}


def name_of(shape: dict[str, Any]) -> str:
    """Returns the type's name; "" where its schema has none."""
    schema = shape["schema"]
    return str(schema.get("title") or schema.get("$ref", "").rpartition("/")[2])


def stored_shapes(stored: bytes | None) -> list[dict[str, Any]]:
    """Returns the shapes that a type has had in the journal."""
    return [] if stored is None else list(json.loads(zlib.decompress(stored)))


def as_stored(shapes: list[dict[str, Any]]) -> bytes:
    """Returns shapes for the journal's state. They are compressed: one differs little from the one before it."""
    return zlib.compress(json.dumps(shapes, sort_keys=True, separators=(",", ":")).encode(), 9)


def difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Returns how readers of one shape would fail with records of the other one, whichever is the reader; None: they would not.

    Fields that a reader does not need may come and go. All else must be the same.
    """
    if old["form"] != new["form"]:
        return f"it was stored as {old['form']}"
    return next(_Comparison(old["schema"], new["schema"]).differences(old["schema"], new["schema"], ""), None)


class _Comparison:
    """Compares two schemas. What it compared once counts as the same until a difference is found: a schema may hold itself, or
    another one at many places."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        self._old, self._new = old.get("$defs", {}), new.get("$defs", {})
        self._compared: set[tuple[int, int]] = set()

    def differences(self, old: Any, new: Any, place: str) -> Iterator[str]:
        if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for one, other in zip(old, new, strict=True):
                yield from self.differences(one, other, place)
            return
        if not isinstance(old, dict) or not isinstance(new, dict):
            if old != new:
                yield _changed(place, old, new)
            return
        old, new = _resolved(old, self._old), _resolved(new, self._new)
        pair = id(old), id(new)
        if pair in self._compared:
            return
        self._compared.add(pair)
        yield from self._of_fields(old, new, place)
        for name in sorted({*old, *new} - SAID_BESIDE - BY_FIELD):
            part = self._of_choices if name in CHOICES else self.differences
            yield from part(old.get(name), new.get(name), place)

    def _of_fields(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[str]:
        before, now = old.get("properties", {}), new.get("properties", {})
        for name in sorted(set(old.get("required", ())) ^ set(new.get("required", ()))):
            was = "was required and is not any more" if name in old.get("required", ()) else "is required and was not"
            yield f"the field {place + name!r} {was}"
        for name in before.keys() & now.keys():
            yield from self.differences(before[name], now[name], f"{place}{name}.")
        others = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if False in others and before.keys() != now.keys():
            names = ", ".join(repr(place + name) for name in sorted(before.keys() ^ now.keys()))
            yield f"the fields {names} come or go, and unknown fields are forbidden"
        yield from self.differences(*others, place)

    def _of_choices(self, old: Any, new: Any, place: str) -> Iterator[str]:
        """Compares the types of a union, or the values of an enum, whose order says nothing."""
        left = list(new or ())
        for one in old or ():
            same = next((index for index, other in enumerate(left) if self._is_same(one, other)), None)
            if same is None:
                break
            del left[same]
        else:
            if not left:
                return
        yield _changed(place, old, new)

    def _is_same(self, old: Any, new: Any) -> bool:
        before = self._compared.copy()
        for _ in self.differences(old, new, ""):
            self._compared = before
            return False
        return True


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return schema


def _changed(place: str, old: Any, new: Any) -> str:
    field = f"the field {place.rstrip('.')!r}" if place else "the type itself"
    return f"{field} has changed from {json.dumps(old)} to {json.dumps(new)}"

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
BY_NAME = {"$defs", "properties"}  # of these the keys are names, and each value is a schema
VALUES = {"const", "enum", "required"}  # these are values, and no schemas
NAMES = "x-names"  # of the fields of a class that is stored as an array: a schema has only their types


def shape_of(form: str, type_: Any) -> dict[str, Any] | None:
    """Returns the shape of a type's records: how they are stored, and what readers need of its JSON Schema; None where it has
    no such schema."""
    try:
        found = type_.model_json_schema() if hasattr(type_, "model_json_schema") else _msgspec_schema(type_)
    except (TypeError, RuntimeError):  # of msgspec, of pydantic
        return None
    return _compact({"form": form, "schema": found})


def _msgspec_schema(type_: Any) -> dict[str, Any]:
    import msgspec.inspect
    import msgspec.json

    classes = {id(found.cls): found for found in _stored_as_arrays(msgspec.inspect.type_info(type_), set())}.values()
    (schema, *others), definitions = msgspec.json.schema_components([type_, *(found.cls for found in classes)])
    for found, other in zip(classes, others, strict=True):
        definitions[other["$ref"].rpartition("/")[2]][NAMES] = [field.name for field in found.fields]
    return {**schema, "$defs": definitions}


def _stored_as_arrays(info: Any, visited: set[int]) -> Iterator[Any]:
    """Yields msgspec's description of each class within a type whose position says what a value is."""
    import msgspec.inspect as inspect

    if isinstance(info, (tuple, inspect.Field)) or (isinstance(info, inspect.Type) and id(info) not in visited):
        visited.add(id(info))
        if isinstance(info, inspect.NamedTupleType) or (isinstance(info, inspect.StructType) and info.array_like):
            yield info
        parts = info if isinstance(info, tuple) else [getattr(info, name) for name in info.__struct_fields__]
        for part in parts:
            yield from _stored_as_arrays(part, visited)


def _compact(shape: dict[str, Any]) -> dict[str, Any]:
    """Returns a shape with only what is compared, and the type's name."""
    return {"name": name_of(shape), "form": shape["form"], "schema": _needed(shape["schema"])}


def _needed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_needed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    titles = [part.get("title") if isinstance(part, dict) else None for part in schema.get("prefixItems", ())]
    if titles and all(titles):
        found[NAMES] = titles  # of pydantic
    for name, part in schema.items():
        if name in BY_NAME:
            found[name] = {key: _needed(value) for key, value in part.items()}
        elif name not in SAID_BESIDE:
            found[name] = part if name in VALUES or name == NAMES else _needed(part)
    return found


def name_of(shape: dict[str, Any]) -> str:
    """Returns the type's name; "" where its schema has none."""
    schema = shape["schema"]
    return str(shape.get("name") or schema.get("title") or schema.get("$ref", "").rpartition("/")[2])


def stored_shapes(stored: bytes | None) -> list[dict[str, Any]]:
    """Returns the shapes that a type has had in the journal. (Those of earlier versions are whole schemas.)"""
    return [] if stored is None else [_compact(shape) for shape in json.loads(zlib.decompress(stored))]


def as_stored(shapes: list[dict[str, Any]]) -> bytes:
    """Returns shapes for the journal's state."""
    return zlib.compress(json.dumps(shapes, sort_keys=True, separators=(",", ":")).encode(), 9)


def joined(before: list[dict[str, Any]], shape: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns shapes that say as much as all of these, which agree with each other. Those that differ only in fields that come
    and go are joined into one shape with all these fields. So a shape grows only by new fields."""
    apart: list[dict[str, Any]] = []
    for earlier in reversed(before):
        both = _union(earlier, shape) if earlier["name"] == shape["name"] else None
        if both is None or difference(both, earlier) or difference(both, shape):
            apart.insert(0, earlier)
        else:
            shape = both
    return [*apart, shape]


def _union(old: Any, new: Any) -> Any:
    """Returns the old part of a schema, and what the new one has besides; None where its names stand for something else."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        parts = [_union(*pair) for pair in zip(old, new, strict=True)]
        return None if None in parts else parts
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old
    if old.get("$ref") != new.get("$ref"):
        return None
    found = {**old, **{name: part for name, part in new.items() if name not in old}}
    for name in (old.keys() & new.keys()) - VALUES - CHOICES:
        found[name] = old[name] if old[name] == new[name] else _union(old[name], new[name])
        if found[name] is None:
            return None
    return found


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
        if NAMES in old and NAMES in new and old[NAMES] != new[NAMES]:
            yield f"{_field(place)} is stored as an array, whose fields have changed from {old[NAMES]} to {new[NAMES]}"
        for name in sorted({*old, *new} - SAID_BESIDE - BY_FIELD - {NAMES}):
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
    return f"{_field(place)} has changed from {json.dumps(old)} to {json.dumps(new)}"


def _field(place: str) -> str:
    return f"the field {place.rstrip('.')!r}" if place else "the type itself"

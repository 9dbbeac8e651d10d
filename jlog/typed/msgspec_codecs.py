"""Codecs of JSON and MessagePack, by msgspec, for classes and other types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jlog.errors import SchemaConflict
from jlog.typed.comparison import changed
from jlog.typed.shapes import as_stored, difference, joined, name_of, shape_of, stored_shapes

if TYPE_CHECKING:
    import types

    from jlog.typed.codec import Stored

TYPE_HEADER = "jlog.type"
STATE_KEY = b"jlog.types:"  # and the name in the header; nothing more for records without a header


def json(*types: Any, allow_changes: bool = False, check: bool = True) -> TypesCodec:
    """Returns a codec that stores objects of these types as JSON.

    types: classes: of msgspec.Struct, dataclasses, pydantic models, and others that msgspec takes. One type may be any that
        msgspec takes, for example `dict[str, int]`. Objects of several are told apart by the record's header `jlog.type`, which
        holds the class's name. A record without that header is taken for the first type.

    allow_changes: lets a Writer open with a type that has changed so that readers of one version cannot decode records of the
        other one. Without it that is a SchemaConflict.

    check: decodes each object that is encoded, and refuses it with a ValueError if readers could not decode it, or would get
        another one. False stores it unseen.

    Raises ImportError without msgspec: pip install 'pyjlog[typed]'.
    """
    return TypesCodec("json", types, allow_changes, check)


def msgpack(*types: Any, allow_changes: bool = False, check: bool = True) -> TypesCodec:
    """Returns a codec that stores objects of these types as MessagePack: smaller than JSON, and bytes stay bytes. The types are
    those of json(), and allow_changes and check too."""
    return TypesCodec("msgpack", types, allow_changes, check)


class TypesCodec:
    """The codec that json() and msgpack() return. It pickles with its types, if they can be imported where it arrives."""

    def __init__(self, form: str, types: Sequence[Any], allow_changes: bool = False, check: bool = True) -> None:
        if not types:
            raise ValueError(f"{form}() needs a type: {form}(Order), or {form}(dict) for any object of JSON")
        self._form, self._types, self._allow_changes, self._check = form, tuple(types), allow_changes, check
        kinds = [_kind(form, type_, check) for type_ in types]
        self._encode, self._first = kinds[0]
        self._decoders: dict[bytes, Callable[[bytes], Any]] = {}
        self._encoders: dict[type, tuple[Callable[[Any], bytes], list[tuple[str, bytes]]]] = {}
        for type_, (encode, decode) in zip(types, kinds, strict=True):
            if not isinstance(type_, type) and len(types) > 1:
                raise TypeError(f"{type_!r} is not a class: of several types each must be one, so that its name tells it apart")
            name = getattr(type_, "__name__", str(type_)).encode()
            if name in self._decoders:
                raise ValueError(f"two types have the name {name.decode()!r}, which tells their records apart; rename one")
            self._decoders[name] = decode
            if isinstance(type_, type):
                self._encoders[type_] = encode, [(TYPE_HEADER, name)]

    def __repr__(self) -> str:
        return f"{self._form}({', '.join(getattr(type_, '__name__', str(type_)) for type_ in self._types)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._form, self._types, self._allow_changes, self._check)

    def new_state(self, state: Mapping[bytes, bytes], path: str) -> dict[bytes, bytes]:
        """Returns the entries of the journal's state that tell the types' shapes from now on. Raises SchemaConflict."""
        found = {}
        named = zip(self._decoders, self._types, strict=True) if len(self._types) > 1 else ()
        for name, type_ in ((b"", self._types[0]), *named):  # records without a header are taken for the first type
            shape = shape_of(self._form, type_)
            if shape is not None:
                before = self._agreeing(shape, stored_shapes(state.get(STATE_KEY + name)), type_, path)
                together = joined(before, shape)
                if together != before:
                    found[STATE_KEY + name] = as_stored(together)
                if not (name or self._allow_changes):
                    self._check_first(name_of(shape), before, state, path)
        return found

    def _check_first(self, name: str, before: list[dict[str, Any]], state: Mapping[bytes, bytes], path: str) -> None:
        """Raises SchemaConflict where another type takes the place of the first one, though it looks the same: readers would
        take the records of one for those of the other."""
        is_other = name not in map(name_of, before)
        if is_other and (before if len(self._types) > 1 else STATE_KEY + name.encode() in state):
            first = f" ({name_of(before[-1])})" if before else ""
            raise SchemaConflict(
                f"{path}: readers take a record without the name of its type for the first of its types{first}, and not for "
                f"{name}; give that type first"
            )

    def _agreeing(self, shape: dict[str, Any], before: list[dict[str, Any]], type_: Any, path: str) -> list[dict[str, Any]]:
        """Returns the earlier shapes of a type, with which the new one agrees."""
        differences = [found for found in (difference(earlier, shape) for earlier in before) if found]
        if not differences:
            return before
        if self._allow_changes:
            return []
        name = getattr(type_, "__name__", str(type_))
        raise SchemaConflict(
            f"{path}: readers could not decode what was written before, or older readers what {name} becomes now: "
            f"{differences[0]}; give new fields a default and keep required ones, write it under another name, or open with "
            f"{self._form}({name}, allow_changes=True) once no older reader is left"
        )

    def encode(self, value: Any) -> bytes | tuple[bytes, list[tuple[str, bytes]]]:
        found = self._encoders.get(type(value))
        if found is None:
            if len(self._types) == 1 and not isinstance(self._types[0], type):
                return self._encode(value)
            raise TypeError(
                f"{self!r} stores no {type(value).__name__}; give an object of its types, or open with that type too"
            )
        encode, headers = found
        return encode(value) if len(self._types) == 1 else (encode(value), headers)

    def decode(self, record: Stored) -> Any:
        assert record.value is not None
        decode = self._first
        for name, value in record.headers:
            if name == TYPE_HEADER and value is not None:
                found = self._decoders.get(value)
                if found is None:
                    raise ValueError(f"it is of the type {value.decode(errors='replace')!r}, which {self!r} does not have")
                decode = found
        return decode(record.value)


def _kind(form: str, type_: Any, check: bool) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Returns the functions that encode and decode objects of the type."""
    msgspec = _import_msgspec()
    if not hasattr(type_, "model_validate_json"):
        module = getattr(msgspec, form)
        encode, decode = module.Encoder().encode, module.Decoder(type_).decode
    # A model of pydantic: what it validates, it reads from JSON, where times and the like have a form of their own.
    elif form == "json":
        encode, decode = lambda model: model.model_dump_json(by_alias=True).encode(), type_.model_validate_json
    else:
        encode = lambda model: msgspec.msgpack.encode(model.model_dump(mode="json", by_alias=True))  # noqa: E731
        decode = lambda value: type_.model_validate_json(msgspec.json.encode(msgspec.msgpack.decode(value)))  # noqa: E731
    return _checked(encode, decode) if check else encode, decode


def _checked(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Callable[[Any], bytes]:
    """Returns an `encode` that refuses objects which readers would not get back. Neither a dataclass nor a Struct checks its
    fields when it is created, and a model of pydantic not when they are set; NaN is null in JSON, a secret is asterisks, and a
    field's subclass loses what it adds."""

    def checked(value: Any) -> bytes:
        stored = encode(value)
        try:
            decoded = decode(stored)
        except Exception as error:
            raise ValueError(f"readers could not decode {value!r:.100}, so it is not stored: {error}") from error
        place = changed(value, decoded)
        if place is not None:
            what = f"its field {place!r}" if place else "it"
            raise ValueError(
                f"readers would not get {value!r:.100} back, so it is not stored: {what} would come back as another value; "
                "give the field a type that keeps it, or the codec check=False"
            )
        return stored

    return checked


def _import_msgspec() -> types.ModuleType:
    try:
        import msgspec
        import msgspec.json
        import msgspec.msgpack
    except ImportError as error:
        raise ImportError("typed records need msgspec, which is not installed: pip install 'pyjlog[typed]'") from error
    return msgspec

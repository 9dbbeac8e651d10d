"""Codecs of JSON and MessagePack, by msgspec, for classes and other types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types

    from jlog.typed.codec import Stored

TYPE_HEADER = "jlog.type"


def json(*types: Any) -> TypesCodec:
    """Returns a codec that stores objects of these types as JSON.

    types: classes: of msgspec.Struct, dataclasses, pydantic models, and others that msgspec takes. One type may be any that
        msgspec takes, for example `dict[str, int]`. Objects of several are told apart by the record's header `jlog.type`, which
        holds the class's name. A record without that header is taken for the first type.

    Raises ImportError without msgspec: pip install 'pyjlog[typed]'.
    """
    return TypesCodec("json", types)


def msgpack(*types: Any) -> TypesCodec:
    """Returns a codec that stores objects of these types as MessagePack: smaller than JSON, and bytes stay bytes. The types are
    those of json()."""
    return TypesCodec("msgpack", types)


class TypesCodec:
    """What json() and msgpack() return. It pickles with its types, if they can be imported where it arrives."""

    def __init__(self, form: str, types: Sequence[Any]) -> None:
        if not types:
            raise ValueError(f"{form}() needs a type: {form}(Order), or {form}(dict) for any object of JSON")
        self._form, self._types = form, tuple(types)
        kinds = [_kind(form, type_) for type_ in types]
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
        return type(self), (self._form, self._types)

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


def _kind(form: str, type_: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Returns the functions that encode and decode objects of the type."""
    msgspec = _import_msgspec()
    if not hasattr(type_, "model_validate_json"):
        module = getattr(msgspec, form)
        decode = module.Decoder(type_).decode
        return _checked(module.Encoder().encode, decode), decode
    # A model of pydantic: what it validates, it reads from JSON, where times and the like have a form of their own.
    if form == "json":
        return lambda model: model.model_dump_json(by_alias=True).encode(), type_.model_validate_json
    return (
        lambda model: msgspec.msgpack.encode(model.model_dump(mode="json", by_alias=True)),
        lambda value: type_.model_validate_json(msgspec.json.encode(msgspec.msgpack.decode(value))),
    )


def _checked(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Callable[[Any], bytes]:
    """Returns an `encode` that refuses objects which readers could not decode. Neither a dataclass nor a Struct checks its
    fields when it is created."""

    def checked(value: Any) -> bytes:
        stored = encode(value)
        try:
            decode(stored)
        except Exception as error:
            raise ValueError(f"readers could not decode {value!r:.100}, so it is not stored: {error}") from error
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

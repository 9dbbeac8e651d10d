"""The interface of a codec, and its use by a writer and a reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jlog.errors import DecodeError, JournalError, text_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Headers = Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None]


class Stored(Protocol):
    """The argument of decode(): a record, a message of a topic, or a task."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def sequence(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class Codec(Protocol):
    """Turns objects into values, and records into objects. None, a tombstone, stays None and does not come here.

    A codec may also have `new_state(state, path)`. Writer calls it with the journal's state when it opens, while no other
    writer does so, and stores what it returns. It raises SchemaConflict for a writer that must not open.
    """

    def encode(self, value: Any, /) -> Buffer | tuple[Buffer, Sequence[tuple[str, Buffer | None]]]:
        """Returns the value to store, or the value and headers to add. Raises TypeError or ValueError for another object."""

    def decode(self, record: Any, /) -> Any:
        """Returns the object that a record holds: its `value`, `key`, `headers` and `sequence` tell. Any Exception says that it
        holds none, but for ConnectionError, TimeoutError, MemoryError and JournalError, which say that this is not known."""


def check_codec(codec: Codec | None, needed: str) -> Codec | None:
    """Returns the codec. Raises TypeError for an object without the method `needed`, and for a class in place of its codec."""
    if codec is None or (not isinstance(codec, type) and callable(getattr(codec, needed, None))):
        return codec
    name = codec.__name__ if isinstance(codec, type) else "Order"
    raise TypeError(f"codec must be an object with {needed}(), such as jlog.typed.json({name}), not {codec!r}")


def encoded(codec: Codec, value: Any, headers: Headers | None) -> tuple[Buffer | None, Headers | None]:
    """Returns the bytes and the headers of a record that holds the object."""
    if value is None:
        return None, headers
    found: Any = codec.encode(value)
    stored, added = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if stored is None or isinstance(stored, tuple):
        raise TypeError(f"encode() of the codec must return bytes, or bytes and headers to add, not {found!r}")
    if added is None:
        return stored, headers
    if headers is None:
        return stored, added
    return stored, [*(headers.items() if isinstance(headers, Mapping) else headers), *added]


def encoded_columns(
    codec: Codec, values: Iterable[Any], headers: Iterable[Headers | None] | None
) -> tuple[list[Buffer | None], list[Headers | None] | None]:
    """Returns the bytes and the headers of records that hold the objects."""
    values = list(values)
    given: list[Headers | None] = [None] * len(values) if headers is None else list(headers)
    if len(given) != len(values):
        return values, given  # extend refuses them, and says why
    pairs = [encoded(codec, value, own) for value, own in zip(values, given, strict=True)]
    columns = [own for _, own in pairs]
    return [stored for stored, _ in pairs], columns if any(own is not None for own in columns) else None


class Decoder:
    """Decodes the records of one journal or topic."""

    def __init__(self, codec: Codec, path: str) -> None:
        check_codec(codec, "decode")
        self.path: str
        self._codec, self.path = codec, path

    def decode(self, record: Stored) -> Any:
        """Returns the object that the record holds, or raises DecodeError."""
        if record.value is None:
            return None
        try:
            return self._codec.decode(record)
        except (ConnectionError, TimeoutError, MemoryError, JournalError):
            raise  # a service that the codec asks is away, say: a sound record must not become a dead letter
        except Exception as error:
            reason = f"{type(error).__name__}: {text_of(error)}"
            raise DecodeError(self.path, record.sequence, reason) from error

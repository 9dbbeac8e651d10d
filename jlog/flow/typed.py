"""The function of a transform with a codec: its records know how to decode themselves, and it may return objects."""

from __future__ import annotations

from typing import Any

from jlog.errors import DecodeError
from jlog.flow.ends import Undecided
from jlog.flow.normal import BYTES_LIKE
from jlog.flow.records import Function, NewRecord
from jlog.record import Record, with_decoder
from jlog.typed.codec import Codec, Decoder, encoded

_PARTS = "value", "key", "headers", "timestamp_us"


def typed_function(function: Function, codec: Codec, path: str) -> Function:
    """Returns a function that calls this one with records that the codec decodes, and encodes the objects that it returns.
    path: names the source in a DecodeError."""
    decoder = _Decoder(codec, path)

    def call(record: Any) -> Any:
        made = function(with_decoder(record, decoder) if isinstance(record, Record) else record.typed(decoder))
        if isinstance(made, (list, tuple)):
            return [_stored(codec, one, record) for one in made]
        return _stored(codec, made, record)

    return call


class _Decoder(Decoder):
    """A codec that cannot say now what a record holds does not make the record a refused one: the flow tries again."""

    def decode(self, record: Any) -> Any:
        try:
            return super().decode(record)
        except DecodeError:
            raise
        except (ConnectionError, TimeoutError) as error:
            raise Undecided(f"{self.path}: record {record.sequence} cannot be decoded now: {error}") from error


def _stored(codec: Codec, made: Any, record: Any) -> Any:
    """Returns bytes and records as they are, and for an object a record with its bytes and the headers of its type."""
    if made is None or isinstance(made, BYTES_LIKE) or all(hasattr(made, part) for part in _PARTS):
        return made
    value, headers = encoded(codec, made, None)
    added = list(headers or ())
    names = {name for name, _ in added}
    kept = [header for header in record.headers if header[0] not in names]
    return NewRecord.like(record, value=value, headers=[*kept, *added])

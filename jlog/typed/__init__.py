"""Typed records: objects in place of bytes, by a codec.

`codec=` of Writer, Reader and Worker takes one: `json(Order)`, `msgpack(Order)`, or any object that fulfils `Codec`.
"""

from jlog.typed.codec import Codec, Decoder
from jlog.typed.msgspec_codecs import json, msgpack

__all__ = ["Codec", "Decoder", "json", "msgpack"]

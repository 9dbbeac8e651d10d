"""Typed records: objects in place of bytes, by a codec.

`codec=` of Writer, Reader and Worker takes one: `json(Order)`, `msgpack(Order)`, `confluent(topic, …)`, or any object that
fulfils `Codec`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from jlog.typed.codec import Codec, Decoder

if TYPE_CHECKING:
    from jlog.typed.confluent_codec import confluent
    from jlog.typed.msgspec_codecs import json, msgpack
else:
    # Every Writer needs Codec's module, and few need the codecs: they are imported when they are first used.
    MODULES = {"confluent": "confluent_codec", "json": "msgspec_codecs", "msgpack": "msgspec_codecs"}

    def __getattr__(name):
        if name in MODULES:
            return getattr(import_module(f"jlog.typed.{MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Codec", "Decoder", "confluent", "json", "msgpack"]

"""A codec of Confluent's serializers, which number the schema of each record in a schema registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError, SchemaConflict

if TYPE_CHECKING:
    from confluent_kafka.serialization import SerializationContext

    from jlog.typed.codec import Stored

NOT_FOUND = range(40400, 40500)  # the registry's own numbers: it has no such schema
REFUSED = (409, 422)  # HTTP: the subject's rule forbids the change, or what was sent is not a schema
# The registry's client raises errors of httpx or of httpx2, whichever its release needs. (Those of requests are OSErrors.)
UNREACHED = {"TransportError", "OAuthTokenError"}


def confluent(
    topic: str,
    serializer: Callable[[Any, SerializationContext | None], Any] | None = None,
    deserializer: Callable[[Any, SerializationContext | None], Any] | None = None,
) -> ConfluentCodec:
    """Returns a codec that stores what Confluent's clients write to the topic: the number of the record's schema in a schema
    registry, and the object.

    topic: names the schemas in the registry; by default `TOPIC-value`. Use that of the mirror, if there is one.
    serializer, deserializer: of `confluent_kafka.schema_registry`, for Avro, JSON or Protobuf. A writer needs the first one,
        and a reader the second one.

    Whether a type may change is for the registry to say, by the rules of its subject: where it refuses, appending raises
    SchemaConflict. While the registry cannot be reached, appending and decoding raise ConnectionError, and never DecodeError.
    Raises ImportError without the registry's client: pip install 'confluent-kafka[json]', or avro or protobuf.
    """
    return ConfluentCodec(topic, serializer, deserializer)


class ConfluentCodec:
    """The codec that confluent() returns. Like the registry's client it does not pickle."""

    def __init__(self, topic: str, serializer: Any, deserializer: Any) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryError
            from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
        except ImportError as error:
            raise ImportError(
                f"the client of schema registries needs {error.name}, which is not installed: "
                "pip install 'confluent-kafka[json]', or avro or protobuf"
            ) from error
        self._context = partial(SerializationContext, topic, MessageField.VALUE)
        self._registry_error, self._wrong_object = SchemaRegistryError, SerializationError
        self._serializer, self._deserializer = serializer, deserializer

    def encode(self, value: Any) -> tuple[bytes, list[tuple[str, bytes]]]:
        if self._serializer is None:
            raise JournalError("this codec only decodes: it has no serializer; give confluent() one")
        headers: list[tuple[str, bytes]] = []  # the serializer puts the schema's number there, if it is set to
        try:
            return self._serializer(value, self._context(headers)), headers
        except self._wrong_object as error:
            raise ValueError(f"{value!r:.100} does not fit its schema, so it is not stored: {error}") from error
        except self._registry_error as error:
            if error.http_status_code not in REFUSED:
                self._raise_if_unreached(error)
                raise
            raise SchemaConflict(
                f"the schema registry refuses the schema, so nothing was stored: {error}; change the type so that "
                "the subject's rule allows it, or the rule"
            ) from error
        except Exception as error:
            self._raise_if_unreached(error)
            raise

    def decode(self, record: Stored) -> Any:
        if self._deserializer is None:
            raise JournalError("this codec only encodes: it has no deserializer; give confluent() one")
        try:
            return self._deserializer(record.value, self._context(list(record.headers)))
        except Exception as error:
            self._raise_if_unreached(error)
            raise

    def _raise_if_unreached(self, error: Exception) -> None:
        """Raises ConnectionError for an error of the registry that says nothing about the record."""
        if isinstance(error, self._registry_error):
            unreached = error.error_code not in NOT_FOUND
        else:
            unreached = isinstance(error, OSError) or not UNREACHED.isdisjoint(kind.__name__ for kind in type(error).__mro__)
        if unreached:
            raise ConnectionError(
                f"the schema registry did not answer as it should: {type(error).__name__}: {error}"
            ) from error

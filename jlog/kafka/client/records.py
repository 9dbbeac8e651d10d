"""Messages of Kafka as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import repeat
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError

from jlog.flow.ends import Refuse, Refused
from jlog.flow.records import Headers
from jlog.kafka.client.names import OFFSET, PARTITION, SEQUENCE, TOPIC
from jlog.record import columns_of, fields_of, import_pyarrow, no_codec, requested_fields, schema_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from jlog.typed.codec import Decoder

# Where the client fails to decode a name, it returns a value and sets an error. Only calls out of C see that this is wrong: the
# interpreter's own, once it has specialized them, go on with the value.
_headers_of = methodcaller("headers")
NO_UTF8 = "the name of one of its headers is not UTF-8"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

OnCommit = Callable[["KafkaError | None"], None]
OnFailure = Callable[[KafkaError, str, "int | None"], None]  # with the topic, and the record's sequence if it is known


class At(NamedTuple):
    """A partition, and where it is read."""

    topic: str
    partition: int
    offset: int  # of the next message
    leader_epoch: int = -1  # of the last message; -1: not known


class Event(NamedTuple):
    """The end of a partition, or an error, between messages."""

    error: KafkaError
    topic: str  # "": the error is not of a topic
    partition: int
    offset: int


class KafkaRecord:
    """A message with the attributes of a jlog.Record. `sequence` is its offset; times are whole milliseconds."""

    __slots__ = ("_broken", "_decoder", "_message", "key", "partition", "sequence", "timestamp_us", "topic", "value")
    _FIELDS = ("headers", "key", "partition", "sequence", "timestamp_us", "topic", "value")

    def __init__(self, message: Any, broken: list[Any] | None = None, decoder: Decoder | None = None) -> None:
        self._message = message
        self._decoder = decoder
        self._broken: list[Any] = [] if broken is None else broken
        self.value: bytes | None = message.value()
        self.key: bytes | None = message.key()
        self.sequence: int = message.offset()
        self.timestamp_us: int = time_us_of(message) or 0
        self.topic: str = message.topic()
        self.partition: int = message.partition()

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Returns name and value of each header. Raises Refused where a name is not UTF-8."""
        # If the client has failed once to create the headers of a message, it returns half of them the next time, and their use
        # crashes the interpreter.
        if any(message is self._message for message in self._broken):
            raise Refused(NO_UTF8, self)
        try:
            return _headers_of(self._message) or []
        except (SystemError, UnicodeDecodeError):
            self._broken.append(self._message)
            raise Refused(NO_UTF8, self) from None

    def typed(self, decoder: Decoder) -> KafkaRecord:
        """Returns the same message, which this decoder decodes."""
        return KafkaRecord(self._message, self._broken, decoder)

    @property
    def decoded(self) -> Any:
        """The object that the reader's codec decodes the value to, as jlog.Record has it."""
        return _decoder_of(self).decode(self)

    @property
    def timestamp(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaRecord) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.sequence))

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._FIELDS)

    def __repr__(self) -> str:
        return f"<jlog.kafka record {self.topic}/{self.partition} {self.sequence}: {self.value!r}>"


def _decoder_of(holder: KafkaRecord | KafkaBatch) -> Decoder:
    if holder._decoder is None:
        raise no_codec()
    return holder._decoder


def headers_of(message: Any) -> Headers:
    """Returns the headers of a message. Raises Refused if the name of one is not UTF-8; they must not be asked for again."""
    try:
        return _headers_of(message) or ()
    except (SystemError, UnicodeDecodeError):
        raise Refused(NO_UTF8) from None


def sequence_in(message: Any) -> int | None:
    """Returns the sequence that the record had in its journal, if the mirror has sent it."""
    try:
        text = next((value for name, value in headers_of(message) if name == SEQUENCE), None)
    except Refused:
        return None
    return int(text) if text is not None and text.isdigit() else None


def time_us_of(message: Any) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1000


class KafkaBatch:
    """A batch of messages in order. Those of several partitions are interleaved."""

    __slots__ = ("_broken", "_decoder", "_messages")

    def __init__(self, messages: Any, decoder: Decoder | None = None) -> None:
        self._messages = messages  # a sequence of them
        self._decoder = decoder
        self._broken: list[Any] = []  # those whose headers cannot be read

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[KafkaRecord]:
        return map(KafkaRecord, self._messages, repeat(self._broken), repeat(self._decoder))

    @overload
    def __getitem__(self, index: int, /) -> KafkaRecord: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[KafkaRecord]: ...
    def __getitem__(self, index: int | slice, /) -> KafkaRecord | list[KafkaRecord]:
        if isinstance(index, slice):
            return [KafkaRecord(message, self._broken, self._decoder) for message in self._messages[index]]
        return KafkaRecord(self._messages[index], self._broken, self._decoder)

    def __repr__(self) -> str:
        return f"<jlog.kafka.KafkaBatch of {len(self)} records>"

    @property
    def count(self) -> int:
        return len(self)

    def values(self) -> list[bytes | None]:
        return [message.value() for message in self._messages]

    def decoded(self) -> list[Any]:
        """Returns the objects that the reader's codec decodes the values to, as jlog.RecordBatch does."""
        decoder = _decoder_of(self)
        return [decoder.decode(record) for record in self]

    def to_arrow(self) -> Any:
        """Returns a pyarrow.RecordBatch with the columns of jlog.RecordBatch.to_arrow."""
        return import_pyarrow().record_batch(self)

    def __arrow_c_schema__(self) -> CapsuleType:
        return schema_of(fields_of())

    def __arrow_c_array__(self, requested_schema: CapsuleType | None = None) -> tuple[CapsuleType, CapsuleType]:
        """Returns the records as jlog.RecordBatch does."""
        fields = requested_fields(requested_schema, fields_of())
        return columns_of(self, fields).__arrow_c_array__()


class CapturedRecord(KafkaRecord):
    """A message on its way into a journal. Its last headers name its place in Kafka."""

    __slots__ = ("_place",)

    def __init__(self, message: Any, broken: list[Any], place: Headers) -> None:
        super().__init__(message, broken)
        self._place = place

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return [*super().headers, *self._place, (OFFSET, b"%d" % self.sequence)]


class CapturedBatch(KafkaBatch):
    """A batch on its way into a journal: headers of each record name its place in Kafka, with the topic if `with_topic`."""

    __slots__ = ("_with_topic",)

    def __init__(self, messages: Any, with_topic: bool) -> None:
        super().__init__(messages)
        self._with_topic = with_topic

    def __iter__(self) -> Iterator[KafkaRecord]:
        return map(self._record, self._messages)

    def _record(self, message: Any) -> CapturedRecord:
        return CapturedRecord(message, self._broken, part_of(message, self._with_topic))

    def add_to(self, body: Any, refuse: Refuse) -> int:
        """Adds the records to the body of a journal's writer, as Sink.write does. Returns the bytes of their values."""
        found, index = 0, 0
        while True:
            index, value_bytes, reason = self._messages.add_to(body, self._with_topic, index)
            found += int(value_bytes)
            if not reason:
                return found
            message = self._messages[index]
            if reason == NO_UTF8:
                self._broken.append(message)
            if not refuse(index, self._record(message), reason):
                return found
            index += 1


def part_of(message: Any, with_topic: bool) -> Headers:
    """Returns the headers that name the partition of a message, and its topic before that if `with_topic`."""
    return ((TOPIC, message.topic().encode()),) * with_topic + ((PARTITION, b"%d" % message.partition()),)

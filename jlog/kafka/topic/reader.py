"""Reads one partition of a topic as a journal."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError, SubscriberNotFound
from jlog.kafka.client.cluster import ANSWER_SECONDS
from jlog.kafka.client.errors import BrokerError
from jlog.kafka.client.records import KafkaBatch, KafkaRecord
from jlog.kafka.client.settings import Config
from jlog.kafka.client.url import parse
from jlog.kafka.topic import groups
from jlog.kafka.topic.fetch import Fetch
from jlog.kafka.topic.partition import Opened, Partition
from jlog.positions.names import Start, check_name, check_new_name
from jlog.reading.async_follow import in_thread
from jlog.reading.pace import Pace
from jlog.record import ArrowBatch, Field, columns_of, fields_of, requested_fields, schema_of, stream_of
from jlog.typed.codec import Decoder

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from jlog.typed.codec import Codec

SLICE_SECONDS = 0.2  # longest wait in one piece, so that Ctrl-C is heard
SAME_SECONDS = 1.0  # seconds between two looks at whether the topic is still the same
READ_BACK = 1_000
STREAM_RECORDS, STREAM_BYTES = 65_536, 16 << 20  # of one batch of a stream


class TopicReader(Opened):
    """Reads the committed messages of one partition in order, as jlog.Reader reads a journal; `sequence` is the offset.

    With a `name` it is a subscriber, which is a consumer group of this name: commit() commits the group's offset, where reading
    resumes. The name belongs to one TopicReader at a time (after a crash, for ten seconds more); other consumers of the
    group are not kept away. Retention ignores subscribers: PositionLost where it was faster.

    start, create: as in jlog.Reader.
    durable_only: changes nothing, since all readable messages are acknowledged by the replicas that must.
    lock_timeout: has no effect.
    codec: as in jlog.Reader.
    config, config_file: settings of librdkafka.

    A TopicReader is used by one thread at a time. After a fork the child's raises JournalClosed. It cannot be pickled.
    """

    _kind = "reader"

    def __init__(
        self,
        url: str,
        name: str | None = None,
        *,
        start: Start = "begin",
        create: bool = True,
        durable_only: bool = False,  # noqa: ARG002
        codec: Codec | None = None,
        lock_timeout: float | None = None,  # noqa: ARG002
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._name = None if name is None else check_name(name, "subscriber")
        super().__init__(parse(url))
        self._registration: groups.Registration | None = None
        self._buffer: deque[Any] = deque()
        self._position = 0
        self._same_at = time.monotonic()
        self._partition = Partition(url, config, config_file)
        self._decoder = None if codec is None else Decoder(codec, self._url)
        self._consumer = groups.consumer_of(self._partition, name)
        try:
            offset = self._partition.find(start) if name is None else self._subscribe(name, start, create)
            self._fetch = Fetch(self._partition, self._consumer)
            self._go(offset)
        except BaseException:
            self.close()
            raise

    def _subscribe(self, name: str, start: Start, create: bool) -> int:
        found = groups.committed(self._consumer, self._partition, name)
        if found is None and not create:
            raise groups.not_found(self._partition, name, groups.subscribers_of(self._partition))
        offset = found
        if offset is None:
            check_new_name(name, "subscriber")
            offset = self._partition.kept(self._partition.find(start))
        self._registration = groups.Registration(self._partition, name)
        if found is None:
            groups.commit(self._consumer, self._partition, name, offset)
        return offset

    def __repr__(self) -> str:
        return f"<jlog.kafka.TopicReader {self._url!r} {self._name or 'anonymous'}>"

    # --- Reading ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[KafkaRecord]:
        """Iterates over the records up to the end as it is now; iterate again to go on."""
        self._check_open()
        return self._up_to(self._partition.end())

    def values(self) -> Iterator[bytes | None]:
        """Iterates over the values alone."""
        return (record.value for record in self)

    def _up_to(self, end: int) -> Iterator[KafkaRecord]:
        while self._position < end and (self._buffer or self._catch_up(end)):
            message = self._buffer.popleft()
            self._position = message.offset() + 1
            yield KafkaRecord(message, decoder=self._decoder)

    def follow(self, timeout: float | None = None, *, pace: float | None = None) -> Iterator[KafkaRecord]:
        """Iterates over records as they come. Ends after `timeout` seconds without one; None: never. pace: as in
        jlog.Reader.follow."""
        self._check_open()
        paced = None if pace is None else Pace(pace)
        return self._following(timeout, paced)

    def _following(self, timeout: float | None, pace: Pace | None) -> Iterator[KafkaRecord]:
        while self._buffer or self._wait(timeout):
            message = self._buffer[0]
            record = KafkaRecord(message, decoder=self._decoder)
            if pace is not None:
                time.sleep(max(0.0, pace.delay(record.timestamp_us)))
            if self._take(message):
                yield record

    def _take(self, message: Any) -> bool:
        """Moves after the message. Returns False where it is not the next one any more: the position was moved while it was not
        due."""
        if not self._buffer or self._buffer[0] is not message:
            return False
        self._pass([message])
        return True

    async def follow_async(self, timeout: float | None = None, *, pace: float | None = None) -> AsyncIterator[KafkaRecord]:
        """Does the same for `async for`: a thread waits, and the loop runs on. A step that is cancelled loses no record."""
        paced = None if pace is None else Pace(pace)
        while bool(self._buffer) or await self._wait_async(timeout):
            message = self._buffer[0]
            record = KafkaRecord(message, decoder=self._decoder)
            if paced is not None:
                await asyncio.sleep(max(0.0, paced.delay(record.timestamp_us)))
            if self._take(message):
                yield record

    def read(self, max_records: int = 10_000, max_bytes: int = 64 << 20, timeout: float | None = 0) -> KafkaBatch:
        """Returns at least one record, and at most `max_records` or, beyond the first, `max_bytes`. The batch is empty only if
        no record came within `timeout` seconds (None: waits for ever)."""
        if max_records < 1 or max_bytes < 1:
            raise ValueError(f"max_records and max_bytes must be at least 1, not {max_records} and {max_bytes}")
        self._check_open()
        if not self._buffer:
            there = self._get(0) or self._catch_up(self._partition.end())
            if not there and timeout != 0:
                self._wait(timeout)
        found = self._buffered(max_records, max_bytes)
        self._pass(found)
        return KafkaBatch(found, self._decoder)

    def _buffered(self, max_records: int, max_bytes: int, end: float = float("inf")) -> list[Any]:
        """Returns the next messages before `end`, which stay in the buffer: no more than these, but one at least."""
        found: list[Any] = []
        for message in islice(self._buffer, max_records):
            max_bytes -= len(message)
            if message.offset() >= end or (found and max_bytes < 0):
                break
            found.append(message)
        return found

    def _pass(self, messages: Sequence[Any]) -> None:
        """Moves after these messages, which are the next ones."""
        for message in messages:
            self._buffer.popleft()
            self._position = message.offset() + 1

    def __arrow_c_schema__(self) -> CapsuleType:
        return schema_of(fields_of())

    def __arrow_c_stream__(self, requested_schema: CapsuleType | None = None) -> CapsuleType:
        """Returns the records from the position to the end as it is now, as jlog.Reader does."""
        self._check_open()
        fields = requested_fields(requested_schema, fields_of())
        end = self._partition.end()
        return stream_of(fields, self.arrow_batches(fields, end), self)

    def arrow_batches(
        self,
        fields: Sequence[Field],
        end: int | None = None,
        max_records: int = STREAM_RECORDS,
        max_bytes: int = STREAM_BYTES,
        needle: bytes | None = None,  # noqa: ARG002 - no record is left out
        stand_in_us: int | None = None,  # noqa: ARG002 - each has its own timestamp
    ) -> Iterator[ArrowBatch]:
        """Iterates over the records in columns that no library has taken yet, as jlog.Reader does."""
        until = self._partition.end() if end is None else end
        return iter(lambda: self._columns_up_to(until, tuple(fields), max_records, max_bytes), None)

    def _columns_up_to(self, end: int, fields: tuple[Field, ...], max_records: int, max_bytes: int) -> ArrowBatch | None:
        if self._position >= end or not (self._buffer or self._catch_up(end)):
            return None
        found = self._buffered(max_records, max_bytes, end)
        if not found:
            return None
        columns = columns_of(KafkaBatch(found), fields, self._url)
        self._pass(found)
        return columns

    def read_backward(self, max_records: int) -> list[KafkaRecord]:
        """Returns at most so many records before the position, newest first. The position moves back before them."""
        if max_records < 1:
            raise ValueError(f"max_records must be at least 1, not {max_records}")
        self._check_open()
        found: list[KafkaRecord] = []
        first, end = self._partition.first(), self._position
        while end > first and len(found) < max_records:
            begin = max(first, end - min(READ_BACK, max_records - len(found)))
            self._go(begin)
            found += [*self._up_to(end)][::-1]
            end = begin
        self._go(found[-1].sequence if found else end)
        return found

    # --- The client -------------------------------------------------------------------------------------------------

    def _go(self, offset: int) -> None:
        self._buffer.clear()
        self._position = offset
        self._fetch.seek(offset)

    def _get(self, timeout: float) -> bool:
        """Fetches, and returns whether there is a record then."""
        self._check_open()
        self._buffer.extend(self._fetch.get(timeout))
        if self._buffer and time.monotonic() > self._same_at + SAME_SECONDS:
            self._partition.check_same()  # no fetch reports that the topic is another one
            self._same_at = time.monotonic()
        if not self._buffer and self._fetch.eof is not None:
            self._position = max(self._position, self._fetch.eof)
        return bool(self._buffer)

    def _catch_up(self, end: int) -> bool:
        """Waits until the brokers have sent the next record before `end`. Returns whether there is one."""
        until = time.monotonic() + ANSWER_SECONDS
        while self._position < end:
            if self._get(SLICE_SECONDS):
                return bool(self._buffer[0].offset() < end)
            if time.monotonic() > until:
                said = self._partition.settings.last_said
                raise BrokerError(f"{self._url}: reading: no broker answers ({said or 'no reason is known'})")
        return False

    def _wait(self, timeout: float | None) -> bool:
        """Returns whether a record came in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._get(SLICE_SECONDS if until is None else max(0, min(SLICE_SECONDS, until - time.monotonic()))):
            if until is not None and time.monotonic() >= until:
                return False
        return True

    async def _wait_async(self, timeout: float | None) -> bool:
        """Waits in a thread, for a short time again and again: a wait that is cancelled leaves no thread that reads on,
        or that the loop would wait for at its end."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, min(SLICE_SECONDS, until - time.monotonic()))
            found = await in_thread(self._wait, left)
            if found or time.monotonic() >= until:
                return found

    # --- Position ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def position(self) -> int:
        """Offset of the next record to read. It moves with every record handed out."""
        self._check_open()
        return self._position

    @property
    def committed(self) -> int:
        """Offset at which reading resumes after a crash."""
        _, name = self._named()
        found = groups.committed(self._consumer, self._partition, name)
        if found is None:
            raise SubscriberNotFound(f"{self._url}: subscriber {self._name!r} was removed")
        return found

    @property
    def lag(self) -> int:
        """Offsets between the position and the end. The end of a transaction counts until it was passed."""
        self._check_open()
        return max(0, self._partition.end() - max(self._position, self._partition.first()))

    def seek(self, to: Start) -> None:
        """Moves the position, not what is committed, to "begin", "end", an offset, or an aware datetime."""
        self._check_open()
        self._go(self._partition.kept(self._partition.find(to, checkpoints=False)))

    # --- Commit and checkpoints -------------------------------------------------------------------------------------

    def commit(self, sequence: int | None = None, *, durable: bool = False) -> None:  # noqa: ARG002
        """Commits the position, or `sequence`: all records before it are done with, and reading resumes there after a crash.
        The brokers have the commit when this returns; `durable` adds nothing. Raises SubscriberBusy where another reader may
        have the name, since this process had stopped for too long."""
        registration, name = self._named()
        if sequence is None:
            sequence = self._position
        elif isinstance(sequence, bool) or not isinstance(sequence, int):
            raise TypeError(f"a commit takes an offset, not {sequence!r}")
        elif sequence < 0:
            raise ValueError(f"an offset must be 0 or more, not {sequence}")
        if sequence > self._position and sequence > self._partition.end():
            raise ValueError(f"{self._url} ends before offset {sequence}; commit what has been read")
        if sequence < self._position:
            self._partition.kept(sequence)
        registration.check()
        self._partition.check_same()
        groups.commit(self._consumer, self._partition, name, sequence)

    def checkpoint(self, name: str) -> None:
        """Creates the checkpoint `name`, or moves it, to the position. It holds nothing back from retention."""
        check_new_name(name, "checkpoint")
        self._check_open()
        self._partition.set_checkpoint(name, self._partition.kept(self._position))

    def rewind(self, name: str) -> None:
        """Moves position and committed back to the checkpoint `name`."""
        registration, subscriber = self._named()
        offset = self._partition.kept(self._partition.checkpoint(name))
        registration.check()
        groups.commit(self._consumer, self._partition, subscriber, offset)
        self._go(offset)

    def sync(self) -> None:
        """Does nothing: records that can be read are durable already."""
        self._check_open()

    def close(self) -> None:
        """Frees the name, without a commit. A second close does nothing."""
        if self._closed:
            return
        self._closed = True
        self._buffer.clear()
        if self._pid != os.getpid():
            return  # a client does not survive a fork
        if self._registration is not None:
            self._registration.close()
        self._consumer.close()

    def _named(self) -> tuple[groups.Registration, str]:
        self._check_open()
        if self._registration is None or self._name is None:
            raise JournalError(f"{self._url}: an anonymous reader commits nothing; open it with a name")
        return self._registration, self._name

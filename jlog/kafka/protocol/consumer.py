"""A consumer that fetches whole record batches, and makes no Python object for a message before it is asked for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from operator import itemgetter

from confluent_kafka import KafkaError

from jlog._core.kafka.fetched import FetchedBatches, FetchedMessages
from jlog.kafka.client.consumers import At, Event, Messages, OnCommit, TopicConsumer
from jlog.kafka.client.consumers import open_consumer as open_library_consumer
from jlog.kafka.client.errors import LEADER_UNKNOWN
from jlog.kafka.client.settings import CONSUMER, EVERYWHERE, LOGGER, Settings
from jlog.kafka.protocol.brokers import Brokers, Steps
from jlog.kafka.protocol.connection import Connection, Lost, Pending
from jlog.kafka.protocol.messages import (
    EpochEnd,
    Fetched,
    Leader,
    Place,
    Request,
    ToFetch,
    fetch,
    offset_for_leader_epoch,
)
from jlog.kafka.protocol.settings import known_to_consumer
from jlog.kafka.protocol.unpack import unpacked

PART_BYTES = 2 << 20  # of a partition in one answer; a larger batch comes alone
ANSWER_BYTES = 16 << 20
QUEUED_BYTES = 32 << 20  # nothing is fetched while so much waits to be handed out
TAKEN_BYTES = 8 << 20  # of the messages that one call hands out
BACKOFF_SECONDS = 0.1  # until a partition is tried again, while its leader is being found
ERROR_SECONDS = 0.5  # the same after an error of the partition
UNKNOWN_SECONDS = 30.0  # a broker that has just started may not know a topic yet
LOOK_SECONDS = 0.02  # between two looks at what waits for a time
LONG_SECONDS = 0.5  # longest wait for brokers
SHORTENED_MAX = 20  # answers in a row that have only the beginning of a batch

# Another broker leads the partition now, or soon will.
MOVED = frozenset(
    (
        *LEADER_UNKNOWN,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.KAFKA_STORAGE_ERROR,
    )
)


def is_for_batches(settings: Settings, group: str | None) -> bool:
    """Says whether jlog fetches by itself. It knows no groups, and of the settings those that most clusters need."""
    return group is None and known_to_consumer(settings.given)


def open_consumer(settings: Settings, group: str | None, on_commit: OnCommit) -> TopicConsumer:
    """Returns a consumer. group: the one that commit() tells offsets. on_commit: is called by consume() with what became of a
    commit."""
    other = partial(open_library_consumer, settings, group, on_commit)
    return BatchConsumer(settings, other) if is_for_batches(settings, group) else other()


class Part:
    """A partition that is read."""

    __slots__ = ("checked", "end", "failed", "given", "leader_epoch", "offset", "place", "shortened", "told", "told_at", "wait")

    def __init__(self, at: At) -> None:
        self.place: Place = at.topic, at.partition
        self.given = at  # behind the last message that was handed out
        self.offset = at.offset  # of the next fetch
        self.leader_epoch = at.leader_epoch  # of the last batch
        self.checked: int | None = None  # leader epoch under which `offset` is known to be in the log
        self.end = -1  # the offset at which an end was told
        self.failed = False  # nothing more is read of it, before the next assign()
        self.told, self.told_at = 0, 0.0  # the last error
        self.wait = 0.0  # monotonic time of the next attempt
        self.shortened = 0


class BatchConsumer:
    """Fetches by itself, one request after the other from each leader. Where it meets something that it does not know, as a
    batch with another compression, it lets another consumer go on.

    open_other: opens that one.
    """

    def __init__(self, settings: Settings, open_other: Callable[[], TopicConsumer]) -> None:
        given = {**EVERYWHERE, **CONSUMER, **settings.given}
        self._wait_ms = int(given["fetch.wait.max.ms"])
        one = settings.given.get("fetch.message.max.bytes", settings.given.get("max.partition.fetch.bytes", PART_BYTES))
        self._part_bytes = max(1, int(one))
        self._answer_bytes = max(1, int(settings.given.get("fetch.max.bytes", ANSWER_BYTES)))
        answer_seconds = (int(given["socket.timeout.ms"]) + self._wait_ms) / 1000
        self._brokers = Brokers(settings.servers, str(given.get("client.id", "rdkafka")), answer_seconds)
        self._on_error: Callable[[KafkaError], None] = settings.for_consumer()["error_cb"]
        self._open_other = open_other
        self._other: TopicConsumer | None = None
        self._parts: dict[Place, Part] = {}  # in the order of the next fetch
        self._queue: deque[tuple[Part, FetchedBatches | Event]] = deque()
        self._queued = 0  # bytes
        self._asked: dict[int, Pending] = {}  # the fetch that is under way, by the number of the leader
        self._has_news = False  # whether there may be something to ask
        self._refreshing: Steps[None] | None = None
        self._is_stale = False  # whether the leaders are to be asked for
        self._refresh_at = 0.0
        self._unknown_since: dict[str, float] = {}
        self._why_not = ""  # why another consumer has to go on

    # --- The interface of a TopicConsumer ---------------------------------------------------------------------------

    def assign(self, places: Collection[At]) -> None:
        self._parts = {(at.topic, at.partition): Part(at) for at in places}
        if self._other is not None:
            self._other.assign(places)
            return
        self._queue.clear()
        self._queued = 0
        self._unknown_since.clear()
        self._is_stale = True

    def consume(self, count: int, seconds: float) -> tuple[Messages, list[tuple[int, Event]]]:
        until = time.monotonic() + seconds
        while self._other is None:
            self._brokers.pump(0)  # whatever is there: so the next request is on its way while this answer is decoded
            self._go_on(time.monotonic())
            messages, events = self._take(count)
            if self._why_not:
                self._hand_over()
            left = until - time.monotonic()
            if len(messages) or events or left <= 0:
                return messages, events
            if not self._why_not:
                self._brokers.pump(min(left, LOOK_SECONDS if self._has_news else LONG_SECONDS))
        return self._other.consume(count, max(0.0, until - time.monotonic()))

    def commit(self, places: Collection[At]) -> None:
        """There is no group."""

    def close(self) -> None:
        self._parts.clear()
        self._queue.clear()
        self._brokers.close()
        if self._other is not None:
            self._other.close()

    def _hand_over(self) -> None:
        """Lets another consumer go on behind the messages that were handed out."""
        LOGGER.info("librdkafka goes on to fetch: %s", self._why_not)
        other = self._open_other()
        other.assign([part.given for part in self._parts.values()])
        self._other = other
        self._brokers.close()
        self._queue.clear()

    # --- Handing out ------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> tuple[FetchedMessages, list[tuple[int, Event]]]:
        messages = FetchedMessages()
        events = []
        while self._queue and not messages.is_full:
            part, found = self._queue[0]
            if isinstance(found, Event):
                if len(messages):  # the next call tells it at once, for whoever waits for the end behind the messages
                    break
                events.append((len(messages), found))
                self._queue.popleft()
                continue
            before = len(messages)
            why_not = found.take(messages, count - before, TAKEN_BYTES)
            if len(messages) > before:
                part.given = At(*part.place, found.offset, found.leader_epoch)
            if why_not is not None:
                self._why_not = why_not
            if why_not is not None or not found.is_taken:
                break
            self._queue.popleft()
            self._queued -= found.size
            self._has_news = True
        return messages, events

    # --- Asking -----------------------------------------------------------------------------------------------------

    def _go_on(self, now: float) -> None:
        """Sends the requests that are due."""
        self._refresh(now)
        if not self._has_news:
            return
        self._has_news = self._refreshing is not None or self._is_stale
        due: dict[int, list[tuple[Part, Leader]]] = {}
        for part in self._parts.values():
            leader = self._brokers.leader(part.place)
            if part.failed:
                continue
            if leader is None:
                self._is_stale = self._has_news = True
            elif part.wait > now:
                self._has_news = True
            elif leader.node not in self._asked:
                if part.leader_epoch < 0:
                    part.checked = leader.epoch  # nothing was read yet that could be lost
                due.setdefault(leader.node, []).append((part, leader))
        for node, parts in due.items():
            try:
                self._ask(node, parts)
            except Lost as lost:
                self._lose(lost, [part for part, _ in parts])

    def _ask(self, node: int, parts: list[tuple[Part, Leader]]) -> None:
        connection = self._brokers.node(node)
        if not connection.is_ready:
            self._has_news = True
        elif not connection.knows():
            self._why_not = "a broker does not know the requests"
        elif unchecked := [one for one in parts if one[0].checked != one[1].epoch]:
            self._check(node, connection, unchecked)
        elif self._queued < QUEUED_BYTES:
            request = fetch(
                {part.place: ToFetch(part.offset, leader.epoch, self._part_bytes) for part, leader in parts},
                wait_ms=self._wait_ms,
                max_bytes=self._bytes_of_answer(),
            )
            self._send(node, connection, request, partial(self._hear_fetch, node, [part for part, _ in parts]))

    def _send(self, node: int, connection: Connection, request: Request, told: Callable[[Pending], None]) -> None:
        pending = connection.ask(request, told)
        if not pending.done:  # a connection that ends here has told so already
            self._asked[node] = pending

    def _bytes_of_answer(self) -> int:
        """All leaders together send no more than may be queued."""
        nodes = {leader.node for place in self._parts if (leader := self._brokers.leader(place))}
        return min(self._answer_bytes, max(1 << 20, QUEUED_BYTES // max(1, len(nodes))))

    def _refresh(self, now: float) -> None:
        """Goes on with asking for the leaders, where that is needed."""
        if self._refreshing is None and self._is_stale and now >= self._refresh_at:
            self._is_stale = False
            self._refresh_at = now + BACKOFF_SECONDS
            self._refreshing = self._brokers.refresh({topic for topic, _ in self._parts})
        if self._refreshing is None:
            self._has_news |= self._is_stale
            return
        self._has_news = True
        try:
            next(self._refreshing)
        except StopIteration:
            self._refreshing = None
            self._hear_leaders(now)
        except Lost as lost:
            self._refreshing = None
            self._is_stale = True
            self._on_error(KafkaError(KafkaError._TRANSPORT, str(lost)))
            self._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def _hear_leaders(self, now: float) -> None:
        """Tells of topics that are gone, or must not be read."""
        unknown = set()
        for part in self._parts.values():
            topic = part.place[0]
            found = self._brokers.topics.get(topic)
            code = KafkaError.UNKNOWN_TOPIC_OR_PART if found is None else found.code
            if not code and found is not None and part.place[1] not in found.leaders:
                code = KafkaError.UNKNOWN_TOPIC_OR_PART
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                unknown.add(topic)
                if now - self._unknown_since.setdefault(topic, now) > UNKNOWN_SECONDS:
                    self._tell_error(part, code, now)
            elif code and code not in MOVED:
                self._tell_error(part, code, now)
        for topic in [*self._unknown_since]:
            if topic not in unknown:
                del self._unknown_since[topic]

    # --- Hearing ----------------------------------------------------------------------------------------------------

    def _hear_fetch(self, node: int, parts: list[Part], pending: Pending) -> None:
        self._asked.pop(node, None)
        self._has_news = True
        if pending.lost is not None:
            self._lose(pending.lost, parts)
            return
        now = time.monotonic()
        code, found = pending.value
        for part in parts:
            if self._parts.get(part.place) is part:
                got = found.get(part.place)
                if code or got is None or got.code:
                    self._hear_error(part, code or (got.code if got else KafkaError.UNKNOWN_TOPIC_OR_PART), now)
                else:
                    self._hear_batches(part, got)

    def _hear_batches(self, part: Part, got: Fetched) -> None:
        part.told = 0
        if len(got.batches):
            aborted = sorted(got.aborted, key=itemgetter(1), reverse=True)
            batches = FetchedBatches(*part.place, got.batches, part.offset, aborted, unpacked)
            if batches.end > part.offset or batches.is_damaged:
                part.offset, part.leader_epoch, part.shortened = batches.end, batches.end_epoch, 0
                self._queue.append((part, batches))
                self._queued += batches.size
                self._parts[part.place] = self._parts.pop(part.place)  # the others come first in the next answer
            else:
                part.shortened += 1
                if part.shortened > SHORTENED_MAX:
                    self._why_not = "batches that are never whole"
        if part.offset >= got.end >= 0 and part.end != part.offset:
            part.end = part.offset
            self._tell(part, KafkaError._PARTITION_EOF)

    def _check(self, node: int, connection: Connection, parts: list[tuple[Part, Leader]]) -> None:
        """Asks whether the log still has what was read before the offset (KIP-320)."""
        asked = {part.place: (leader.epoch, part.leader_epoch) for part, leader in parts}
        self._send(node, connection, offset_for_leader_epoch(asked), partial(self._hear_checked, node, parts))

    def _hear_checked(self, node: int, parts: list[tuple[Part, Leader]], pending: Pending) -> None:
        self._asked.pop(node, None)
        self._has_news = True
        if pending.lost is not None:
            self._lose(pending.lost, [part for part, _ in parts])
            return
        now = time.monotonic()
        for part, leader in parts:
            if self._parts.get(part.place) is not part:
                continue
            end: EpochEnd | None = pending.value.get(part.place)
            if end is None or end.code:
                self._hear_error(part, end.code if end else KafkaError.UNKNOWN_TOPIC_OR_PART, now)
            elif end.epoch < 0 or end.offset < part.offset:
                part.failed = True
                self._tell(part, KafkaError._LOG_TRUNCATION)
            else:
                part.checked = leader.epoch

    def _hear_error(self, part: Part, code: int, now: float) -> None:
        part.wait = now + BACKOFF_SECONDS
        if code in MOVED:
            self._is_stale = True
        elif code == KafkaError.OFFSET_OUT_OF_RANGE:
            part.failed = True
            self._tell(part, code)
        else:
            self._tell_error(part, code, now)
            part.wait = now + ERROR_SECONDS

    def _lose(self, lost: Lost, parts: Collection[Part]) -> None:
        """Tries again with other brokers, or with the same one."""
        now = time.monotonic()
        for part in parts:
            part.wait = now + BACKOFF_SECONDS
        self._is_stale = self._has_news = True
        if self._parts and self._other is None:  # otherwise this side has closed it
            self._on_error(KafkaError(KafkaError._TRANSPORT, str(lost)))

    def _tell_error(self, part: Part, code: int, now: float) -> None:
        """Tells an error that may stay, from time to time."""
        if part.told != code or now - part.told_at > 1.0:
            part.told, part.told_at = code, now
            self._tell(part, code)

    def _tell(self, part: Part, code: int) -> None:
        self._queue.append((part, Event(KafkaError(code), *part.place, part.offset)))

"""Record batches on their way to the leaders of their partitions.

One batch at a time is on its way to each partition. So a batch that was not answered is simply sent again: the broker knows it
by the number of its first record, and takes it once. More batches wait meanwhile.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from jlog._core.kafka.batches import NOT_OF_A_JOURNAL, Batch
from jlog.kafka.protocol.brokers import Brokers, Steps, error
from jlog.kafka.protocol.connection import Lost, Pending
from jlog.kafka.protocol.coordinator import RETRY_SECONDS, Coordinator
from jlog.kafka.protocol.messages import Place, Produced, produce

NUMBER_MAX = (1 << 31) - 1  # behind it the numbers of a partition's records begin again
# The broker has not taken the batch, or has and could not say so: it is sent again.
PASSING = frozenset(
    (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
    )
)
DELIVERED = (0, KafkaError.DUPLICATE_SEQUENCE_NUMBER)


class Undelivered(NamedTuple):
    """A batch that the brokers did not take. sequence: of the one record that is the cause; None: not known."""

    place: Place
    sequence: int | None

    def topic(self) -> str:
        return self.place[0]


class Lane:
    """The batches of one partition, in order.

    number: of the next record for it, counted from 0 in each epoch. taken: the number behind those that the broker has taken.
    """

    def __init__(self) -> None:
        self.waiting: deque[Batch] = deque()
        self.number = self.taken = 0
        self.on_its_way = False
        self.is_certain = True  # whether it is known which batches the broker has taken
        self.not_before = 0.0  # time of the next attempt
        self.since: float | None = None  # time of the first attempt with the batch that comes next


class Delivery:
    """Sends batches in order, within the calls of one thread. After a failure it sends nothing more.

    failure: why the transaction cannot be committed. on_failure: is told the batch that was not taken, if that is why.
    answer_ms: how long a broker may wait for its followers. seconds: for which a batch is tried.
    """

    def __init__(
        self,
        brokers: Brokers,
        coordinator: Coordinator,
        transactional_id: str,
        *,
        answer_ms: int,
        seconds: float,
        on_failure: Callable[[KafkaError, Undelivered], None],
        on_lost: Callable[[Lost], None],
    ) -> None:
        self.failure: KafkaException | None = None
        self.is_told = False  # on_failure was called
        self.waiting_bytes = 0
        self._brokers = brokers
        self._coordinator = coordinator
        self._id = transactional_id
        self._answer_ms = answer_ms
        self._seconds = seconds
        self._on_failure = on_failure
        self._on_lost = on_lost
        self._lanes: dict[Place, Lane] = {}
        self._added: set[Place] = set()  # partitions that are part of the transaction
        self._adding: Steps[None] | None = None
        self._finding: Steps[None] | None = None
        self._find_at = 0.0  # time when the leaders may be asked for again
        self._are_leaders_known = True

    def lane(self, place: Place) -> Lane:
        return self._lanes.setdefault(place, Lane())

    def add(self, place: Place, batch: Batch) -> None:
        """Adds a batch that was made with the number of its lane."""
        lane = self.lane(place)
        lane.number = (lane.number + batch.records) & NUMBER_MAX
        lane.waiting.append(batch)
        self.waiting_bytes += batch.size
        self.send()

    @property
    def waiting(self) -> int:
        """The number of batches that are not acknowledged."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    @property
    def is_quiet(self) -> bool:
        """Whether no batch is on its way."""
        return not any(lane.on_its_way for lane in self._lanes.values())

    @property
    def has_begun(self) -> bool:
        """Whether partitions are part of the transaction."""
        return bool(self._added)

    def drop(self) -> None:
        """Drops all batches but those that are on their way. Their numbers are given again."""
        for lane in self._lanes.values():
            while len(lane.waiting) > lane.on_its_way:
                self.waiting_bytes -= lane.waiting.pop().size
            if not lane.on_its_way:
                lane.number = lane.taken

    @property
    def is_certain(self) -> bool:
        """Whether it is known which batches the brokers have taken. If not, numbers can go on only in a new epoch."""
        return all(lane.is_certain for lane in self._lanes.values())

    def ended(self) -> None:
        """A transaction has ended: partitions are added to the next one anew."""
        self._added.clear()
        self._adding = None
        self.failure, self.is_told = None, False

    def begin_epoch(self) -> None:
        """Counts from 0 again, and forgets what has become of the batches before."""
        self._lanes.clear()
        self.ended()
        self.waiting_bytes = 0

    # --- Sending ----------------------------------------------------------------------------------------------------

    def go_on(self, seconds: float) -> None:
        """Sends what can be sent, and handles the answers that come in so many seconds."""
        self.send()
        self._brokers.pump(min(seconds, RETRY_SECONDS))
        self.send()

    def send(self) -> None:
        """Sends the next batch of each partition that has none on its way."""
        ready = [place for place, lane in self._lanes.items() if lane.waiting and not lane.on_its_way]
        self._check_time(ready)
        if not ready or self.failure is not None or not self._are_added(ready) or not self._find_leaders():
            return
        now = time.monotonic()
        to: dict[int, dict[Place, Lane]] = {}
        for place in ready:
            lane, leader = self._lanes[place], self._brokers.leader(place)
            if leader is None:
                self._are_leaders_known = False
            elif now >= lane.not_before:
                to.setdefault(leader.node, {})[place] = lane
        for node, lanes in to.items():
            self._send_to(node, lanes)

    def _check_time(self, ready: list[Place]) -> None:
        """Gives up a batch that was tried for too long."""
        now = time.monotonic()
        for place in ready:
            lane = self._lanes[place]
            lane.since = lane.since or now
            if now > lane.since + self._seconds and self.failure is None:
                self._fail(place, error(KafkaError._MSG_TIMED_OUT), ())

    def _are_added(self, places: list[Place]) -> bool:
        """Makes partitions part of the transaction. Returns whether all of them are."""
        new = [place for place in places if place not in self._added]
        if self._adding is None:
            if not new:
                return True
            self._adding = self._add(new)
        try:
            next(self._adding)
        except StopIteration:
            self._adding = None
            return self._added.issuperset(new)
        except KafkaException as failed:
            self._adding, self.failure = None, failed
        return False

    def _add(self, places: list[Place]) -> Steps[None]:
        yield from self._coordinator.add(places)
        self._added.update(places)

    def _find_leaders(self) -> bool:
        """Asks for the leaders where those that are known are not any more. Returns whether they are known."""
        if self._finding is None:
            if self._are_leaders_known:
                return True
            if time.monotonic() < self._find_at:
                return False
            self._find_at = time.monotonic() + RETRY_SECONDS
            self._finding = self._brokers.refresh({topic for topic, _ in self._lanes})
        try:
            next(self._finding)
        except StopIteration:
            self._finding, self._are_leaders_known = None, True
            return True
        except Lost as lost:
            self._on_lost(lost)
            self._finding = None
        return False

    def _send_to(self, node: int, lanes: dict[Place, Lane]) -> None:
        producer = self._coordinator.producer

        def told(answer: Pending) -> None:
            if producer == self._coordinator.producer:
                self._answered(lanes, answer)

        batches = {place: lane.waiting[0].pieces for place, lane in lanes.items()}
        for lane in lanes.values():
            lane.on_its_way = True
        try:
            connection = self._brokers.node(node)
        except Lost as lost:
            self._lost(lanes, lost)
        else:
            connection.ask(produce(self._id, self._answer_ms, batches), told)

    # --- Answers ----------------------------------------------------------------------------------------------------

    def _answered(self, lanes: dict[Place, Lane], answer: Pending) -> None:
        if answer.lost is not None:
            self._lost(lanes, answer.lost)
            return
        for place, lane in lanes.items():
            produced: Produced = answer.value.get(place, Produced(KafkaError.UNKNOWN_TOPIC_OR_PART, (), ""))
            lane.on_its_way = False
            lane.is_certain = produced.code not in PASSING
            if produced.code in PASSING:
                self._again(lane)
            elif produced.code in DELIVERED:
                batch = lane.waiting.popleft()
                self.waiting_bytes -= batch.size
                lane.taken = (lane.taken + batch.records) & NUMBER_MAX
                lane.since = None
            else:
                reason = KafkaError(produced.code).str() + (f": {produced.reason}" if produced.reason else "")
                self._fail(place, error(produced.code, reason), produced.refused)

    def _lost(self, lanes: dict[Place, Lane], why: Lost) -> None:
        self._on_lost(why)
        for lane in lanes.values():
            lane.is_certain = False
            self._again(lane)

    def _again(self, lane: Lane) -> None:
        """Sends the same batch again in a moment, to the broker that leads the partition by then."""
        lane.on_its_way, lane.not_before = False, time.monotonic() + RETRY_SECONDS
        self._are_leaders_known = False

    def _fail(self, place: Place, why: KafkaException, refused: tuple[int, ...]) -> None:
        """Ends the transaction, since the next batch is not taken. refused: indexes of the records that are the cause."""
        self.failure, self.is_told = why, True
        batch = self._lanes[place].waiting[0]
        sequence = None
        if refused and 0 <= refused[0] < batch.records:
            found = array("Q", batch.sequences)[refused[0]]
            sequence = None if found == NOT_OF_A_JOURNAL else found
        self._on_failure(why.args[0], Undelivered(place, sequence))

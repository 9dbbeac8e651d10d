"""A transactional producer: begins, flushes, commits and aborts, and finds out what an error means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jlog.errors import JournalError
from jlog.flow.ends import Refused, Retry, TookTooLong
from jlog.kafka.client.background import answer_of, let_go
from jlog.kafka.client.claims import Claims
from jlog.kafka.client.clients import AnyProducer, open_producer
from jlog.kafka.client.cluster import ANSWER_SECONDS, Cluster, Topic
from jlog.kafka.client.errors import (
    FENCED,
    REFUSED,
    UNKNOWN_TOPIC,
    PassingBrokerError,
    UnsettledBrokers,
    as_ours,
    code_of,
    told,
    until_done,
)
from jlog.kafka.client.settings import LOGGER, TRANSACTIONAL

START_SECONDS = 30.0  # in which the broker ends a transaction that an earlier instance has left open
ABORT_SECONDS = 5.0
CLOSE_SECONDS = 0.5  # of the 2 s from SIGTERM to the end
LOOK_EVERY = 2.0  # seconds between two looks at whether the topic is still there, while deliveries hang
BATCH_BYTES = 1_000_000
# The second error follows from the first: the broker cannot end the earlier transaction for the same reason that keeps this one
# from being acknowledged.
LATE = (KafkaError._MSG_TIMED_OUT, KafkaError.CONCURRENT_TRANSACTIONS)
FORGOTTEN = KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # errors of records that an abort drops


@dataclass(frozen=True)
class RecordAt:
    """A record of a journal, by its sequence alone."""

    sequence: int


class LateBrokers(PassingBrokerError, TookTooLong):
    """The brokers have not acknowledged the records in time."""


class GivenUp(UnsettledBrokers, TookTooLong):
    """The brokers have given up the transaction, whose time was over."""


class Transactions:
    """The transactions of one mirror, which stores its source position in `table`. The table's name is the transactional id:
    start() fences all instances that were started before. The claims in the table decide which instance is the newest.

    check_topic: is called with a topic if the client has said that it does not exist, or has no such partition. It raises an
    error if the topic has changed. If it returns, the topic is as it was, and one broker is late.
    """

    def __init__(self, cluster: Cluster, *, topic: str, table: str, check_topic: Callable[[str], None]) -> None:
        self._settings = settings = cluster.settings
        self._cluster = cluster
        self._stop = cluster.stop
        self._topic = topic
        self._table = table
        self._check_topic = check_topic
        self._claims = Claims(cluster, table, f"kafka://{settings.servers}/{topic}")
        self._producer: AnyProducer | None = None
        self._begun = False
        self._failure: KafkaError | None = None  # the first failed delivery
        self._failed_topic = topic
        self._refused: int | None = None  # sequence of the record whose delivery failed, if it is known

    def start(self, limit_bytes: int, largest_bytes: int) -> None:
        """Starts a new instance. limit_bytes: of a batch, which a topic takes as a whole or not at all; largest_bytes: of a
        message to any topic."""
        given = self._settings.given
        if int(given.get("batch.size", 0)) > limit_bytes:
            raise ValueError(
                f"batch.size={given['batch.size']} is more than a batch of topic {self._topic} may have ({limit_bytes} bytes "
                "by its max.message.bytes): the topic would refuse the whole batch"
            )
        conf = self._settings.for_producer(
            transactional_id=self._table,
            message_max_bytes=given.get("message.max.bytes", largest_bytes),
            batch_size=given.get("batch.size", min(limit_bytes, BATCH_BYTES)),
            transaction_timeout_ms=given.get("transaction.timeout.ms", TRANSACTIONAL["transaction.timeout.ms"]),
        )
        with told("the settings", self._settings):
            self._producer = open_producer(conf, self._failed)  # drop() finds it if a step below fails
        self._failure = self._refused = None
        self._begun = False
        # The claim comes before the fence. So an instance that is fenced finds the newer claim, and never fences back.
        self._claims.claim()
        self._until_done(self._producer.init_transactions, "beginning transactions", START_SECONDS)
        self._claims.check()  # an instance that has claimed since may have been fenced by this one: it begins again

    def check_partitions(self, partitions: int) -> None:
        """Raises Unsettled where the producer has heard of another number of partitions: it chooses those of the keys by it."""
        assert self._producer is not None, "start() comes first"
        what = f"asking for the partitions of topic {self._topic}"
        with told(what, self._settings):
            found = answer_of(partial(self._producer.count_partitions, self._topic, ANSWER_SECONDS), self._stop)
        if found != partitions:
            raise UnsettledBrokers(f"{self._settings.servers}: {what}: not all brokers know its {partitions} partitions yet")

    def end_what_was_left(self, topics: Iterable[Topic]) -> None:
        """Ends the transaction of an earlier instance that a broker has left open although it says that it is complete
        (docs/decisions/0006). The next commit would make its records visible, beside their second copies.

        topics: all that transactions of this mirror write to."""
        table = [(self._table, 0)]
        if self._cluster.ends_of(table) == self._cluster.ends_of(table, committed=False):
            return
        LOGGER.warning("%s: a broker has left a transaction of %s open; aborting it", self._settings.servers, self._table)
        for topic in topics:
            for partition in range(topic.partitions):
                self.begun().produce(topic.name, None, b"", partition)
        self.flush(lambda: None)
        self.abort()

    def follow_claims(self, table_end: int) -> None:
        """Raises Fenced where another instance has taken over. Without records nothing else finds that out."""
        self._claims.follow(table_end)

    @property
    def is_begun(self) -> bool:
        return self._begun

    def begun(self) -> AnyProducer:
        """Returns the producer, in a transaction."""
        producer = self._producer
        assert producer is not None, "open() comes first"
        if not self._begun:
            with self.telling("beginning a transaction"):
                producer.begin_transaction()
            self._begun = True
        return producer

    def flush(self, look: Callable[[], None]) -> None:
        """Waits until the whole transaction is acknowledged. Calls `look` now and then while that takes long."""
        producer = self.begun()
        look_at = time.monotonic() + LOOK_EVERY
        while True:
            with self._producing():
                left = producer.flush(self._stop.slice())
            self._raise_if_failed()
            if not left:
                return
            if time.monotonic() > look_at:
                # While no broker can be asked, deliveries wait until one is back, or time out.
                with suppress(Retry):
                    look()
                look_at = time.monotonic() + LOOK_EVERY

    def wait_for_room(self) -> None:
        """Waits a moment until deliveries have made room in the queue. Raises the error of a failed one."""
        self.poll(self._stop.slice())

    def poll(self, seconds: float) -> None:
        """Handles the reports of deliveries. Raises the error of a failed one."""
        with self._producing():
            self.begun().poll(seconds)
        self._raise_if_failed()

    def _producing(self) -> AbstractContextManager[None]:
        return self.telling(f"producing to topic {self._topic}")  # any call may raise a fatal error

    def commit(self) -> None:
        self._until_done(self.begun().commit_transaction, "committing a transaction")
        self._begun = False

    def abort(self) -> bool:
        """Aborts the transaction. Returns False where the producer has to be started anew."""
        if self._producer is None or not self._begun:
            return self._producer is not None
        # A refused batch leaves a gap in the numbers by which the broker knows this producer's batches.
        is_sound = self._failure is None
        self._failure = self._refused = None
        self._until_done(self._producer.abort_transaction, "aborting a transaction", ABORT_SECONDS)
        self._begun = False
        if not is_sound:
            self.drop()
        return is_sound

    def close(self) -> None:
        """Aborts what is open, if the brokers answer soon: until then it hides the records of others after it from readers of
        committed records."""
        if self._producer is not None and self._begun:
            with suppress(KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(CLOSE_SECONDS)
        self.drop()

    def drop(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            clients, self._producer = [self._producer], None
            let_go(clients)
        self._begun = False
        self._failure = self._refused = None

    # --- Errors -----------------------------------------------------------------------------------------------------

    def _failed(self, error: KafkaError, topic: str, sequence: int | None) -> None:
        if error.code() in PURGED:
            return
        # Most records of a refused batch fail because of another record; the error of the refused record says more.
        if self._failure is None or self._failure.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self._failure, self._failed_topic, self._refused = error, topic, sequence

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self.what_failed(KafkaException(self._failure), f"producing to topic {self._failed_topic}")

    def _until_done(self, call: Callable[[float], Any], what: str, seconds: float = float("inf")) -> None:
        with self.telling(what):
            until_done(call, self._stop, seconds)

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Turns errors of the producer's calls into those that say what they mean."""
        try:
            yield
        except KafkaException as error:
            raise self.what_failed(error, what) from None

    def what_failed(self, error: KafkaException, what: str) -> Exception:
        """Returns the error to raise: Refused, Fenced, TopicChanged or BrokerError, which may be one that passes."""
        if self._producer is not None and code_of(error) == KafkaError._STATE:
            with suppress(KafkaException):
                self._producer.poll(0.1)  # hears the report of the failed delivery, if it has not come yet
            if self._failure is None:
                error = self._why_broken(error)
        if self._failure is not None and code_of(error) not in FENCED:
            error = KafkaException(self._failure)  # the reason; the error of the transaction only says that it must be aborted
        code = code_of(error)
        topic = self._topic if self._failure is None else self._failed_topic
        if code in FENCED:
            return self._fenced(code)
        if code in REFUSED:
            at = None if self._refused is None or topic != self._topic else RecordAt(self._refused)
            return Refused(f"{error.args[0].str()} (topic {topic})", at)
        if code in LATE:
            text = f"{self._settings.servers}: {what}: {self._cluster.why_late(topic)}"
            return LateBrokers(text, code)
        if code in UNKNOWN_TOPIC:
            return self._what_changed(topic, error, what)
        is_of_id = code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # A commit does not say which topic it was that could not become part of the transaction.
        both = f"Write on topic {topic}" + (f" and on topic {self._table}" if self._failure is None else "")
        needs = f"Write on transactional id {self._table}" if is_of_id else both
        return as_ours(error, what, self._settings, needs)

    def _what_changed(self, topic: str, error: KafkaException, what: str) -> Exception:
        """Returns the error for a topic that the client does not know, or not with this partition."""
        try:
            self._check_topic(topic)
        except JournalError as changed:
            return changed
        text = f"{self._settings.servers}: {what}: {error.args[0].str()}, and not all brokers know topic {topic} yet"
        return UnsettledBrokers(text, code_of(error))

    def _why_broken(self, error: KafkaException) -> KafkaException:
        """Returns the error that has ended the transaction. All calls but a commit say only that it has ended."""
        assert self._producer is not None
        try:
            self._producer.commit_transaction(CLOSE_SECONDS)
        except KafkaException as cause:
            return error if code_of(cause) == KafkaError._STATE else cause
        return error

    def _fenced(self, code: int) -> JournalError:
        """Returns the error that says what has fenced this instance: another one, which is in the table; or the broker, which
        forgets an id that is not used, and gives up a transaction that takes longer than transaction.timeout.ms."""
        newer = self._claims.newer()
        if newer is not None:
            return newer
        where = f"kafka://{self._settings.servers}/{self._topic}"
        if code in FORGOTTEN:
            return UnsettledBrokers(
                f"{where}: the brokers have forgotten the transactional id {self._table}, since nothing was moved for longer "
                f"than their transactional.id.expiration.ms; nothing is lost"
            )
        return GivenUp(
            f"{where}: the broker has given up a transaction that took too long, or an earlier mirror was just starting"
        )

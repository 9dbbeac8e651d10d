"""A transactional producer: begun, flushed, committed or given up, and what is meant when that fails."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from jlog.errors import JournalError, JournalNotFound
from jlog.flow.errors import Refused, Retry
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import (
    REFUSED,
    BrokerError,
    Fenced,
    TopicChanged,
    as_ours,
    code_of,
    describe,
    is_fenced,
    told,
)
from jlog.kafka.client.settings import TRANSACTIONAL, Settings
from jlog.kafka.client.table import read_table

START_SECONDS = 30.0  # for the broker to end what an earlier instance has left open
ABORT_SECONDS = 5.0
LOOK_EVERY = 2.0  # seconds, while deliveries hang: whether the topic is still there
BATCH_BYTES = 1_000_000
OWNER = b"owner"  # its row in the table of marks: which instance writes
# The second: the broker cannot end the transaction before, for what keeps this one from being acknowledged as well.
LATE = (KafkaError._MSG_TIMED_OUT, KafkaError.CONCURRENT_TRANSACTIONS)
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # by ourselves, when a transaction is given up


class Transactions:
    """Those of whoever keeps his positions in `table`, whose name is the transactional id: starting them anew fences all that
    were started before. The row OWNER of the table says which instance that was."""

    def __init__(self, settings: Settings, cluster: Cluster, stop: Stop, *, topic: str, table: str, instance: str) -> None:
        self._settings = settings
        self._cluster = cluster
        self._stop = stop
        self._topic = topic
        self._table = table
        self._instance = instance
        self._producer: Producer | None = None
        self._begun = False
        self._failure: KafkaError | None = None  # of a delivery
        self._failed_topic = topic

    def start(self, limit_bytes: int, largest_bytes: int) -> None:
        """limit_bytes: of a batch, which a topic takes whole or not; largest_bytes: of a message to any topic."""
        given = self._settings.given
        conf = self._settings.for_producer(
            transactional_id=self._table,
            message_max_bytes=largest_bytes,
            batch_size=min(limit_bytes, int(given.get("batch.size", BATCH_BYTES))),
            transaction_timeout_ms=given.get("transaction.timeout.ms", TRANSACTIONAL["transaction.timeout.ms"]),
        )
        with told("the settings", self._settings):
            producer = Producer({**conf, "on_delivery": self._delivered})
        self._until_done(producer.init_transactions, "beginning transactions", time.monotonic() + START_SECONDS)
        self._failure = None
        self._begun = False
        self._producer = producer

    @property
    def is_begun(self) -> bool:
        return self._begun

    def begun(self) -> Producer:
        """The producer, in a transaction."""
        producer = self._producer
        assert producer is not None, "open() comes first"
        if not self._begun:
            try:
                producer.begin_transaction()
            except KafkaException as error:
                raise self.what_failed(error, "beginning a transaction") from None
            self._begun = True
        return producer

    def flush(self, look: Callable[[], None]) -> None:
        """All of the transaction is acknowledged. Calls `look` now and then while that takes long."""
        producer = self.begun()
        look_at = time.monotonic() + LOOK_EVERY
        while self._flush_some(producer):
            self._raise_if_failed()
            if time.monotonic() > look_at:
                # Where nobody can be asked now, deliveries go on when the broker is back, or time out.
                with suppress(Retry):
                    look()
                look_at = time.monotonic() + LOOK_EVERY
        self._raise_if_failed()

    def _flush_some(self, producer: Producer) -> int:
        try:
            return int(producer.flush(self._stop.slice()))
        except KafkaException as error:  # a fatal error comes out of any call
            raise self.what_failed(error, f"producing to topic {self._topic}") from None

    def poll(self, seconds: float) -> None:
        """Hears of deliveries. Raises what has failed."""
        try:
            self.begun().poll(seconds)
        except KafkaException as error:
            raise self.what_failed(error, f"producing to topic {self._topic}") from None
        self._raise_if_failed()

    def commit(self) -> None:
        self._until_done(self.begun().commit_transaction, "committing a transaction")
        self._begun = False

    def abort(self) -> bool:
        """False where it has to be started anew."""
        if self._producer is None or not self._begun:
            return self._producer is not None
        # What the broker has refused leaves a gap in the numbers by which it knows this producer's batches.
        is_sound = self._failure is None
        self._failure = None
        self._until_done(self._producer.abort_transaction, "aborting a transaction", time.monotonic() + ABORT_SECONDS)
        self._begun = False
        if not is_sound:
            self.drop()
        return is_sound

    def drop(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None
        self._begun = False
        self._failure = None

    # --- Errors -----------------------------------------------------------------------------------------------------

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None or error.code() in PURGED:
            return
        # Of a batch that is refused, most fail for another one's sake; the one that is to blame says more.
        if self._failure is None or self._failure.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self._failure, self._failed_topic = error, message.topic()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self.what_failed(KafkaException(self._failure), f"producing to topic {self._failed_topic}")

    def _until_done(self, call: Callable[[float], Any], what: str, until: float = float("inf")) -> None:
        """The client's calls may be repeated after a time-out and go on where they were."""
        while True:
            try:
                call(self._stop.slice(0.5))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise self.what_failed(error, what) from None
            else:
                return

    def what_failed(self, error: Exception, what: str) -> Exception:
        """As what it is to be raised: Refused, Fenced, TopicChanged, BrokerError; all else may go better the next time."""
        if not isinstance(error, KafkaException):
            return error
        if self._producer is not None and code_of(error) == KafkaError._STATE:
            with suppress(KafkaException):
                self._producer.poll(0.1)  # a delivery has failed, and its report is still to be heard
        if self._failure is not None and not is_fenced(error):
            error = KafkaException(self._failure)  # why; a transaction only says that it must be aborted
        code = code_of(error)
        topic = self._topic if self._failure is None else self._failed_topic
        if is_fenced(error):
            return self._fenced()
        if code in REFUSED:
            return Refused(f"{describe(error.args[0])} (topic {topic})")
        if code in LATE:
            text = f"{self._settings.servers}: {what}: {self._cluster.why_late(topic)}"
            return Retry(text, BrokerError(text, code))
        found = as_ours(error, what, self._settings)
        return TopicChanged(str(found)) if isinstance(found, JournalNotFound) else found

    def _fenced(self) -> JournalError:
        """By another instance, which has said so in the table; or by the broker, which gave up a transaction that took
        longer than transaction.timeout.ms."""
        owner = json.loads(read_table(self._settings, self._table, self._stop).get(OWNER, b"{}"))
        where = f"kafka://{self._settings.servers}/{self._topic}"
        if owner.get("instance", self._instance) == self._instance:
            text = f"{where}: the broker has given up a transaction that took too long, or this producer"
            return Retry(text, BrokerError(text))
        return Fenced(
            f"another mirror to {where} has taken over (process {owner.get('pid')} on {owner.get('host')}); this one ends, and "
            f"has lost nothing"
        )

"""Programs that append to journals and produce to topics, each in a thread, until they are stopped."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

import jlog

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 50
PAUSE_SECONDS = 0.1
FLUSH_SECONDS = 240.0


class Program:
    """Calls work() again and again in a thread of its own, from start() to stop()."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self.failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stopped.wait(PAUSE_SECONDS * self.chance.random()):
                self.work()
            self.finish()
        except Exception as error:  # noqa: BLE001 - it is raised in stop()
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None: ...

    def content(self, number: int) -> tuple[bytes, bytes | None, list[tuple[str, bytes | None]]]:
        """Returns value, key and headers. The value begins with the number."""
        chance = self.chance
        value = b"%d %b" % (number, b"." * chance.choice((0, 10, 100, 1000)))
        key = None if chance.random() < 0.2 else b"key %d" % chance.randrange(KEYS)
        headers: list[tuple[str, bytes | None]] = [("number", b"%d" % number), ("none", None)]
        return value, key, headers if chance.random() < 0.3 else []


class Appender(Program):
    """Appends to a journal. The value of each record begins with its sequence."""

    def __init__(self, seed: str, path: Path) -> None:
        super().__init__(seed)
        self._writer = jlog.Writer(path)
        jlog.Journal(path).add_subscriber("judge")  # keeps all records until they are compared
        self.count = 0

    def work(self) -> None:
        made = [self.content(self.count + n) for n in range(self.chance.choice((1, 10, 100, 200)))]
        values, keys, headers = map(list, zip(*made, strict=True))
        self._writer.extend(values, keys=keys, headers=headers)
        self.count += len(values)

    def finish(self) -> None:
        self._writer.close()


class Sender(Program):
    """Produces to all partitions of topics, which may be deleted and made again. `acknowledged` has what the brokers took, by
    topic, partition and offset."""

    def __init__(self, seed: str, servers: str, topics: list[str], **config: Any) -> None:
        super().__init__(seed)
        self.topics = topics
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        self._count = 0
        # A message that the client gives up may still be on its way, and come when the journals are compared already.
        timeout_ms = round(1000 * FLUSH_SECONDS)
        conf = {"bootstrap.servers": servers, "acks": "all", "linger.ms": 5, "log_level": 0, "message.timeout.ms": timeout_ms}
        self._producer = Producer({**conf, "topic.metadata.refresh.interval.ms": 2000, **config})

    def work(self) -> None:
        for _ in range(self.chance.choice((1, 10, 50))):
            value, key, headers = self.content(self._count)
            with suppress(BufferError, KafkaException):  # the topic may be gone
                self._producer.produce(self.chance.choice(self.topics), value, key, headers=headers, on_delivery=self._told)
                self._count += 1
        self._producer.poll(0)

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.topic(), message.partition(), message.offset()] = message.value()

    def finish(self) -> None:
        self._producer.flush(FLUSH_SECONDS)


class Committer(Program):
    """Produces to one topic in transactions, of which it aborts some. `committed` and `aborted` have the numbers of which it is
    known."""

    def __init__(self, seed: str, servers: str, topic: str) -> None:
        super().__init__(seed)
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._topic = topic
        self._count = 0
        name = secrets.token_hex(8)
        self._conf: dict[str, Any] = {
            "error_cb": lambda _: None,
            "bootstrap.servers": servers,
            "transactional.id": name,
            "log_level": 0,
            "transaction.timeout.ms": 20_000,
        }
        self._producer: Producer | None = None

    def work(self) -> None:
        numbers = range(self._count, self._count + self.chance.choice((1, 20, 200)))
        self._count = numbers.stop
        try:
            if self._producer is None:
                self._producer = Producer(self._conf)
                self._producer.init_transactions(10)
            self._producer.begin_transaction()
            for number in numbers:
                value, key, headers = self.content(number)
                self._producer.produce(self._topic, value, key, headers=headers)
            if self.chance.random() < 0.3:
                self._producer.flush(self.chance.random())
                self._producer.abort_transaction(10)
                self.aborted |= set(numbers)
            else:
                self._producer.commit_transaction(10)
                self.committed |= set(numbers)
        except KafkaException:
            self._producer = None  # another one finds out what has become of the transaction
            time.sleep(PAUSE_SECONDS)

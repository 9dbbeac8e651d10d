"""Logs from several processes into Kafka, kills processes and mirrors, and proves that each line is in the topic exactly once.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there. It uses the
broker whose address is in $KAFKA, such as localhost:9092, or starts one with tools/kafka-broker.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import app
import jlog

BROKER = Path(__file__).resolve().parents[3] / "tools" / "kafka-broker"
PARTITIONS = 3
SPAWN = get_context("spawn")  # a Kafka client has threads, which a fork would not copy
APPS = ("app-0", "app-1", "app-2")
FATAL_LINES = {"app-1": 700}  # app-1 is killed when it has logged so many lines; the others log until the end
MOMENTS = ("within", "within", "behind")  # a transaction: when each of the mirrors is killed


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_app(journal: str, lines: int | None) -> None:
    app.configure(journal)
    for order in count():
        if order == lines:
            die()
        app.accept(order)
        time.sleep(0.001)


def run_doomed_mirror(journal: str, servers: str, topic: str, moment: str) -> None:
    """Runs a mirror that is killed within a transaction, when messages of it are in the topic, or behind one, when Kafka has
    committed it and the journal does not know it yet."""
    from confluent_kafka.admin import AdminClient

    from jlog.kafka import Mirror

    admin = AdminClient({"bootstrap.servers": servers})

    def look(record: Any) -> Any:
        if moment == "within" and record.sequence % 50 == 0 and has_open_transaction(admin, topic):
            die()
        return record

    def behind(_: int) -> None:
        if moment == "behind":
            die()

    Mirror(journal, f"kafka://{servers}/{topic}", partitions=PARTITIONS, function=look, on_commit=behind).run()


def has_open_transaction(admin: Any, topic: str) -> bool:
    """Returns whether the topic has messages that are not committed yet."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        answers = admin.list_offsets(asked, isolation_level=level)
        ends.append([answer.result().offset for answer in answers.values()])
    return ends[0] != ends[1]


def start(name: str, target: Callable[..., None], *arguments: object) -> BaseProcess:
    process = SPAWN.Process(name=name, target=target, args=arguments, daemon=True)
    process.start()
    return process


def run_all(journal: str, servers: str, topic: str) -> None:
    apps = {name: start(name, run_app, journal, FATAL_LINES.get(name)) for name in APPS}
    print(f"{len(apps)} processes log, and one of them is killed")
    for number, moment in enumerate(MOMENTS):
        doomed = start(f"mirror-{number}", run_doomed_mirror, journal, servers, topic, moment)
        doomed.join()
        check(doomed.exitcode == -signal.SIGKILL, f"mirror {number} ended with {doomed.exitcode}")
        print(f"mirror {number} was killed {moment} a transaction")
    for name, process in apps.items():
        if name not in FATAL_LINES:
            process.kill()
        process.join()
        check(process.exitcode == -signal.SIGKILL, f"{name} ended with {process.exitcode}")
    mirror = [sys.executable, "-m", "jlog.cli", "mirror", "to-kafka", "--until-end", journal, f"kafka://{servers}/{topic}"]
    check(subprocess.run(mirror, check=False).returncode == 0, "the last mirror has failed")


def messages(servers: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yields key and value of each committed message, as a consumer gets them that knows nothing of jlog."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        left = set(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            message = consumer.poll()
            if message.error() is None:
                yield message.key().decode(), message.value().decode()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        consumer.close()


def prove(journal: str, servers: str, topic: str) -> None:
    logged, found = defaultdict(list), defaultdict(list)
    with jlog.Reader(journal) as reader:
        for record in reader:
            logged[(record.key or b"").decode()].append((record.value or b"").decode())
    for name, line in messages(servers, topic):
        found[name].append(line)
    print(f"{sum(map(len, logged.values()))} lines in the journal, {sum(map(len, found.values()))} messages in the topic")
    check(sorted(logged) == sorted(APPS), "other processes have logged")
    for name, lines in logged.items():
        check(lines == [f"order {order} accepted" for order in range(len(lines))], f"the journal has lost lines of {name}")
        check(len(lines) == FATAL_LINES.get(name, len(lines)), f"the journal has lost the last lines of {name}")
    check(found == logged, "the topic does not have each line once and in order")
    print("each line is in the topic exactly once, in the order of its process")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def main(folder: str) -> None:
    servers, topic = os.environ["KAFKA"], f"logs-{secrets.token_hex(4)}"
    journal = os.path.join(folder, "log")
    run_all(journal, servers, topic)
    prove(journal, servers, topic)


if __name__ == "__main__":
    if "KAFKA" not in os.environ:
        check(BROKER.exists(), "set KAFKA=HOST:PORT, or run this in the sources of jlog, which have tools/kafka-broker")
        os.execv(sys.executable, [sys.executable, str(BROKER), sys.executable, *sys.argv])  # comes back with $KAFKA
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)

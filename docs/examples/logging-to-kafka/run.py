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
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import app
import jlog

BROKER = Path(__file__).resolve().parents[3] / "tools" / "kafka-broker"
SPAWN = get_context("spawn")  # a Kafka client has threads, which a fork would not copy
LINES = 2_000
LOGGED = {"app-0": LINES, "app-1": 700, "app-2": LINES}  # app-1 is killed when it has logged so many
# The first two mirrors are killed at this record, within a transaction. A mirror sends 2,000 at a time, so some have been sent.
FATAL_RECORDS = (2_100, 2_100)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_app(journal: str, lines: int) -> None:
    app.configure(journal)
    for order in range(lines):
        app.accept(order)
    if lines < LINES:
        die()


def run_doomed_mirror(journal: str, url: str, fatal_record: int | None) -> None:
    """Runs a mirror that is killed at a record, within a transaction. None: when a transaction is committed in Kafka, and the
    journal does not know it."""
    from jlog.kafka import Mirror

    records = 0

    def count(record: Any) -> Any:
        nonlocal records
        records += 1
        if records == fatal_record:
            die()
        return record

    Mirror(journal, url, partitions=3, function=count, on_commit=die if fatal_record is None else print).run()


def start(name: str, target: Callable[..., None], *arguments: object) -> BaseProcess:
    process = SPAWN.Process(name=name, target=target, args=arguments, daemon=True)
    process.start()
    return process


def run_all(journal: str, url: str) -> None:
    apps = [start(name, run_app, journal, lines) for name, lines in LOGGED.items()]
    print(f"{len(apps)} processes log; app-1 is killed when it has logged line {LOGGED['app-1'] - 1}")
    for number, fatal_record in enumerate((*FATAL_RECORDS, None)):
        doomed = start(f"mirror-{number}", run_doomed_mirror, journal, url, fatal_record)
        doomed.join()
        check(doomed.exitcode == -signal.SIGKILL, f"mirror {number} ended with {doomed.exitcode}")
        print(f"mirror {number} was killed {'within' if fatal_record else 'behind'} a transaction")
    for process in apps:
        process.join()
    check([process.exitcode for process in apps] == [0, -signal.SIGKILL, 0], "a process did not end as planned")
    mirror = [sys.executable, "-m", "jlog.cli", "mirror", "to-kafka", "--until-end", journal, url]
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
    found = defaultdict(list)
    for name, line in messages(servers, topic):
        found[name].append(line)
    total = sum(map(len, found.values()))
    print(f"{len(jlog.Journal(journal))} lines in the journal, {total} messages in the topic")
    for name, lines in LOGGED.items():
        expected = [f"order {order} accepted" for order in range(lines)]
        check(found[name] == expected, f"the topic does not have each line of {name} once and in order")
    check(total == sum(LOGGED.values()), "the topic has messages of others")
    print("each line is in the topic exactly once, in the order of its process")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def main(folder: str) -> None:
    servers, topic = os.environ["KAFKA"], f"logs-{secrets.token_hex(4)}"
    journal = os.path.join(folder, "log")
    run_all(journal, f"kafka://{servers}/{topic}")
    prove(journal, servers, topic)


if __name__ == "__main__":
    if "KAFKA" not in os.environ:
        os.execv(sys.executable, [sys.executable, str(BROKER), sys.executable, *sys.argv])  # comes back with $KAFKA
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)

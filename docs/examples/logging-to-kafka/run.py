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
from collections.abc import Callable
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import app
import jlog
from prove import check, prove

BROKER = Path(__file__).resolve().parents[3] / "tools" / "kafka-broker"
PARTITIONS = 3
SPAWN = get_context("spawn")  # a Kafka client has threads, which a fork would not copy
APPS = {"app-0": None, "app-1": 700, "app-2": None}  # app-1 is killed when it has logged so many lines; the others go on
MOMENTS = ("within", "within", "after")  # a transaction: when each of the mirrors is killed


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
    """Runs a mirror that is killed within a transaction, when messages of it are in the topic, or after one, when Kafka has
    committed it and the journal does not know it yet."""
    from confluent_kafka.admin import AdminClient

    from jlog.kafka import Mirror

    admin = AdminClient({"bootstrap.servers": servers})
    fresh = False  # whether an open transaction is a new one, and not one whose commit goes on

    def look(record: Any) -> Any:
        nonlocal fresh
        if moment == "within" and record.sequence % 50 == 0:
            is_open = has_open_transaction(admin, topic)
            if is_open and fresh:
                die()
            fresh = fresh or not is_open
        return record

    def committed(_: int) -> None:
        nonlocal fresh
        fresh = False
        if moment == "after":
            die()

    url = f"kafka://{servers}/{topic}"
    small = {"batch.size": "1000"}  # bytes: messages get into the topic while their transaction goes on
    Mirror(journal, url, partitions=PARTITIONS, function=look, on_commit=committed, config=small).run()


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
    jlog.Writer(journal).close()  # creates it: the first mirror may be faster than the processes that log
    apps = {name: start(name, run_app, journal, lines) for name, lines in APPS.items()}
    print(f"{len(apps)} processes log, and one of them is killed")
    for number, moment in enumerate(MOMENTS):
        doomed = start(f"mirror-{number}", run_doomed_mirror, journal, servers, topic, moment)
        doomed.join()
        check(doomed.exitcode == -signal.SIGKILL, f"mirror {number} ended with {doomed.exitcode}")
        print(f"mirror {number} was killed {moment} a transaction")
    for name, process in apps.items():
        if APPS[name] is None:
            process.kill()
        process.join()
        check(process.exitcode == -signal.SIGKILL, f"{name} ended with {process.exitcode}")
    mirror = [sys.executable, "-m", "jlog.cli", "mirror", "to-kafka", "--until-end", journal, f"kafka://{servers}/{topic}"]
    check(subprocess.run(mirror, check=False).returncode == 0, "the last mirror has failed")


def main(folder: str) -> None:
    servers, topic = os.environ["KAFKA"], f"logs-{secrets.token_hex(4)}"
    journal = os.path.join(folder, "log")
    run_all(journal, servers, topic)
    prove(journal, servers, topic, APPS)


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

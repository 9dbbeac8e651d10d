"""Measures the latency through Kafka: from append() through a mirror, a topic and a capture, to follow() in another journal."""

from __future__ import annotations

import random
import threading
from itertools import islice
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING

from crew import process
from latency import PADDING, Latency, taken

import jlog
from brokers import Cluster, plain
from jlog.bench import empty_directory

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from jlog.bench import ContestSettings

RECORDS = 100
PAUSE_SECONDS = 0.1, 0.2  # between two records: each of them waits for itself alone
LINGERS = {
    "append to follow() through Kafka, --linger 0.1": 0.1,
    "append to follow() through Kafka, --linger 0.01": 0.01,
    "append to follow() through Kafka, --linger 0": 0.0,
}


def mirror(_line: Connection, journal: str, url: str, linger: float) -> None:
    from jlog.kafka import Mirror

    Mirror(journal, url, linger=linger).run()


def capture(_line: Connection, url: str, journal: str, linger: float) -> None:
    from jlog.kafka import Capture

    Capture(url, journal, linger=linger).run()


def through(directory: Path, cluster: Cluster, linger: float) -> list[int]:
    url = cluster.url(cluster.make_topic())
    journal, copy = str(directory / "journal"), str(directory / "copy")
    found: list[int] = []
    with (
        jlog.Writer(journal) as writer,
        jlog.Writer(copy),
        process(mirror, journal, url, linger),
        process(capture, url, copy, linger),
        jlog.Reader(copy) as reader,
    ):
        writer.append(b"the first one: both have begun when it is there")
        next(iter(reader.follow()))
        thread = threading.Thread(target=lambda: found.extend(taken(at.value) for at in islice(reader.follow(), RECORDS)))
        thread.start()
        for _ in range(RECORDS):
            sleep(random.uniform(*PAUSE_SECONDS))
            writer.append(perf_counter_ns().to_bytes(8, "little") + PADDING)
        thread.join()
    return found


def mirror_latency(settings: ContestSettings) -> dict[str, Latency]:
    found = {name: Latency() for name in LINGERS}
    with plain(settings) as cluster:
        for _ in range(settings.rounds):
            for name, linger in LINGERS.items():
                with empty_directory(settings.directory) as directory:
                    found[name].add(through(directory, cluster, linger))
    return found

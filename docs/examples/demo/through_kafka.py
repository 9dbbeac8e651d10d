"""Moves the same lines from a journal to Kafka and back into another journal, with kills on both ways, and compares them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import jlog
from jlog.demo.fleet import Broken
from jlog.demo.steps import Demo

TOPIC = "jlog-demo"
SUBSCRIBER = f"kafka:{TOPIC}"
SECONDS = 4  # least seconds of each way, so that there is time to kill
HUNG_SECONDS = 60.0
BATCH = 1_000


def through_kafka(demo: Demo, address: str) -> None:
    """Moves a journal to a topic and that to a journal, through the broker at `address`. The topic is deleted afterwards."""
    from jlog.kafka import BrokerError, delete_journal

    url = f"kafka://{address}/{TOPIC}-{os.getpid()}"
    there, back = os.path.join(demo.scratch, "to-kafka"), os.path.join(demo.scratch, "from-kafka")
    demo.activity = "the lines go to Kafka and back"
    fill(demo, there)
    try:
        _move(demo, ["to-kafka", there, url, "--subscriber", SUBSCRIBER], lambda: _mirrored(there))
        _move(demo, ["from-kafka", url, back], lambda: _captured(back))
        records = _compare(there, back)
    finally:
        try:
            delete_journal(url)
        except (BrokerError, jlog.JournalNotFound) as error:
            demo.say(f"topic {url} was not deleted: {error}")
    for path in (there, back):
        jlog.Journal(path).verify()
    demo.say(f"journal, Kafka, journal: {records:,} records, each once and in order, with key, headers and milliseconds")


def fill(demo: Demo, path: str) -> None:
    """Creates a journal with the lines of the input, in few calls."""
    with jlog.Writer(path, compression="lz4", retention=jlog.Retention(delete_read=False)) as writer:
        left = enumerate(demo.source.part(0, demo.source.lines))
        while part := list(itertools.islice(left, BATCH)):
            keys, lines = [key for _, (key, _) in part], [line for _, (_, line) in part]
            writer.extend(lines, keys=keys, headers=[[("line", b"%d" % number)] for number, _ in part])


def _move(demo: Demo, arguments: list[str], moved: Callable[[], int]) -> None:
    """Runs the command, kills it with SIGKILL when a part has been moved, and runs it again to the end."""
    rate = max(BATCH, demo.source.lines // SECONDS)
    command = [sys.executable, "-m", "jlog.cli", "mirror", *arguments]
    with tempfile.TemporaryFile("w+") as said:  # the demo's screen is for the demo
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
        with subprocess.Popen([*command, "--rate", str(rate)], **streams) as running:
            try:
                until = time.monotonic() + HUNG_SECONDS
                while moved() == 0:
                    if running.poll() is not None or time.monotonic() > until:
                        raise Broken(f"mirror {arguments[0]} moved nothing: {_text(said)}")
                    time.sleep(0.01)
            finally:
                running.kill()
        if running.returncode != -signal.SIGKILL:
            raise Broken(f"mirror {arguments[0]} was to be killed, and had ended before: {_text(said)}")
        had = moved()
        done = subprocess.run([*command, "--until-end"], **streams, check=False)
        if done.returncode != 0:
            raise Broken(f"mirror {arguments[0]} ended with exit code {done.returncode}: {_text(said)}")
    demo.kills += 1
    demo.say(f"kill -9 mirror {arguments[0]} at record {had:,}; started again it moved the others")


def _text(said: IO[str]) -> str:
    said.seek(0)
    return said.read().strip()


def _mirrored(path: str) -> int:
    at = jlog.Journal(path).subscribers().get(SUBSCRIBER)
    return 0 if at is None else at.sequence


def _captured(path: str) -> int:
    try:
        return jlog.Journal(path).next_sequence
    except jlog.JournalNotFound:
        return 0


def _compare(there: str, back: str) -> int:
    count = 0
    for count, (sent, got) in enumerate(itertools.zip_longest(_fields(there), _fields(back)), 1):
        if sent != got:
            raise Broken(f"record {count - 1:,} went to Kafka as {sent!r} and came back as {got!r}")
    return count


def _fields(path: str) -> Iterator[tuple[Any, ...]]:
    with jlog.Reader(path) as reader:
        for record in reader:
            headers = [header for header in record.headers if not header[0].startswith("jlog.kafka.")]
            yield record.value, record.key, headers, record.timestamp_us // 1000

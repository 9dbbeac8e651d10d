"""Many mirrors and captures in one process, out of a TOML file."""

from __future__ import annotations

import glob
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from jlog.errors import JournalError
from jlog.flow.engine import Flow, nothing
from jlog.flow.functions import load
from jlog.flow.stop import Stop
from jlog.kafka.cluster import Cluster
from jlog.kafka.errors import at_once
from jlog.kafka.mirror import Capture, Mirror
from jlog.kafka.names import is_ours
from jlog.kafka.settings import Settings
from jlog.kafka.url import SCHEME, is_topic_name, parse_any

LOOK_EVERY = 10.0  # seconds, for journals and topics that have come since
BOTH = {"rate", "refused", "resume_at", "settings", "skip_missing", "start", "transform", "url"}
TO_KAFKA = BOTH | {
    *(
        "journals",
        "topic",
        "key",
        "partitions",
        "replication_factor",
        "create",
        "subscriber",
        "read_only",
        "dead_letter",
    ),
}
FROM_KAFKA = BOTH | {"topics", "journal", "writer"}


@dataclass(frozen=True)
class Job:
    """One mirror or capture. `make` opens it."""

    name: str
    make: Callable[..., Flow]


class Mirrors:
    """Runs all mirrors and captures that `config_file` asks for, each in a thread of its own; those of journals and topics
    that come later too. One that cannot go on ends alone and stays in `failures`.

        [kafka]                              # settings of librdkafka's, for all
        "security.protocol" = "SSL"

        [[to-kafka]]
        journals = "/var/lib/journals/*"     # paths and patterns
        url = "kafka://localhost:9092"
        topic = "live.{name}"                # the journal's directory; without it {name}
        key = "header:user"                  # and the other options of Mirror, transform = "module:function"

        [[from-kafka]]
        url = "kafka://localhost:9092"
        topics = ["orders.*", "clicks"]      # names and patterns
        journal = "/var/lib/copies/{topic}"  # without {topic} all of them go into one
        writer = { compression = "lz4" }     # options of jlog.Writer

    ValueError for what the file should not have, OSError where it cannot be read.
    """

    def __init__(
        self,
        config_file: str | os.PathLike[str],
        *,
        until_end: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self._tables = read_config(config_file)
        self._until_end = until_end
        self._on_event = on_event
        self._stop = Stop()
        self._threads: dict[str, threading.Thread] = {}
        self.flows: dict[str, Flow] = {}
        self.failures: dict[str, Exception] = {}

    def jobs(self) -> Iterator[Job]:
        """As journals and topics are there now."""
        settings = self._tables.get("kafka", {})
        for table in self._tables.get("to-kafka", []):
            yield from _to_kafka(table, settings)
        for table in self._tables.get("from-kafka", []):
            yield from _from_kafka(table, settings)

    def run(self) -> None:
        """Until stop(), or with until_end until all have ended."""
        while not self._stop.requested:
            self._start_new()
            if self._until_end:
                while any(thread.is_alive() for thread in self._threads.values()) and not self._stop.wait(
                    0.1
                ):
                    pass
                break
            self._stop.wait(LOOK_EVERY)
        for flow in [*self.flows.values()]:
            flow.stop()
        for thread in self._threads.values():
            thread.join()

    def stop(self) -> None:
        """From another thread or a signal handler."""
        self._stop.request()

    def _start_new(self) -> None:
        for job in self.jobs():
            if job.name not in self._threads:
                self._threads[job.name] = threading.Thread(target=self._run, args=(job,), name=job.name)
                self._threads[job.name].start()

    def _run(self, job: Job) -> None:
        def say(text: str) -> None:
            self._on_event(f"{job.name}: {text}")

        try:
            flow = job.make(until_end=self._until_end, on_event=say)
            self.flows[job.name] = flow
            if self._stop.requested:
                flow.stop()
            flow.run()
        except (JournalError, OSError, ValueError, TypeError) as error:
            self.failures[job.name] = error
            say(str(error))


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    with open(path, "rb") as file:
        try:
            found: dict[str, Any] = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None
    _check_names(f"{os.fspath(path)}", found, {"kafka", "to-kafka", "from-kafka"})
    for kind, known, needed in (
        ("to-kafka", TO_KAFKA, ("journals", "url")),
        ("from-kafka", FROM_KAFKA, ("topics", "url", "journal")),
    ):
        for number, table in enumerate(found.get(kind, []), 1):
            where = f"{os.fspath(path)}, [[{kind}]] {number}"
            _check_names(where, table, known)
            missing = [name for name in needed if name not in table]
            if missing:
                raise ValueError(f"{where}: {missing[0]} is missing")
    if not found.get("to-kafka") and not found.get("from-kafka"):
        raise ValueError(f"{os.fspath(path)} asks for nothing; write [[to-kafka]] or [[from-kafka]]")
    return found


def _check_names(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{where}: there is no {unknown[0]}; there are {', '.join(sorted(known))}")


def _to_kafka(table: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[Job]:
    servers = parse_any(table["url"]).servers
    given = _options(table, settings, {"journals", "topic", "url", "read_only"})
    if table.get("read_only"):
        given["subscriber"] = None
    for path in _journals(_several(table["journals"])):
        topic = table.get("topic", "{name}").format(name=os.path.basename(path))
        if not is_topic_name(topic):
            raise ValueError(f'{topic!r} cannot name a topic; choose another with topic = "…{{name}}…"')
        options = dict(given)
        if options.get("refused") == "dead-letter":
            options["dead_letter"] = options.get("dead_letter", "{topic}.refused").format(topic=topic)
        url = f"{SCHEME}{servers}/{topic}"

        def make(path: str = path, url: str = url, options: dict[str, Any] = options, **more: Any) -> Flow:
            return Mirror(path, url, **options, **more)

        yield Job(f"{path} to {url}", make)


def _journals(patterns: list[str]) -> list[str]:
    found = {os.path.abspath(path) for pattern in patterns for path in glob.glob(pattern)}
    return sorted(path for path in found if os.path.exists(os.path.join(path, "journal.meta")))


@at_once()
def _from_kafka(table: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Job]:
    at = parse_any(table["url"])
    given = _options(table, settings, {"topics", "url", "journal", "writer"}) | table.get("writer", {})
    wanted = _several(table["topics"])
    journal = table["journal"]
    if "{topic}" not in journal:
        return [_capture(f"{SCHEME}{at.servers}/{','.join(wanted)}", journal, given)]
    cluster = Cluster(Settings(at, given["config"]))
    cluster.check()
    names = [name for name in cluster.names() if not is_ours(name)]
    matching = [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]
    return [_capture(f"{SCHEME}{at.servers}/{name}", journal.format(topic=name), given) for name in matching]


def _capture(url: str, journal: str, options: dict[str, Any]) -> Job:
    def make(**more: Any) -> Flow:
        return Capture(url, journal, **options, **more)

    return Job(f"{url} to {journal}", make)


def _options(table: Mapping[str, Any], settings: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    found = {name: value for name, value in table.items() if name not in left_out | {"settings", "transform"}}
    found["config"] = {**settings, **table.get("settings", {})}
    if "transform" in table:
        found["function"] = load(table["transform"])
    return found


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)

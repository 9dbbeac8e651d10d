"""Runs many mirrors and captures in one process, out of a TOML file."""

from __future__ import annotations

import glob
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from jlog.errors import JournalError
from jlog.flow.engine import Flow, nothing
from jlog.flow.functions import load
from jlog.flow.stop import Stop, Stopped
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import at_once, may_pass
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import SCHEME, is_topic_name, parse_any
from jlog.kafka.mirror.mirror import Capture, Mirror

LOOK_EVERY = 10.0  # seconds between two looks for new journals and topics
TO_KAFKA, FROM_KAFKA = "to-kafka", "from-kafka"
BOTH = {"rate", "refused", "settings", "skip_missing", "start", "transform", "url"}
NAMES = {
    TO_KAFKA: BOTH
    | {"create", "dead_letter", "journals", "key", "partitions", "read_only", "replication_factor"}
    | {"subscriber", "topic"},
    FROM_KAFKA: BOTH | {"exclude", "group", "journal", "topics", "writer"},
}
NEEDED = {TO_KAFKA: ("journals", "url"), FROM_KAFKA: ("topics", "url", "journal")}


@dataclass(frozen=True)
class Job:
    """A mirror or a capture. `make` opens it."""

    name: str
    make: Callable[..., Flow]


class Mirrors:
    """Runs all mirrors and captures that `config_file` asks for, each in a thread of its own; also those of journals and topics
    that come later. One that cannot go on ends alone and stays in `failures`; one that found no broker is started again.
    The file::

        [kafka]                              # settings of librdkafka, for all
        "security.protocol" = "SSL"

        [[to-kafka]]
        journals = "/var/lib/journals/*"     # paths and patterns
        url = "kafka://localhost:9092"
        topic = "live.{name}"                # the journal's directory; without it {name}
        key = "header:user"                  # and the other options of Mirror, transform = "module:function"

        [[from-kafka]]
        url = "kafka://localhost:9092"
        topics = ["orders.*", "clicks"]      # names and patterns
        exclude = ["*.test"]                 # patterns of topics to leave out
        journal = "/var/lib/copies/{topic}"  # without {topic} all of them go into one
        writer = { compression = "lz4" }     # options of jlog.Writer

    Raises ValueError for an error in the file, OSError where it cannot be read.
    """

    def __init__(
        self,
        config_file: str | os.PathLike[str],
        *,
        until_end: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        tables = read_config(config_file)
        settings = tables.get("kafka", {})
        self._stop = Stop()
        self._finders: dict[str, Callable[[], Iterable[Job]]] = {}
        for kind, find in ((TO_KAFKA, _to_kafka), (FROM_KAFKA, _from_kafka)):
            for number, table in enumerate(tables.get(kind, []), 1):
                self._finders[f"[[{kind}]] {number}"] = partial(find, table, settings, self._stop)
        self._until_end = until_end
        self._on_event = on_event
        self._threads: dict[str, threading.Thread] = {}
        self._said: dict[str, str] = {}
        self.flows: dict[str, Flow] = {}
        self.failures: dict[str, Exception] = {}
        self._to_begin_again: set[str] = set()

    def jobs(self) -> Iterator[Job]:
        """Yields the mirrors and captures of the journals and topics that exist now."""
        for find in self._finders.values():
            yield from find()

    def run(self) -> None:
        """Runs until stop(), until every mirror has failed, or with until_end until all have ended."""
        self._start_new()
        look_at = time.monotonic() + LOOK_EVERY
        while (self._running() or self._may_come()) and not self._stop.wait(0.1):
            if not self._until_end and time.monotonic() > look_at:
                self._start_new()
                look_at = time.monotonic() + LOOK_EVERY
        for thread in [*self._threads.values()]:
            thread.join()

    def _running(self) -> bool:
        return any(thread.is_alive() for thread in [*self._threads.values()])

    def _may_come(self) -> bool:
        return not self._until_end and (not self.failures or bool(self._to_begin_again))

    def stop(self) -> None:
        """Ends run(), from another thread or a signal handler."""
        self._stop.request()

    def _start_new(self) -> None:
        self._to_begin_again.clear()
        for where, find in self._finders.items():
            try:
                for job in find():
                    if job.name not in self._threads:
                        self._threads[job.name] = threading.Thread(target=self._run, args=(job,), name=job.name)
                        self._threads[job.name].start()
            except Stopped:
                return
            except (JournalError, OSError) as error:
                self._failed(where, error)

    def _run(self, job: Job) -> None:
        try:
            flow = job.make(until_end=self._until_end, on_event=lambda text: self._say(job.name, text), stop=self._stop)
            self.flows[job.name] = flow
            flow.run()
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it was, the others go on, and somebody has to know
            self._failed(job.name, error)

    def _failed(self, name: str, error: Exception) -> None:
        self._say(name, str(error) or repr(error))
        if self._until_end or not may_pass(error):
            self.failures[name] = error
        else:
            self._to_begin_again.add(name)
            self._threads.pop(name, None)

    def _say(self, name: str, text: str) -> None:
        if self._said.get(name) != text:
            self._said[name] = text
            self._on_event(f"{name}: {text}")


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
    _check_names(f"{os.fspath(path)}", found, {"kafka", *NAMES})
    for kind, known in NAMES.items():
        for number, table in enumerate(found.get(kind, []), 1):
            where = f"{os.fspath(path)}, [[{kind}]] {number}"
            _check_names(where, table, known)
            missing = [name for name in NEEDED[kind] if name not in table]
            if missing:
                raise ValueError(f"{where}: {missing[0]} is missing")
    if not any(found.get(kind) for kind in NAMES):
        raise ValueError(f"{os.fspath(path)} asks for nothing; write [[to-kafka]] or [[from-kafka]]")
    return found


def _check_names(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{where}: there is no {unknown[0]}; there are {', '.join(sorted(known))}")


def _to_kafka(table: Mapping[str, Any], settings: Mapping[str, Any], _stop: Stop) -> Iterator[Job]:
    servers = parse_any(table["url"]).servers
    given = _options(table, settings, {"journals", "topic", "url", "read_only"})
    if table.get("read_only"):
        given["subscriber"] = None
    for path in _journals(_several(table["journals"])):
        topic = table.get("topic", "{name}").replace("{name}", os.path.basename(path))
        options = dict(given)
        if options.get("refused") == "dead-letter":
            options["dead_letter"] = options.get("dead_letter", "{topic}.refused").replace("{topic}", topic)
        url = f"{SCHEME}{servers}/{topic}"
        yield Job(f"{path} to {url}", partial(_mirror, path, topic, url, options))


def _mirror(path: str, topic: str, url: str, options: dict[str, Any], **more: Any) -> Flow:
    if not is_topic_name(topic):
        raise ValueError(f'{topic!r} cannot name a topic; choose another with topic = "…{{name}}…"')
    return Mirror(path, url, **options, **more)


def _journals(patterns: list[str]) -> list[str]:
    found = {os.path.abspath(path) for pattern in patterns for path in glob.glob(pattern)}
    return sorted(path for path in found if os.path.exists(os.path.join(path, "journal.meta")))


@at_once()
def _from_kafka(table: Mapping[str, Any], settings: Mapping[str, Any], stop: Stop) -> list[Job]:
    at = parse_any(table["url"])
    given = _options(table, settings, {"topics", "url", "journal", "writer"}) | table.get("writer", {})
    wanted = _several(table["topics"])
    journal = table["journal"]
    if "{topic}" not in journal:
        return [_capture(f"{SCHEME}{at.servers}/{','.join(wanted)}", journal, given)]
    cluster = Cluster(Settings(at, given["config"]), stop)
    cluster.check()
    names = [name for name in cluster.names() if not is_ours(name)]
    exclude = given.pop("exclude", ())
    matching = [
        name
        for name in names
        if any(fnmatchcase(name, pattern) for pattern in wanted) and not any(fnmatchcase(name, pattern) for pattern in exclude)
    ]
    return [_capture(f"{SCHEME}{at.servers}/{name}", journal.replace("{topic}", name), given) for name in matching]


def _capture(url: str, journal: str, options: dict[str, Any]) -> Job:
    return Job(f"{url} to {journal}", partial(Capture, url, journal, **options))


def _options(table: Mapping[str, Any], settings: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    found = {name: value for name, value in table.items() if name not in left_out | {"settings", "transform"}}
    found["config"] = {**settings, **table.get("settings", {})}
    if "transform" in table:
        found["function"] = load(table["transform"])
    return found


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)

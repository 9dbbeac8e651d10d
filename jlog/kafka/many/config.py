"""The TOML file of `jlogtool mirror run`: which mirrors and captures it asks for, as far as journals and topics exist."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from jlog.flow.engine import Flow
from jlog.flow.functions import load
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import at_once
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Settings, from_surroundings
from jlog.kafka.client.url import SCHEME, is_topic_name, parse_any
from jlog.kafka.mirror.mirror import Capture, Mirror

TO_KAFKA, FROM_KAFKA = "to-kafka", "from-kafka"
BOTH = {"dead_letter", "linger", "rate", "refused", "settings", "skip_missing", "start", "transform", "url"}
NAMES = {
    TO_KAFKA: BOTH | {"create", "journals", "key", "partitions", "read_only", "replication_factor"} | {"subscriber", "topic"},
    FROM_KAFKA: BOTH | {"exclude", "group", "journal", "topics", "writer"},
}
NEEDED = {TO_KAFKA: ("journals", "url"), FROM_KAFKA: ("topics", "url", "journal")}


@dataclass(frozen=True)
class Job:
    """A mirror or a capture that the file asks for. It can be sent to another process, which opens it."""

    name: str
    kind: str
    source: str
    sink: str
    options: dict[str, Any] = field(repr=False)  # may have secrets

    def open(self, **more: Any) -> Flow:
        options = dict(self.options)
        if "transform" in options:
            options["function"] = load(options.pop("transform"))
        if self.kind == FROM_KAFKA:
            return Capture(self.source, self.sink, **options, **more)
        topic = self.sink.removeprefix(SCHEME).partition("/")[2]
        if not is_topic_name(topic):
            raise ValueError(f'{topic!r} cannot name a topic; choose another with topic = "…{{name}}…"')
        return Mirror(self.source, self.sink, **options, **more)


Find = Callable[[Stop], Iterable[Job]]


def finders(config_file: str | os.PathLike[str]) -> dict[str, Find]:
    """Reads the file. Returns for each table, by its place in the file, the call that finds what it asks for now."""
    tables = read_config(config_file)
    settings = {**from_surroundings(), **tables.get("kafka", {})}
    return {
        f"[[{kind}]] {number}": partial(find, table, settings)
        for kind, find in ((TO_KAFKA, _to_kafka), (FROM_KAFKA, _from_kafka))
        for number, table in enumerate(tables.get(kind, []), 1)
    }


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
        yield Job(f"{path} to {url}", TO_KAFKA, path, url, options)


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
    cluster = Cluster(Settings(at, given["config"], ends=["source"]), stop)
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
    if options.get("refused") == "dead-letter":
        options = {**options, "dead_letter": options.get("dead_letter", f"{journal}.refused")}
    return Job(f"{url} to {journal}", FROM_KAFKA, url, journal, options)


def _options(table: Mapping[str, Any], settings: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    found = {name: value for name, value in table.items() if name not in left_out | {"settings"}}
    found["config"] = {**settings, **table.get("settings", {})}
    return found


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)

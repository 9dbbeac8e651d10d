"""The TOML file of `jlogtool mirror run`: which mirrors and captures it asks for, as far as journals and topics exist."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from jlog.flow.engine import Flow
from jlog.flow.records import load
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import at_once
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Settings, from_surroundings
from jlog.kafka.client.url import SCHEME, is_topic_name, parse_any
from jlog.kafka.mirrors import Capture, Mirror

TO_KAFKA, FROM_KAFKA = "to-kafka", "from-kafka"

TEXT, TEXTS, NUMBER, WHOLE, FLAG, NAMED = (str,), (str, list), (int, float), (int,), (bool,), (dict,)
MEANINGS: dict[tuple[type, ...], str] = {
    TEXT: "text in quotes",
    TEXTS: "text in quotes, or a list of texts",
    NUMBER: "a number",
    WHOLE: "a whole number",
    FLAG: "true or false",
    NAMED: 'a table, as in { "linger.ms" = "5" }',
    (START := (str, int, datetime)): '"begin", "end", a time or a whole number',
}
BOTH = {
    "dead_letter": TEXT,
    "linger": NUMBER,
    "rate": NUMBER,
    "refused": TEXT,
    "settings": NAMED,
    "skip_missing": FLAG,
    "start": START,
    "transform": TEXT,
    "url": TEXT,
}
OPTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    TO_KAFKA: {
        **BOTH,
        "create": FLAG,
        "journals": TEXTS,
        "key": TEXT,
        "partitions": WHOLE,
        "read_only": FLAG,
        "replication_factor": WHOLE,
        "subscriber": TEXT,
        "topic": TEXT,
    },
    FROM_KAFKA: {**BOTH, "exclude": TEXTS, "group": TEXT, "journal": TEXT, "topics": TEXTS, "writer": NAMED},
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


@dataclass(frozen=True)
class Table:
    """A table [[to-kafka]] or [[from-kafka]] of the file. `where` is its place there."""

    where: str
    kind: str
    values: Mapping[str, Any]
    settings: Mapping[str, Any] = field(repr=False)

    @at_once()
    def find(self, stop: Stop) -> tuple[list[Job], list[str]]:
        """Finds what the table asks for now, and the patterns that no journal or topic matches."""
        return self._to_kafka() if self.kind == TO_KAFKA else self._from_kafka(stop)

    def _to_kafka(self) -> tuple[list[Job], list[str]]:
        values = self.values
        servers = parse_any(values["url"]).servers
        given = self._options("journals", "topic", "read_only")
        if values.get("read_only"):
            given["subscriber"] = None
        paths = {pattern: _journals(pattern) for pattern in _several(values["journals"])}
        jobs = []
        for path in sorted({path for found in paths.values() for path in found}):
            topic = values.get("topic", "{name}").replace("{name}", os.path.basename(path))
            options = dict(given)
            if options.get("refused") == "dead-letter":
                options["dead_letter"] = options.get("dead_letter", "{topic}.refused").replace("{topic}", topic)
            url = f"{SCHEME}{servers}/{topic}"
            jobs.append(Job(f"{path} to {url}", TO_KAFKA, path, url, options))
        return jobs, [pattern for pattern, found in paths.items() if not found]

    def _from_kafka(self, stop: Stop) -> tuple[list[Job], list[str]]:
        at = parse_any(self.values["url"])
        given = self._options("topics", "journal", "writer") | self.values.get("writer", {})
        exclude = given["exclude"] = _several(self.values.get("exclude", []))
        wanted, journal = _several(self.values["topics"]), self.values["journal"]
        if "{topic}" not in journal:
            return [_capture(f"{SCHEME}{at.servers}/{','.join(wanted)}", journal, given)], []
        del given["exclude"]
        cluster = Cluster(Settings(at, given["config"], ends=["source"]), stop)
        cluster.check()
        names = [name for name in cluster.names() if not is_ours(name) and not _matches(name, exclude)]
        jobs = [
            _capture(f"{SCHEME}{at.servers}/{name}", journal.replace("{topic}", name), given)
            for name in names
            if _matches(name, wanted)
        ]
        return jobs, [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]

    def _options(self, *left_out: str) -> dict[str, Any]:
        """Returns the options of the mirror or the capture, without those that only this file has."""
        found = {name: value for name, value in self.values.items() if name not in (*left_out, "url", "settings")}
        found["config"] = {**self.settings, **self.values.get("settings", {})}
        return found


def _journals(pattern: str) -> list[str]:
    return [os.path.abspath(path) for path in glob.glob(pattern) if os.path.exists(os.path.join(path, "journal.meta"))]


def _capture(url: str, journal: str, options: dict[str, Any]) -> Job:
    if options.get("refused") == "dead-letter":
        options = {**options, "dead_letter": options.get("dead_letter", f"{journal}.refused")}
    return Job(f"{url} to {journal}", FROM_KAFKA, url, journal, options)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


# --- Reading --------------------------------------------------------------------------------------------------------


def read_tables(path: str | os.PathLike[str]) -> list[Table]:
    """Reads the file. Raises ValueError with the line for what is wrong in it."""
    config = read_config(path)
    settings = {**from_surroundings(), **config.get("kafka", {})}
    return [
        Table(f"[[{kind}]] {number}", kind, values, settings)
        for kind in OPTIONS
        for number, values in enumerate(config.get(kind, []), 1)
    ]


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    _check(_Lines(os.fspath(path), text), found)
    return found


def _check(lines: _Lines, config: Mapping[str, Any]) -> None:
    _check_names(lines, config, {"kafka", *OPTIONS}, "")
    for name, value in config.get("kafka", {}).items():
        if isinstance(value, (dict, list)):
            raise lines.error(
                f'{name} must be text in quotes; a name with a dot needs quotes too: "{name}.…"', "[kafka]", 1, name
            )
    for kind, options in OPTIONS.items():
        header, tables = f"[[{kind}]]", config.get(kind, [])
        if not isinstance(tables, list):
            raise lines.error(f"write {header}, in two pairs of brackets", f"[{kind}]")
        for number, table in enumerate(tables, 1):
            _check_names(lines, table, set(options), header, number)
            for name, value in table.items():
                _check_type(lines, options[name], header, number, name, value)
            missing = [name for name in NEEDED[kind] if name not in table]
            if missing:
                raise lines.error(f"{missing[0]} is missing", header, number)
    if not any(config.get(kind) for kind in OPTIONS):
        raise lines.error("it asks for nothing; write [[to-kafka]] or [[from-kafka]]")


def _check_names(lines: _Lines, table: Mapping[str, Any], known: set[str], header: str, number: int = 1) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        there = ", ".join(sorted(known))
        raise lines.error(f"there is no {unknown[0]}; there are {there}", header or f"[[{unknown[0]}]]", number, unknown[0])


def _check_type(lines: _Lines, types: tuple[type, ...], header: str, number: int, name: str, value: Any) -> None:
    is_wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
    if is_wrong or (isinstance(value, list) and not all(isinstance(one, str) for one in value)):
        raise lines.error(f"{name} must be {MEANINGS[types]}, not {value!r}", header, number, name)


@dataclass(frozen=True)
class _Lines:
    """The text of the file, in which an error is looked for: the parser does not keep the lines of what it has read."""

    path: str
    text: str

    def error(self, problem: str, header: str = "", number: int = 1, name: str = "") -> ValueError:
        """Returns the error in the table with this header, the `number`th one, at this name."""
        at, count, is_inside = 0, 0, not header
        for line_number, line in enumerate(self.text.splitlines(), 1):
            line = line.strip()
            if line.startswith("["):
                count += line.startswith(header)
                is_inside = line.startswith(header) and count == number
                at = line_number if is_inside else at
            elif is_inside and name and re.match(rf"[\"']?{re.escape(name)}\b", line):
                at = line_number
                break
        return ValueError(f"{self.path}{f', line {at}' if at else ''}: {problem}")

"""The TOML file of `jlogtool mirror run`: which mirrors and captures it asks for, as far as journals and topics exist."""

from __future__ import annotations

import glob
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jlog.flow.engine import Flow
from jlog.flow.options import FlowOptions
from jlog.flow.records import load
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import at_once
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Settings, from_surroundings
from jlog.kafka.client.url import SCHEME, is_topic_name, parse_any
from jlog.kafka.mirrors import Capture, Mirror
from jlog.writer import Writer

Texts = str | Collection[str]
Table = dict[str, Any]
Types = dict[str, list[type]]
Say = Callable[[str], None]
Find = Callable[[Stop, Say], "list[Job]"]


@dataclass(frozen=True)
class Job:
    """A mirror or a capture that the file asks for. It can be sent to another process, which opens it."""

    flow: type[Mirror | Capture]
    source: str
    sink: str
    options: Table = field(repr=False)  # may have secrets

    @property
    def name(self) -> str:
        return f"{self.source} to {self.sink}"

    def open(self, **more: Any) -> Flow:
        options = {**self.options, **more}
        if "transform" in options:
            options["function"] = load(options.pop("transform"))
        topic = self.sink.removeprefix(SCHEME).partition("/")[2]
        if self.flow is Mirror and not is_topic_name(topic):
            raise ValueError(f'{topic!r} cannot name a topic; choose another with topic = "…{{name}}…"')
        return self.flow(self.source, self.sink, **options)


@at_once()
def find_mirrors(
    _stop: Stop, say: Say, *, journals: Texts, url: str, topic: str = "{name}", read_only: bool = False, **options: Any
) -> list[Job]:
    """Finds what a table [[to-kafka]] asks for now."""
    servers = parse_any(url).servers
    if read_only:
        options["subscriber"] = None
    found = {pattern: _journals(pattern) for pattern in _several(journals)}
    jobs = []
    for path in sorted({path for paths in found.values() for path in paths}):
        to = topic.replace("{name}", os.path.basename(path))
        given = _with_letters(options, f"{to}.refused")
        if "dead_letter" in given:
            given["dead_letter"] = given["dead_letter"].replace("{topic}", to)
        jobs.append(Job(Mirror, path, f"{SCHEME}{servers}/{to}", given))
    _say_unmatched(say, [pattern for pattern, paths in found.items() if not paths])
    return jobs


@at_once()
def find_captures(
    stop: Stop,
    say: Say,
    *,
    topics: Texts,
    url: str,
    journal: str,
    exclude: Texts = (),
    writer: Table | None = None,
    **options: Any,
) -> list[Job]:
    """Finds what a table [[from-kafka]] asks for now."""
    at = parse_any(url)
    options |= writer or {}
    wanted, unwanted = _several(topics), _several(exclude)

    def job(topic: str, to: str, **more: Any) -> Job:
        return Job(Capture, f"{SCHEME}{at.servers}/{topic}", to, {**_with_letters(options, f"{to}.refused"), **more})

    if "{topic}" not in journal:
        return [job(",".join(wanted), journal, exclude=unwanted)]
    cluster = Cluster(Settings(at, options["config"], ends=["source"]), stop)
    cluster.check()
    names = [name for name in cluster.names() if not is_ours(name) and not _matches(name, unwanted)]
    _say_unmatched(say, [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)])
    return [job(name, journal.replace("{topic}", name)) for name in names if _matches(name, wanted)]


def _say_unmatched(say: Say, patterns: list[str]) -> None:
    if patterns:
        say(f"nothing matches {', '.join(patterns)}")


def _journals(pattern: str) -> list[str]:
    return [os.path.abspath(path) for path in glob.glob(pattern) if os.path.exists(os.path.join(path, "journal.meta"))]


def _with_letters(options: Table, place: str) -> Table:
    return {"dead_letter": place, **options} if options.get("refused") == "dead-letter" else dict(options)


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _several(value: Texts) -> Collection[str]:
    return [value] if isinstance(value, str) else value


# --- Reading --------------------------------------------------------------------------------------------------------

FLOWS: dict[str, tuple[Callable[..., list[Job]], type[Mirror | Capture]]] = {
    "to-kafka": (find_mirrors, Mirror),
    "from-kafka": (find_captures, Capture),
}
NOT_OF_THE_FILE = "until_end", "config_file"  # the command's own; `settings` instead
MEANINGS: dict[type, str] = {
    str: "text in quotes",
    list: "a list of texts",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    datetime: "a time",
    dict: 'a table, as in { "linger.ms" = "5" }',
}
AS_IN_TOML = {Literal: str, Collection: list}


def read_tables(path: str | os.PathLike[str]) -> dict[str, Find]:
    """Reads the file, and returns for each table what finds its mirrors or captures. Raises ValueError with the line for what
    is wrong in the file."""
    config = read_config(path)
    common = {**from_surroundings(), **config.get("kafka", {})}
    tables: dict[str, Find] = {}
    for kind, (find, _) in FLOWS.items():
        for number, options in enumerate(config.get(kind, []), 1):
            settings = {**common, **options.pop("settings", {})}
            tables[f"[[{kind}]] {number}"] = partial(find, **options, config=settings)
    return tables


def read_config(path: str | os.PathLike[str]) -> Table:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        found: Table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    _check(found, partial(_error, os.fspath(path), text))
    return found


def _check(config: Mapping[str, Any], error: Callable[..., ValueError]) -> None:
    tops: Types = {"kafka": [dict], **{kind: [list] for kind in FLOWS}}
    _check_table({**config, **{kind: [] for kind in FLOWS}}, tops, error)
    for name, value in config.get("kafka", {}).items():
        if isinstance(value, (dict, list)):
            raise error(f'{name} must be text in quotes; a name with a dot needs quotes too: "{name}.…"', name, "kafka")
    for kind, (find, flow) in FLOWS.items():
        tables = config.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(values, dict) for values in tables):
            raise error(f"write [[{kind}]], in two pairs of brackets", kind)
        known: Types = {**_types(FlowOptions), **_types(flow), **_types(find), "settings": [dict], "transform": [str]}
        for name in NOT_OF_THE_FILE:
            del known[name]
        for number, values in enumerate(tables, 1):
            at = partial(error, table=kind, number=number)
            _check_table(values, known, at)
            _check_table(values.get("writer", {}), _types(Writer), lambda problem, _name, at=at: at(problem, "writer"))
            for one in inspect.signature(find).parameters.values():
                if one.kind is one.KEYWORD_ONLY and one.default is one.empty and one.name not in values:
                    raise at(f"{one.name} is missing")
    if not any(config.get(kind) for kind in FLOWS):
        raise error("it asks for nothing; write [[to-kafka]] or [[from-kafka]]")


def _types(function: Callable[..., object]) -> Types:
    """Returns the types of each keyword argument, as far as TOML has them. An argument of other types is not for the file."""
    found: Types = {}
    for one in inspect.signature(function, eval_str=True).parameters.values():
        union = get_args(one.annotation) if get_origin(one.annotation) in (Union, UnionType) else [one.annotation]
        plain = [get_origin(kind) or kind for kind in union]
        types = [kind for kind in (AS_IN_TOML.get(kind, kind) for kind in plain) if kind in MEANINGS]
        if types and one.kind is one.KEYWORD_ONLY:
            found[one.name] = types
    return found


def _check_table(values: Mapping[str, Any], known: Types, error: Callable[..., ValueError]) -> None:
    for name, value in values.items():
        if name not in known:
            raise error(f"there is no {name}; there are {', '.join(sorted(known))}", name)
        types = known[name]
        is_right = type(value) in types or (float in types and type(value) is int)
        if not is_right or (isinstance(value, list) and not all(isinstance(one, str) for one in value)):
            raise error(f"{name} must be {' or '.join(MEANINGS[one] for one in types)}, not {value!r}", name)


def _error(path: str, text: str, problem: str, name: str = "", table: str = "", number: int = 1) -> ValueError:
    """Returns the error at this name, in the `number`th table of that name. The parser does not keep the lines."""
    headers = [*re.finditer(rf"(?m)^[ \t]*\[+[ \t\"']*{re.escape(table)}\b", text)] if table else []
    found = headers[number - 1] if number <= len(headers) else None
    if name:
        found = re.compile(rf"(?m)^[ \t\[\"']*{re.escape(name)}\b").search(text, found.end() if found else 0) or found
    where = "" if found is None else f", line {text.count(chr(10), 0, found.start()) + 1}"
    return ValueError(f"{path}{where}: {problem}")

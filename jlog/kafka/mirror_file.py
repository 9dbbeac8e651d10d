"""The TOML file of `jlogtool mirror run`: which mirrors and captures it asks for, as far as journals and topics exist."""

from __future__ import annotations

import glob
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import quote

from jlog.flow.engine import Flow
from jlog.flow.options import FlowOptions
from jlog.flow.records import load
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Settings, from_surroundings, text_of
from jlog.kafka.client.topology import matches
from jlog.kafka.client.url import SCHEME, parse_any
from jlog.kafka.mirrors import Capture, Mirror
from jlog.writer import Writer

Texts = str | Collection[str]
Table = dict[str, Any]
Types = dict[str, list[Any]]
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
        return self.flow(self.source, self.sink, **options)


def _job(flow: type[Mirror | Capture], source: str, sink: str, options: Table, to: str, topic: str) -> Job:
    """Returns the job. to: the beginning of the place for dead letters, where none is given."""
    if options.get("refused") == "dead-letter":
        place = options.get("dead_letter", f"{to}.refused")
        options = {**options, "dead_letter": place.replace("{topic}", topic)}
    return Job(flow, source, sink, options)


def find_mirrors(
    _stop: Stop, say: Say, *, journals: Texts, url: str, topic: str = "{name}", read_only: bool = False, **options: Any
) -> list[Job]:
    """Finds what a table [[to-kafka]] asks for now."""
    servers = parse_any(url).servers
    if read_only:
        options["subscriber"] = None
    paths: set[str] = set()
    for pattern in _several(journals):
        found = [path for path in glob.glob(pattern) if os.path.exists(os.path.join(path, "journal.meta"))]
        if not found:
            say(f"nothing matches {pattern}")
        paths.update(map(os.path.abspath, found))
    topics = {path: topic.replace("{name}", os.path.basename(path)) for path in sorted(paths)}
    return [_job(Mirror, path, f"{SCHEME}{servers}/{quote(to, safe='')}", options, to, to) for path, to in topics.items()]


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
    if "{topic}" not in journal:
        several = ",".join(wanted)
        return [_job(Capture, f"{SCHEME}{at.servers}/{several}", journal, {**options, "exclude": unwanted}, journal, several)]
    cluster = Cluster(Settings(at, options["config"], ends=["source"]), stop)
    cluster.check()
    names = [name for name in cluster.names() if not is_ours(name) and not matches(name, unwanted)]
    for pattern in wanted:
        if not any(matches(name, [pattern]) for name in names):
            say(f"nothing matches {pattern}")
    places = {name: journal.replace("{topic}", name) for name in names if matches(name, wanted)}
    return [_job(Capture, f"{SCHEME}{at.servers}/{name}", to, options, to, name) for name, to in places.items()]


def _several(value: Texts) -> Collection[str]:
    return [value] if isinstance(value, str) else value


# --- Reading --------------------------------------------------------------------------------------------------------

FLOWS: dict[str, tuple[Callable[..., list[Job]], type[Mirror | Capture]]] = {
    "to-kafka": (find_mirrors, Mirror),
    "from-kafka": (find_captures, Capture),
}
NOT_OF_THE_FILE = "until_end", "config_file"  # the command's own; `settings` instead
MEANINGS: dict[Any, str] = {
    str: "text in quotes",
    list: "a list of texts",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    datetime: "a time",
    dict: 'a table, as in { "linger.ms" = "5" }',
    Table: "tables in two pairs of brackets, as in [[to-kafka]]",
}
AS_IN_TOML: dict[Any, type[Any]] = {Literal: str, Collection: list}


def read_tables(path: str | os.PathLike[str]) -> dict[str, Find]:
    """Reads the file, and returns for each table what finds its mirrors or captures. Raises ValueError with the line for what
    is wrong in the file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    text = text_of(path)
    try:
        config: Table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    error_at = partial(_error, os.fspath(path), text)
    _check_table(config, {"kafka": [dict], **{kind: [Table] for kind in FLOWS}}, error_at)
    common = config.get("kafka", {})
    _check_settings(common, partial(error_at, table="kafka"))
    tables: dict[str, Find] = {}
    for kind, (find, flow) in FLOWS.items():
        for number, options in enumerate(config.get(kind, []), 1):
            _check_options(options, find, flow, partial(error_at, table=kind, number=number))
            settings = {**from_surroundings(), **common, **options.pop("settings", {})}
            tables[f"[[{kind}]] {number}"] = partial(find, **options, config=settings)
    if not tables:
        raise error_at("it asks for nothing; write [[to-kafka]] or [[from-kafka]]")
    return tables


def _check_options(options: Table, find: Callable[..., object], flow: Callable[..., object], error: Any) -> None:
    known: Types = {**_types(FlowOptions), **_types(flow), **_types(find), "settings": [dict], "transform": [str]}
    _check_table(options, {name: types for name, types in known.items() if name not in NOT_OF_THE_FILE}, error)
    _check_table(options.get("writer", {}), _types(Writer), error)
    _check_settings(options.get("settings", {}), error)
    shared = {one.name: options[one.name] for one in fields(FlowOptions) if one.name in options}
    if shared.get("refused") == "dead-letter":
        shared.setdefault("dead_letter", "the table's own")
    try:
        FlowOptions(**shared)
    except ValueError as wrong:
        raise error(str(wrong), str(wrong).partition(" ")[0].partition("=")[0]) from None
    for one in inspect.signature(find).parameters.values():
        if one.kind is one.KEYWORD_ONLY and one.default is one.empty and one.name not in options:
            raise error(f"{one.name} is missing")


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
        if not any(_is(value, kind) for kind in known[name]):
            raise error(f"{name} must be {' or '.join(MEANINGS[kind] for kind in known[name])}, not {value!r}", name)


def _is(value: object, kind: Any) -> bool:
    if isinstance(value, list):
        of = {list: str, Table: dict}.get(kind)
        return of is not None and all(isinstance(one, of) for one in value)
    return type(value) is kind or (kind is float and type(value) is int)


def _check_settings(values: Mapping[str, Any], error: Callable[..., ValueError]) -> None:
    for name, value in values.items():
        if isinstance(value, (dict, list)):
            raise error(f'{name} must be text in quotes; a name with a dot needs quotes too: "{name}.…"', name)


def _error(path: str, text: str, problem: str, name: str = "", *, table: str = "", number: int = 1) -> ValueError:
    """Returns the error at this name, in the `number`th table of that name. The parser does not keep the lines."""
    headers = [*re.finditer(rf"(?m)^[ \t]*\[+[ \t\"']*{re.escape(table)}\b", text)] if table else []
    found = headers[number - 1] if number <= len(headers) else None
    if name:
        key = re.compile(rf"(?m)^[^#\n]*?(?<![\w.-]){re.escape(name)}[\"' \t]*[.=\]]")
        found = key.search(text, found.end() if found else 0) or found
    where = "" if found is None else f", line {text.count(chr(10), 0, found.start()) + 1}"
    return ValueError(f"{path}{where}: {problem}")

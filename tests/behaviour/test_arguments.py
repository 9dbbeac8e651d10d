"""A wrong argument is refused at once, by a sentence that names it: a wrong type, no number, too little, too much."""

from __future__ import annotations

import ast
import asyncio
import inspect
import math
import pydoc
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import jlog
from cli.command import run

HUGE = 1 << 70
COUNT = ["1", object(), True, math.nan, math.inf, -1, HUGE, b"1", [], 1.5]
SECONDS = ["1", object(), True, math.nan, b"1", []]
DURATION = [*SECONDS, -1, -0.5]
FLAG = ["yes", 1, object(), math.nan]
CHOICE = ["other", 5, object(), True, math.nan, ""]
AGE = ["1", 5, object(), True, math.nan, timedelta(0), timedelta(-1), timedelta.max]
PATH = [5, object(), True, b"j", "", "j\0x"]
NAME = [5, object(), True, b"s", "", "a/b"]
START = [5.5, object(), True, b"begin", math.nan, -1, HUGE, datetime(2020, 1, 1), ""]  # noqa: DTZ001
TIME_US = ["1", object(), True, math.nan, math.inf, HUGE, -HUGE, 1.5]
COLUMN = ["x", b"x", 5, object(), True, [1, 2]]
HEADERS = ["ab", b"ab", 5, object(), True, [5], [("a",)], [("a", b"", b"")], [(5, b"")], {5: b""}, [("a", "b")]]
STATE = ["x", 5, object(), [b"k"], {"k": b""}, {b"k": 5}]

Values = list[Any]
WRITER: dict[str, Values] = {
    "path": PATH,
    "precommit": COUNT,
    "compression": CHOICE,
    "segment_bytes": COUNT,
    "roll": CHOICE,
    "sync": CHOICE,
    "sync_interval": [*DURATION, 0, math.inf, HUGE],
    "dedup": [*COUNT, 0, *AGE[-3:]],
    "retention": ["x", 5, object(), {}],
    "exclusive": FLAG,
    "lock_timeout": DURATION,
    "create": FLAG,
}
READER: dict[str, Values] = {
    "path": PATH,
    "name": NAME,
    "start": START,
    "create": FLAG,
    "durable_only": FLAG,
    "archive": [5, object(), math.nan, b"x"],
    "lock_timeout": DURATION,
}
WORKER: dict[str, Values] = {
    "path": PATH,
    "name": NAME,
    "start": START,
    "create": FLAG,
    "lease": [*DURATION, 0, math.inf, HUGE],
    "lock_timeout": DURATION,
    "order": CHOICE,
    "max_attempts": [*COUNT, 0],
    "dead_letters": PATH,
    "backoff": ["1", object(), 5, (1,), (1, 2, 3), ("1", 2), (math.nan, 1), (2, 1), (-1, 1), (0, math.inf), (1, HUGE)],
    "window": [*COUNT, 0],
}
RETENTION: dict[str, Values] = {
    "delete_read": FLAG,
    "max_bytes": [*COUNT, 0],
    "max_age": AGE,
    "keep_for_subscribers": FLAG,
    "subscriber_max_age": AGE,
    "limit_bytes": [*COUNT, 0],
    "archive": [5, object(), True, b"x", "x", ""],
    "archive_on_roll": FLAG,
}
OWNERS: dict[str, tuple[Callable[..., Any], dict[str, Values], dict[str, Any]]] = {
    "Writer": (jlog.Writer, WRITER, {}),
    "Reader": (jlog.Reader, READER, {"name": "new"}),
    "Worker": (jlog.Worker, WORKER, {"name": "new"}),
    "Retention": (jlog.Retention, RETENTION, {}),
    "Journal.create": (jlog.Journal.create, {"path": PATH, "precommit": COUNT, "exist_ok": FLAG, "lock_timeout": DURATION}, {}),
    "Journal": (jlog.Journal, {"path": PATH, "lock_timeout": DURATION}, {}),
}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Values]]] = {
    "append": (
        lambda on, **given: on.writer.append(given.pop("value", b"x"), **given),
        {"value": ["x", 5, object()], "key": ["k", 5], "headers": HEADERS, "timestamp_us": TIME_US, "id": ["x", 5, b""]}
        | {"timestamp": ["x", 5, object(), datetime(2020, 1, 1)]},  # noqa: DTZ001
    ),
    "extend": (
        lambda on, **given: on.writer.extend(given.pop("values", [b"x"]), **given),
        {"values": ["x", b"x", 5, object()], "keys": COLUMN, "headers": COLUMN, "timestamps_us": COLUMN, "state": STATE},
    ),
    "read": (
        lambda on, **given: on.reader.read(**given),
        {"max_records": [*COUNT, 0], "max_bytes": [*COUNT, 0], "timeout": SECONDS},
    ),
    "read_backward": (lambda on, **given: on.reader.read_backward(**given), {"max_records": [*COUNT, 0]}),
    "record_batches": (
        lambda on, **given: on.reader.record_batches(**given),
        {"max_records": [*COUNT, 0], "max_bytes": [*COUNT, 0], "columns": [["other"], [5], "x", 5, object()], "end": COUNT[:6]},
    ),
    "follow": (lambda on, **given: on.reader.follow(**given), {"timeout": SECONDS, "pace": [*DURATION, 0, math.inf]}),
    "follow_async": (lambda on, **given: asyncio.run(follow_async(on, given)), {"timeout": SECONDS, "pace": [*DURATION, 0]}),
    "commit": (lambda on, **given: on.reader.commit(**given), {"sequence": COUNT}),
    "seek": (lambda on, **given: on.reader.seek(**given), {"to": START}),
    "checkpoint": (lambda on, **given: on.reader.checkpoint(**given), {"name": NAME}),
    "rewind": (lambda on, **given: on.reader.rewind(**given), {"name": NAME}),
    "take": (
        lambda on, **given: on.worker.take(**{"timeout": 0, **given}),
        {"max_records": [*COUNT, 0], "timeout": SECONDS},
    ),
    "run": (lambda on, **given: on.worker.run(print, **given), {"threads": [*COUNT, 0], "grace": DURATION}),
    "nack": (lambda on, **given: on.task.nack(**given), {"delay": [*DURATION, math.inf, HUGE]}),
    "extend a lease": (lambda on, **given: on.task.extend(**given), {"lease_seconds": [*DURATION, None, math.inf, HUGE]}),
    "Journal.find": (lambda on, **given: on.journal.find(**given), {"time": [5, "x", object(), datetime(2020, 1, 1)]}),  # noqa: DTZ001
    "Journal.backup": (lambda on, **given: on.journal.backup(**given), {"target": PATH}),
    "Journal.clean": (lambda on, **given: on.journal.clean(**given), {"dry_run": FLAG}),
    "Journal.repair": (lambda on, **given: on.journal.repair(**given), {"dry_run": FLAG}),
    "Journal.set_subscriber": (
        lambda on, **given: on.journal.set_subscriber(**{"name": "free", "position": 0, **given}),
        {"name": NAME, "position": START},
    ),
}
# What else a sentence may call the argument.
ALSO = {
    "start": "position|sequence|time zone|cannot name|checkpoint",
    "to": "position|sequence|time zone|cannot name|seek",
    "position": "sequence|time zone|cannot name|checkpoint",
    "name": "cannot name",
    "key": "key",
    "keys": "key",
    "timestamps_us": "timestamp_us",
    "headers": "header",
}


async def follow_async(on: Opened, given: dict[str, Any]) -> None:
    on.reader.follow_async(**given)


class Opened:
    """A journal with a record, and one of each object that has it open."""

    def __init__(self, path: Path) -> None:
        self.writer = jlog.Writer(path)
        self.writer.append(b"first")
        self.reader = jlog.Reader(path, "s")
        self.worker = jlog.Worker(path, "w")
        (self.task,) = self.worker.take(timeout=0)
        self.journal = jlog.Journal(path)
        self.journal.add_subscriber("free")

    def close(self) -> None:
        for one in (self.task.ack, self.worker.close, self.reader.close, self.writer.close):
            with suppress(jlog.LeaseLost):
                one()


def check_refused(call: Callable[[], Any], name: str, value: Any) -> None:
    says = f"{name}|{ALSO[name]}" if name in ALSO else name
    with pytest.raises((TypeError, ValueError, jlog.CheckpointNotFound), match=says):
        pytest.fail(f"{name}={value!r} was accepted and returned {call()!r}")


@pytest.mark.parametrize("owner", OWNERS)
def test_no_wrong_option_is_accepted_and_each_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, table, more = OWNERS[owner]
    jlog.Writer("j").close()
    given = {"path": "j"} if "path" in table else {}
    for name, values in table.items():
        for value in values:
            check_refused(lambda name=name, value=value: make(**{**given, **more, name: value}), name, value)
    with jlog.Writer("j") as writer:  # nothing was accepted that the journal cannot be read with
        writer.append(b"x")
    assert list(jlog.Reader("j").values()) == [b"x"]


@pytest.mark.parametrize("call", CALLS)
def test_no_wrong_argument_is_accepted_and_each_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, table = CALLS[call]
    on = Opened(tmp_path / "j")
    try:
        for name, values in table.items():
            for value in values:
                check_refused(lambda name=name, value=value: make(on, **{name: value}), name, value)
        assert on.journal.next_sequence == 1
    finally:
        on.close()


@pytest.mark.parametrize("owner", ["Writer", "Reader", "Worker", "Retention"])
def test_the_table_of_options_is_complete(owner: str) -> None:
    make, table, _ = OWNERS[owner]
    assert {*table, "codec"} >= {*inspect.signature(make).parameters}


def test_help_shows_what_a_program_needs_each_day() -> None:
    """Bulk loading is beside it, in jlog.writer."""
    calls = ["append", "append_durable", "close", "extend", "extend_arrow", "flush", "roll", "sync", "sync_async"]
    assert [name for name in dir(jlog.Writer) if name[0] != "_"] == sorted([*calls, "next_sequence", "path", "precommit"])


@pytest.mark.parametrize("method", ["append", "extend"])
def test_help_shows_the_type_of_each_argument(method: str) -> None:
    """A compiled method's signature has no annotations: they stand in its text."""
    stub = ast.parse((Path(jlog.__file__).parent / "_core" / "write" / "writer.pyi").read_text())
    (made,) = [one for one in ast.walk(stub) if isinstance(one, ast.FunctionDef) and one.name == method]
    shown = " ".join(pydoc.plain(pydoc.render_doc(getattr(jlog.Writer, method))).split())
    for argument in [*made.args.posonlyargs[1:], *made.args.args, *made.args.kwonlyargs]:
        assert argument.annotation is not None
        wanted = ast.unparse(argument.annotation)
        if wanted == "_Headers | None":
            wanted = "Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None] | None"
        assert f"{argument.arg}: {wanted}" in shown


def test_what_is_left_of_a_wait_may_be_below_zero(path: Path) -> None:
    jlog.Writer(path).close()
    assert not len(jlog.Reader(path).read(timeout=-0.5))
    assert not list(jlog.Reader(path).follow(timeout=-0.5))


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("precommit", ["x", "-1", "5", "2G", "nan"]),
        ("segment-bytes", ["x", "-1", "1", "999999999999999999999"]),
        ("compression", ["x", ""]),
        ("roll", ["x", ""]),
        ("sync", ["x", ""]),
        ("sync-interval", ["x", "nan", "0", "-1", "1e30", "inf"]),
        ("dedup", ["x", "0", "-1", "99999999999", "99999999999999d"]),
        ("max-bytes", ["x", "-1", "0", "999999999999999999999"]),
        ("limit-bytes", ["x", "-1", "0", "999999999999999999999"]),
        ("max-age", ["x", "nan", "-1d", "99999999999999d"]),
        ("subscriber-max-age", ["x", "nan", "-1d", "99999999999999d"]),
        ("archive", ["x", ""]),
    ],
)
def test_no_wrong_option_of_the_command_is_accepted_and_each_is_named(tmp_path: Path, option: str, values: list[str]) -> None:
    for value in values:
        done = run("create", tmp_path / "j", f"--{option}", value)
        assert done.code == 2, value
        last = done.err.splitlines()[-1]
        assert option in last or option.replace("-", "_") in last, last
        assert not (tmp_path / "j").exists()

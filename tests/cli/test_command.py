"""The promises of every command."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import jlog
from cli.command import COMMAND, HUNG_SECONDS, do, run, run_afresh, start
from elsewhere import python
from jlog.cli.tool import tool

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield (*above, name), command
            if isinstance(command, click.Group):
                yield from commands(command, (*above, name))


COMMANDS = dict(commands(tool))
EACH = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
READ_A_JOURNAL = [
    "info",
    "dump",
    "tail",
    "verify",
    "clean",
    "rm --yes",
    "subscriber ls",
    "checkpoint ls",
]


def test_version_is_that_of_the_package() -> None:
    assert do("--version").out == f"jlogtool {version('pyjlog')}\n".encode()


@pytest.mark.parametrize("words", [[], ["append"], ["subscriber", "add"]], ids=" ".join)
def test_help_is_also_a_word_before_a_command(words: list[str]) -> None:
    assert do("help", *words).out == do(*words, "--help").out


def test_help_of_an_unknown_command_says_so() -> None:
    result = run("help", "xyzzy")
    assert (result.code, "No such command 'xyzzy'." in result.err, "mean" in result.err) == (2, True, False)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("grep x /tmp/j", "`jlogtool dump --grep REGEX JOURNAL`"),
        ("cat /tmp/j", "`jlogtool dump JOURNAL`"),
        ("mv /tmp/j /tmp/k", "move it with `mv`"),
        ("version", "`jlogtool --version`"),
        ("--tail /tmp/j", "`jlogtool tail`"),
        ("dump --tail /tmp/j", "`jlogtool tail`"),
    ],
)
def test_what_people_type_out_of_habit_is_answered_with_what_does_it(typed: str, answer: str) -> None:
    result = run(*typed.split())
    assert (result.code, answer in result.err) == (2, True), result.err


@pytest.mark.parametrize("typed", ["rmm", "r", "clena", "repiar", "subscriber rmm", "--rm", "--repair"])
def test_a_suggestion_removes_and_repairs_nothing(typed: str) -> None:
    result = run(*typed.split())
    assert result.code == 2
    assert not any(f"{mark}{name}{mark}" in result.err for name in ("rm", "clean", "repair") for mark in ("'",)), result.err
    assert "jlogtool rm" not in result.err


@pytest.mark.parametrize(("typed", "meant"), [("tial", "tail"), ("subscriber sl", "ls"), ("mirror to-kafak", "to-kafka")])
def test_a_mistyped_command_names_the_nearest(typed: str, meant: str) -> None:
    result = run(*typed.split())
    assert (result.code, f"Did you mean {meant!r}?" in result.err) == (2, True)


def test_a_command_does_not_suggest_itself() -> None:
    result = run("archive", "--archive", "file:///tmp/archive", "/tmp/j")
    assert (result.code, "Did you mean" in result.err) == (2, False)


LEAVES = {path: command for path, command in COMMANDS.items() if not isinstance(command, click.Group)}
EACH_LEAF = pytest.mark.parametrize("path", LEAVES, ids=" ".join)


def shown_help(path: tuple[str, ...]) -> str:
    """As at a terminal of 80 columns."""
    context = click.Context(tool, info_name="jlogtool")
    for number in range(1, len(path) + 1):
        command = COMMANDS[path[:number]]
        context = click.Context(command, context, info_name=path[number - 1], terminal_width=80)
    return context.get_help()


@EACH
def test_help_begins_with_a_sentence_and_the_list_is_shorter(
    path: tuple[str, ...],
) -> None:
    command = COMMANDS[path]
    first = inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")
    assert re.match(r"[A-Z].*[.:]\Z", first), first
    short = command.short_help or ""
    assert re.match(r"[A-Z].*\.\Z", short), short
    assert len(short) <= 60


@EACH
def test_help_fits_a_terminal_of_80_columns(path: tuple[str, ...]) -> None:
    assert [line for line in shown_help(path).splitlines() if len(line) > 80] == []


@EACH_LEAF
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    for parameter in LEAVES[path].params:
        if isinstance(parameter, click.Option):
            text = re.sub(r"  \[.*\]\Z", "", parameter.help or "")
            assert re.match(r"[A-Za-z].*\.\Z", text), (parameter.opts, text)


@EACH_LEAF
def test_help_has_examples_that_name_the_command(path: tuple[str, ...]) -> None:
    text = LEAVES[path].help or ""
    assert f"jlogtool {' '.join(path)}" in text.partition("Example")[2]


@pytest.mark.parametrize("command", ["dump", "tail", "verify"])
def test_a_command_that_finds_damage_says_that_it_exits_with_3(command: str) -> None:
    assert re.search(r"[Ee]xit(s with| code is) 3\b", " ".join(shown_help((command,)).split()))


@EACH
def test_every_option_in_an_example_exists(path: tuple[str, ...]) -> None:
    known = {option for command in COMMANDS.values() for p in command.params for option in p.opts}
    examples = (COMMANDS[path].help or "").partition("Example")[2]
    for line in examples.splitlines():
        for part in line.split("|"):
            if part.strip().startswith("jlogtool"):
                assert set(re.findall(r"(?<=\s)--?[a-z][a-z0-9-]*", part)) <= known, line


def test_no_command_and_an_unknown_one_are_errors_of_usage() -> None:
    for command in ([], ["subscriber"], ["checkpoint"]):
        result = run(*command)
        assert (result.code, result.out, "Usage:" in result.err) == (2, b"", True)
    assert run("fly").code == 2
    assert run("info").code == 2


@pytest.mark.parametrize("command", READ_A_JOURNAL)
def test_a_path_that_does_not_exist_is_one_line_and_1(journal: Path, command: str) -> None:
    result = run(*command.split(), journal)
    assert (result.code, result.out, result.err.count("\n")) == (1, b"", 1)
    assert str(journal) in result.err
    assert not journal.exists()


@pytest.mark.parametrize("command", READ_A_JOURNAL)
def test_a_directory_that_is_not_a_journal_is_left_alone(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    assert run(*command.split(), tmp_path).code == 1
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "command", ["dump", "dump --json", "dump --blocks", "tail -n 100000", "info --json", "verify", "--help"]
)
def test_a_closed_pipe_ends_it_quietly(journal: Path, command: str) -> None:
    do("append", journal, stdin=b"x" * 50 + b"\n" * 20_000)
    path = [] if command == "--help" else [journal]
    with start(*command.split(), *path) as process:
        process.stdout.close()
        assert process.wait(HUNG_SECONDS) == 0
        assert process.stderr.read() == b""


def test_a_full_disk_under_the_output_is_one_line_and_1(numbers: Path) -> None:
    with open("/dev/full", "wb") as full:
        for command in ("dump", "info", "verify --json"):
            done = subprocess.run(
                [*COMMAND, *command.split(), str(numbers)],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=HUNG_SECONDS,
            )
            assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


@pytest.mark.parametrize("command", ["dump", "info", "verify", "tail", "read", "ls", "subscriber ls", "options"])
def test_a_stdout_that_the_caller_has_closed_is_one_line_and_1(numbers: Path, command: str) -> None:
    name = ["billing"] if command == "read" else []
    line = shlex.join([*COMMAND, *command.split(), str(numbers), *name])
    done = subprocess.run(["sh", "-c", f"{line} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "jlogtool: stdout: Bad file descriptor\n")


def test_all_streams_may_be_closed(numbers: Path) -> None:
    line = shlex.join([*COMMAND, "roll", str(numbers)])
    assert subprocess.run(["sh", "-c", f"{line} <&- >&- 2>&-"]).returncode == 0
    assert len(jlog.Journal(numbers).segments()) == 2


def test_a_file_url_is_a_journals_path_wherever_one_is_meant(tmp_path: Path) -> None:
    journal, url = tmp_path / "a b", f"file://{tmp_path}/a%20b"
    do("append", url, stdin=b"one\n")
    assert do("dump", url).out == do("tail", url).out == b"one\n"
    do("subscriber", "add", url, "billing")
    do("checkpoint", "set", url, "mark", 1)
    for command in ("info", "verify", "clean", "options", "ls", "subscriber ls", "checkpoint ls"):
        assert do(*command.split(), url, "--json").json == do(*command.split(), journal, "--json").json
    do("rm", "--yes", url)
    assert not journal.exists()


def test_a_relative_path_with_a_colon_is_a_path(tmp_path: Path) -> None:
    assert run("append", "file:kafka%3Ax", cwd=tmp_path, stdin=b"one\n").code == 0
    assert run("dump", "./kafka:x", cwd=tmp_path).out == b"one\n"
    assert run("append", "a:b", cwd=tmp_path, stdin=b"two\n").code == 0
    assert run("dump", "a:b", cwd=tmp_path).out == b"two\n"


@pytest.mark.parametrize("url", ["file://elsewhere/x", "s3://bucket/x", "kafka:orders", "kafka://host:9092/x"])
def test_a_url_that_a_command_cannot_take_is_an_error_of_usage(url: str) -> None:
    for command in ["clean"] if url.startswith("s3:") else ["clean", "verify"]:
        result = run(command, url)
        assert (result.code, "Invalid value for 'JOURNAL'" in result.err) == (2, True)


def test_a_path_need_not_be_utf8(tmp_path: Path) -> None:
    journal = os.fsencode(tmp_path) + b"/\xff"
    do("append", journal, stdin=b"one\n")
    assert do("dump", journal).out == b"one\n"
    assert os.fsencode(do("info", "--json", journal).json["path"]) == journal
    assert do("info", journal).out
    assert do("ls", tmp_path).out


@pytest.mark.parametrize(
    "command",
    [
        "append", "create", "dump", "tail", "read URL billing", "info", "rm --yes", "ls", "subscriber ls",
        "subscriber set URL billing end", "checkpoint ls", "checkpoint rm URL mark", "rewind URL billing mark",
    ],
)  # fmt: skip
def test_a_topic_without_kafkas_extra_says_what_to_install(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that lacks the client: what stands before the installed one on the path does as if."""
    missing = 'raise ModuleNotFoundError("No module named \'confluent_kafka\'", name="confluent_kafka")\n'
    (tmp_path / "confluent_kafka.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    url = "kafka://127.0.0.1:9/orders"
    words = [url if word == "URL" else word for word in command.split()]
    result = run_afresh(*words, *([] if url in words else [url]))
    assert (result.code, result.err.count("\n"), "pip install 'pyjlog[kafka]'" in result.err) == (1, 1, True)


def test_help_needs_nothing_that_an_extra_brings() -> None:
    """The command that needs it says that it is not installed; `jlogtool --help` works."""
    program = f"""
import sys
for name in ("confluent_kafka", "fsspec", "prometheus_client", "pyarrow", "pyspark"):
    sys.modules[name] = None
from jlog.cli.tool import run
for path in {[[], *map(list, COMMANDS)]}:
    assert run([*path, "--help"]) == 0, path
"""
    done = python(program)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", ""),
        ("append", ""),
        ("read", ""),
        ("create", ""),
        ("verify", ""),
        ("stats", ""),
        ("backup", "{j}", ""),
    ],
)
def test_an_empty_path_is_an_error_of_usage_and_makes_nothing(tmp_path, arguments):
    jlog.Journal.create(tmp_path / "j")
    (tmp_path / "here").mkdir()
    found = run(*(part.format(j=tmp_path / "j") for part in arguments), cwd=tmp_path / "here")
    assert found.code == 2
    assert "empty path" in found.err
    assert os.listdir(tmp_path / "here") == []


@pytest.mark.parametrize("url", ["kafka://x", "kafka://127.0.0.1:1/t?partition=x", "kafka://127.0.0.1:99999/t"])
@pytest.mark.parametrize("command", ["info", "tail", "dump", "subscriber ls", "checkpoint ls", "rm --yes", "append"])
def test_a_url_that_is_wrong_is_an_error_of_usage(command: str, url: str) -> None:
    result = run(*command.split(), url)
    assert (result.code, "kafka://HOST:PORT/TOPIC" in result.err or "partition=N" in result.err) == (2, True), result.err


@pytest.mark.parametrize("command", ["ls", "console --listen 127.0.0.1:0"])
def test_the_url_of_a_cluster_that_is_wrong_is_an_error_of_usage(command: str) -> None:
    result = run(*command.split(), "kafka://127.0.0.1:99999")
    assert (result.code, "does not name a broker" in result.err) == (2, True), result.err


@pytest.mark.parametrize("moment", ["jlog", "click", "jlog.cli.commands.sql", "duckdb", "pyarrow", "end"])
def test_ctrl_c_shows_no_traceback_at_any_moment(tmp_path: Path, moment: str) -> None:
    """Also not in the moment in which a module is imported, or the interpreter ends."""
    jlog.Journal.create(tmp_path / "j")
    program = f"""
import atexit, os, signal, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
if {moment!r} == "end":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
from jlogtool import main
main(["sql", "--parse", "json", "FROM app", "app={tmp_path}/j"])
"""
    done = python(program)
    assert done.returncode in (-signal.SIGINT, 130)
    assert done.stderr == ""

"""`jlogtool demo` shows and proves; it leaves no files and no processes, whatever ends it."""

from __future__ import annotations

import os
import random
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

import exhaustive
from cli.terminal import terminal
from filesystems import CannotMount, mounted
from jlog.demo import screen
from jlog.demo.fleet import Broken, Fleet
from jlog.demo.input import NoInput, take
from jlog.demo.processes import chain_of
from jlog.demo.steps import differences, tool
from patience import HUNG_SECONDS

TOOL = [sys.executable, "-m", "jlog.cli"]
DEMO = [*TOOL, "demo"]
WHOLE_DEMO = [sys.executable, str(Path(__file__).parents[2] / "docs" / "examples" / "demo" / "run.py")]


def environment_with(temporary: Path) -> dict[str, str]:
    temporary.mkdir()
    return {**os.environ, "TMPDIR": str(temporary), "JLOG_DEMO_DIR": "", "COLUMNS": "200"}


def run(*arguments: str, env: dict[str, str], command: list[str] = DEMO) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], env=env, capture_output=True, text=True, timeout=HUNG_SECONDS)


def write_lines(path: Path, count: int) -> str:
    path.write_bytes(b"".join(b"line %d of %s\n" % (number, path.name.encode()) for number in range(count)))
    return str(path)


@pytest.mark.parametrize("lines", [1, exhaustive.only(2), exhaustive.only(5), 40_000])
def test_every_line_is_proved_to_be_delivered_through_kills(tmp_path, lines):
    temporary = tmp_path / "tmp"
    done = run(write_lines(tmp_path / "input", lines), env=environment_with(temporary))
    assert (done.returncode, done.stderr) == (0, "")
    assert "every acknowledged line reached audit and index, in order" in done.stdout
    assert "2 survived" in done.stdout
    assert f"{lines:,} lines" in done.stdout
    (kept,) = temporary.iterdir()
    assert [path.name for path in kept.iterdir()] == ["journal"]


def test_it_ends_with_an_answer_in_sql_and_three_commands_that_work(tmp_path):
    done = run(write_lines(tmp_path / "input", 1_000), env=environment_with(tmp_path / "tmp"))
    before, _, after = done.stdout.partition("Type next:\n")
    answer = before.partition("\n$ ")[2].splitlines()
    lines = [line for line in answer if not re.match(r" *\d+ s  ", line)]  # without those that count
    assert lines[0].startswith(f"{tool()} sql 'SELECT key AS file, count(*)")
    assert lines[2:4] == ["file" + " " * (len(str(tmp_path / "input")) - 2) + "lines", f"{tmp_path / 'input'}   1000"]
    shown = [run(*shlex.split(line)[1:], env=dict(os.environ), command=TOOL) for line in after.splitlines()]
    assert [(said.returncode, said.stderr) for said in shown] == [(0, "")] * 3
    assert len(shown[2].stdout.splitlines()) == 10


def test_at_a_terminal_the_kills_and_what_follows_stand_out(tmp_path):
    environment = environment_with(tmp_path / "tmp")
    with terminal("demo", write_lines(tmp_path / "input", 20_000), env=environment, columns=120, lines=60) as seen:
        assert seen.wait() == 0
    assert re.search(rb"\x1b\[1;31mkill -9 producer-1", seen.shown)
    assert re.search(rb"\x1b\[1;32mresumed: producer-1", seen.shown)
    assert re.search(rb"\x1b\[1;35mrewound: index", seen.shown)


def test_what_takes_long_has_a_line_that_counts(monkeypatch, capsys):
    monkeypatch.setattr(screen, "QUIET_SECONDS", 0.01)
    asked = Event()

    def text():
        asked.set()
        return "Spark starts"

    with screen.Screen().counting(text):
        assert asked.wait(HUNG_SECONDS)
    assert capsys.readouterr().out.splitlines()[0] == "  0 s  Spark starts"


def test_segments_are_cleaned_after_the_readers(tmp_path):
    lines = [random.Random(number).randbytes(499).hex() for number in range(40_000)]  # LZ4 halves them
    (tmp_path / "input").write_text("\n".join(lines))
    done = run(str(tmp_path / "input"), env=environment_with(tmp_path / "tmp"))
    assert done.returncode == 0
    created, removed = next(line for line in done.stdout.splitlines() if " created, " in line).split("created, ")
    assert int(created.split()[-1]) >= 5
    assert 1 <= int(removed.split()[0]) < int(created.split()[-1])  # the checkpoint keeps the second half


def test_below_a_directory_of_the_users_the_journal_is_kept(tmp_path):
    environment = {**environment_with(tmp_path / "tmp"), "JLOG_DEMO_DIR": str(tmp_path / "kept")}
    assert run(write_lines(tmp_path / "input", 10), env=environment).returncode == 0
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept / "journal" / "journal.meta").exists()


def test_without_java_it_runs_and_says_what_to_install(tmp_path):
    environment = {**environment_with(tmp_path / "tmp"), "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    done = run("--spark", write_lines(tmp_path / "input", 10), env=environment, command=WHOLE_DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    assert " install Java" in done.stdout


def test_input_that_does_not_exist_is_said_in_a_line(tmp_path):
    done = run(str(tmp_path / "nothing"), env=environment_with(tmp_path / "tmp"))
    assert done.returncode == 1
    assert done.stderr == f"demo: {tmp_path / 'nothing'}: no such file or directory\n"


def children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupted", "terminated"])
def test_ended_early_it_leaves_no_process_and_no_file(tmp_path, number, code):
    temporary = tmp_path / "tmp"
    demo = subprocess.Popen(
        [*DEMO, write_lines(tmp_path / "input", 400_000)],
        env=environment_with(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with demo:
        next(line for line in demo.stdout if line.startswith("4 producer processes"))
        children = [os.pidfd_open(child) for child in children_of(demo.pid)]
        demo.send_signal(number)
        demo.stdout.read()  # ends when the last of them has let go of it
        assert demo.wait(HUNG_SECONDS) == code
    assert len(children) >= 6
    for child in children:
        assert select.select([child], [], [], 60)[0], "a process goes on"
        os.close(child)
    assert list(temporary.iterdir()) == []


def end_without_a_word(link):
    os._exit(7)


def test_a_process_that_dies_by_itself_ends_the_demo():
    with Fleet() as fleet:
        fleet.start("producer-9", end_without_a_word)
        with pytest.raises(Broken, match="producer-9 ended with exit code 7"):
            fleet.wait_for("producer-9", "done")


@pytest.mark.parametrize(
    ("delivered", "finding"),
    [
        ([b"a", b"b", b"c"], []),
        ([b"a", b"b"], ["producer-1 appended 3 lines, the 2 delivered differ from them"]),
        ([b"a", b"c", b"b"], ["producer-1 appended 3 lines, the 3 delivered differ from them"]),
        ([b"a", b"b", b"b", b"c"], ["producer-1 appended 3 lines, the 4 delivered differ from them"]),
        ([], ["producer-1 appended 3 lines, the 0 delivered differ from them"]),
    ],
    ids=["the same", "lost", "out of order", "twice", "nothing"],
)
def test_the_proof_finds_what_is_not_as_it_was(delivered, finding):
    expected = {"producer-1": chain_of([b"a", b"b", b"c"]), "producer-2": chain_of([])}
    assert list(differences(expected, {"producer-1": chain_of(delivered)})) == finding


def test_the_parts_have_every_line_of_the_input_once_with_its_file(tmp_path):
    contents = {"binary": bytes(range(256)) * 9, "empty": b"", "long": b"%d\n" * 1000, "no-newline-at-the-end": b"a\nb"}
    folder = tmp_path / "input"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    source = take([str(folder)], str(tmp_path / "copy"))
    lines = [
        (str(folder / name).encode(), line)
        for name, content in contents.items()
        if content
        for line in content.removesuffix(b"\n").split(b"\n")
    ]
    assert (len(source.files), source.is_cut, source.lines) == (3, False, len(lines))
    assert [*source.part(0, 700), *source.part(700, 701), *source.part(701, len(lines))] == lines


def test_more_than_the_demo_takes_is_cut_after_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("jlog.demo.input.BYTES_MAX", 10)
    (tmp_path / "input").write_bytes(b"one\ntwo\nthree\n")
    source = take([str(tmp_path / "input")], str(tmp_path / "copy"))
    assert source.is_cut
    assert [line for _, line in source.part(0, source.lines)] == [b"one", b"two"]


def test_input_without_a_line_is_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(NoInput):
        take([str(tmp_path / "empty")], str(tmp_path / "copy"))


@pytest.mark.parametrize("kilobytes", [64, 700])
@pytest.mark.parametrize("variable", ["TMPDIR", "JLOG_DEMO_DIR"])
def test_a_full_disk_is_named_with_the_variable_that_names_another(tmp_path, variable, kilobytes):
    """The disk is full for the demo itself, or for one of its processes."""
    lines = write_lines(tmp_path / "input", 40_000)
    try:
        with mounted("tmpfs", kilobytes / 1024) as small:
            environment = {**os.environ, "JLOG_DEMO_DIR": "", "COLUMNS": "200", variable: str(small)}
            done = run(lines, env=environment)
    except CannotMount as error:
        pytest.skip(str(error))
    assert done.returncode == 1
    assert f"; the demo works below {small}, and {variable} names another place" in done.stderr
    assert "No space left on device" in done.stderr

"""`jlogtool bench`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from cli.command import HUNG_SECONDS, run, start
from cli.terminal import terminal
from jlog.bench import has_failpoints
from jlog.cli.commands.bench import NAMES
from patience import wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

LONG = ["--records", 1_000_000, "--rounds", 1000]
SHORT = ["--records", 2000, "--rounds", 1]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> None:
    yield
    assert list(tmp_path.iterdir()) == []


def begun(process: subprocess.Popen[bytes], directory: Path) -> bool:
    """Whether it works in its own directory by now; it must not end before."""
    assert process.poll() is None
    return any(found.is_dir() for found in directory.glob("jlog-bench-*/*"))


def test_each_line_has_its_rival_in_the_same_run(tmp_path: Path) -> None:
    result = run("bench", *SHORT, "--bytes", "1K", "--json", "--dir", tmp_path)
    found = {line["name"]: line for line in result.json["results"]}
    assert result.code == 0
    assert list(found) == NAMES
    assert result.json["settings"]["bytes"] == 1024
    for line in found.values():
        assert line["unit"] == "records/s"
        assert len(line["jlog"]["rounds"]) == len(line["plain"]["rounds"]) == len(line["ratio"]["rounds"]) == 1
        assert line["ratio"]["median"] == line["jlog"]["median"] / line["plain"]["median"]
        assert line["mb_per_second"] == line["jlog"]["median"] * 1024 / 1e6


def test_only_measures_what_it_names(tmp_path: Path) -> None:
    result = run("bench", *SHORT, "--only", "values", "--only", "append", "--dir", f"file:{tmp_path}")
    text = result.out.decode()
    assert ("reader.values()" in text, "append" in text, "sync=append" in text) == (True, True, False)
    assert "file system" in text
    assert run("bench", "--only", "nothing").code == 2


def test_records_may_be_of_any_size(tmp_path: Path) -> None:
    for size in ("0", "1", "20M"):
        given = ["--bytes", size, "--records", 3, "--rounds", 1, "--only", "append", "--only", "values"]
        assert run("bench", *given, "--dir", tmp_path, "--json").code == 0


def test_a_load_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path) -> None:
    result = run("bench", "--bytes", "1G", "--records", 1_000_000, "--dir", tmp_path)
    assert (result.code, "free space" in result.err) == (1, True)


def test_a_directory_that_does_not_exist_is_one_line_and_1(tmp_path: Path) -> None:
    result = run("bench", "--dir", tmp_path / "missing")
    assert (result.code, result.err.count("\n")) == (1, 1)


def test_a_build_for_tests_says_that_it_is_slower(tmp_path: Path) -> None:
    if not has_failpoints():
        pytest.skip("this build has no fail points; `make test` builds it with them")
    assert "fail points" in run("bench", *SHORT, "--only", "append", "--dir", tmp_path).err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_it_takes_its_files_with_it(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with start("bench", *LONG, "--dir", tmp_path) as tool:
        wait_until(lambda: begun(tool, tmp_path))
        tool.send_signal(number)
        assert tool.wait(HUNG_SECONDS) == code
        assert b"Traceback" not in tool.stderr.read()


def test_ctrl_c_at_a_terminal_ends_it_quietly(tmp_path: Path) -> None:
    with terminal("bench", *LONG, "--dir", tmp_path) as tool:
        wait_until(lambda: begun(tool.process, tmp_path))
        tool.type(b"\x03")
        assert tool.wait() == 130
        assert b"Traceback" not in tool.shown


def test_a_terminal_shows_how_far_it_is_and_then_the_table(tmp_path: Path) -> None:
    with terminal("bench", "--records", 300_000, "--rounds", 2, "--dir", tmp_path, columns=100, lines=40) as tool:
        assert tool.wait() == 0
    assert b"Measuring" in tool.shown
    assert "Measuring" not in tool.text
    assert "reader.values()" in tool.text

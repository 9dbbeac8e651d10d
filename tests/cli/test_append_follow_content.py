"""`jlogtool append --follow`: late lines, holes, long lines, files that cannot be read, and labels of records."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

import jlog
from behaviour.journals import values
from cli.command import HUNG_SECONDS, run
from cli.shipping import add, bytes_read, drained_texts, is_open, shipped, shipping, texts, wait_for, wait_until
from jlog.cli.records import log_file
from jlog.cli.records.log_file import LogFile
from jlog.metrics import exposition


@pytest.mark.parametrize("killed", [False, True])
def test_lines_that_an_old_process_writes_to_the_rotated_file_are_read(journal: Path, log: Path, killed: bool) -> None:
    """As Apache's do after a graceful reload, when a long download ends."""
    with open(log, "a", buffering=1) as old:
        old.write("GET /index\n")
        with shipping(journal, log) as tool:
            wait_for(journal, 1)
            log.rename(f"{log}.1")
            add(log, "GET /after\n")
            wait_for(journal, 2)
            tool.kill() if killed else None
            old.write("GET /download\n")
            if not killed:
                wait_for(journal, 3)
        with shipping(journal, log):
            wait_for(journal, 3)
            old.write("GET /another\n")
            wait_for(journal, 4)
            os.rename(f"{log}.1", f"{log}.2")
            log.rename(f"{log}.1")
            add(log, "GET /new\n")
            wait_for(journal, 5)
            old.write("GET /last\n")
            wait_for(journal, 6)
    wanted = ["GET /index", "GET /after", "GET /download", "GET /another", "GET /new", "GET /last"]
    assert texts(journal) == wanted


def test_a_rotated_file_is_closed_when_it_is_old_or_removed(journal: Path, log: Path) -> None:
    add(log, "1\n")
    with shipping(journal, log, "--rotated-for", "2s") as tool:
        wait_for(journal, 1)
        log.rename(f"{log}.1")
        add(log, "2\n")
        wait_for(journal, 2)
        wait_until(lambda: not is_open(tool.pid, f"{log}.1"))
    with shipping(journal, log) as tool:
        log.rename(f"{log}.2")
        add(log, "3\n")
        wait_for(journal, 3)
        assert is_open(tool.pid, f"{log}.2")
        os.unlink(f"{log}.2")
        wait_until(lambda: not is_open(tool.pid, f"{log}.2 (deleted)"))
    assert texts(journal) == ["1", "2", "3"]


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_hole_after_copytruncate_is_stepped_over(journal: Path, log: Path, running: bool, is_sparse: bool) -> None:
    size = (3 << 29 if is_sparse else 8 << 20) + 5
    with open(log, "wb", buffering=0) as writer:  # without O_APPEND, as a shell's `>`
        writer.write(b"first\n")
        with shipping(journal, log) as tool:
            wait_for(journal, 1)
            if not running:
                tool.kill()
                tool.wait()
            writer.seek(size)  # what it would have written, and what was read
            shutil.copyfile(log, f"{log}.1")
            os.truncate(log, 0)
            writer.write(b"second\n")
            writer.write(b"third\n")
            if running:
                wait_for(journal, 3)
        if not is_sparse:  # another program copies the hole
            with open(log, "rb") as file:
                data = file.read()
            log.rename(f"{log}.2")
            log.with_name("app.log.2").write_bytes(data)
        with shipping(journal, log):
            wait_for(journal, 3)
            log.touch()
            add(log, "fourth\n")
            wait_for(journal, 4)
    assert texts(journal) == ["first", "second", "third", "fourth"]


def test_a_log_of_nothing_but_a_hole_is_waited_for(journal: Path, log: Path) -> None:
    add(log, "1\n")
    os.truncate(log, 1 << 34)
    with shipping(journal, log):
        wait_for(journal, 1)
        with open(log, "ab") as file:
            file.write(b"2\n")
        wait_for(journal, 2)
    assert texts(journal) == ["1", "2"]


@pytest.mark.parametrize("long_lines", ["cut", "leave-out"])
def test_a_line_that_is_too_long_is_cut_or_left_out_and_the_next_one_comes(journal: Path, log: Path, long_lines: str) -> None:
    options = "--max-line", "100", "--long-lines", long_lines
    rest = "x" * (3 << 20)
    with shipping(journal, log, *options) as tool:
        add(log, "1\n" + "y" * 100 + "\n" + "z" * 101 + "\n" + "long ")
        wait_for(journal, 3 if long_lines == "cut" else 2)
        add(log, rest)
        tool.kill()
    add(log, rest)
    with shipping(journal, log, *options) as tool:
        add(log, "end\nafter\n")
        wait_for(journal, 5 if long_lines == "cut" else 3)
        tool.terminate()
        assert tool.wait(HUNG_SECONDS) == 0
        told = tool.stderr.read().decode()
    cut = ["z" * 100, ("long " + rest)[:100]] if long_lines == "cut" else []
    assert texts(journal) == ["1", "y" * 100, *cut, "after"]
    assert "has more than 100 bytes (--max-line), and is " + ("cut" if long_lines == "cut" else "left out") in told
    assert f'jlog_follow_lines_cut_total{{file="{log}",journal="{journal}"}} 2.0' in exposition([journal])


def test_an_unfinished_line_is_not_read_again_and_again(journal: Path, log: Path) -> None:
    size = 15 << 20
    add(log, "1\n" + "x" * size)
    with shipping(journal, log) as tool:
        wait_for(journal, 1)
        wait_until(lambda: bytes_read(tool.pid) > size)
        first, moment = bytes_read(tool.pid), threading.Event()
        for number in range(20):  # each makes it look
            add(log, f"{number % 10}")
            moment.wait(0.1)
        assert bytes_read(tool.pid) - first < size
        add(log, "\n")
        wait_for(journal, 2)
    assert values(journal)[1] == b"x" * size + b"01234567890123456789"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who gives up its rights")
@pytest.mark.parametrize("name", ["app.log.1", "app.log"])
def test_a_file_that_cannot_be_read_is_told_and_read_once_it_can_be(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    directory = Path(tempfile.mkdtemp(dir="/tmp"))  # which others may enter
    request.addfinalizer(lambda: shutil.rmtree(directory))
    directory.chmod(0o755)
    log, told = directory / "app.log", []
    add(log, "1\n")
    file = LogFile(str(log), None, told.append)
    assert drained_texts(file) == ["1"]
    file.close()
    log.rename(f"{log}.2")
    add(log, "2\n")
    if name == "app.log.1":
        log.rename(f"{log}.1")
        add(log, "3\n")
    log.with_name(name).chmod(0)
    place = file._series.place()
    os.seteuid(65534)
    try:
        file = LogFile(str(log), place, told.append)
        lines = drained_texts(file)
        os.seteuid(0)
        assert lines == (["3"] if name == "app.log.1" else [])
        assert f"{log.with_name(name)} cannot be read: Permission denied" in told[0]
        log.with_name(name).chmod(0o644)
        os.seteuid(65534)
        wait_until(lambda: lines.extend(drained_texts(file)) or "2" in lines)
    finally:
        os.seteuid(0)
    assert len(told) == 1
    file.close()


def test_no_file_is_followed_without_follow(journal: Path, log: Path) -> None:
    add(log, "1\n")
    assert "--rotated-for needs --follow" in run("append", journal, log, "--rotated-for", "1h").err
    assert run("append", journal, log, "--follow", "--max-line", "0").code == 2


def test_the_key_and_the_headers_say_where_a_line_is_from(journal: Path, log: Path) -> None:
    add(log, "1\n")
    options = "--key", "{file}", "--header", "file={file}", "--header", "site=web=1"
    shipped(journal, log, 1, *options)
    assert run("append", journal, log, *options).code == 0
    with jlog.Reader(journal) as reader:
        for record in reader:
            assert record.key == os.fsencode(log)
            assert list(record.headers) == [("file", os.fsencode(log)), ("site", b"web=1")]
    assert jlog.Journal(journal).stats().records == 2
    assert run("append", journal, log, "--header", "site").code == 2


def test_each_line_that_is_cut_is_told(journal: Path, log: Path) -> None:
    add(log, "a" * 30 + "\n" + "b" * 30 + "\nshort\n")
    told = shipped(journal, log, 3, "--max-line", "10")
    assert [f"after byte {number} has" in told for number in (0, 31)] == [True, True]
    assert texts(journal) == ["a" * 10, "b" * 10, "short"]

"""`jlogtool top`: what a terminal shows of it, and that the terminal is always given back."""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import jlog
from behaviour.journals import SMALL, fill, read_away
from cli import terminal as terminals
from cli.command import HUNG_SECONDS, run, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from cli.terminal import Terminal

COLUMNS = ["REC/S", "BYTES/S", "RECORDS", "SIZE", "SEGS", "FLUSH/S", "SYNC/S", "ROLL/S", "WR"]


@pytest.fixture
def opened() -> Iterator[Callable[..., Terminal]]:
    """jlogtool on a terminal; all of them are gone before the journals are looked at."""
    with ExitStack() as stack:

        def start_one(*arguments: Any, environment: dict[str, str] | None = None, **options: Any) -> Terminal:
            env = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
            return stack.enter_context(terminals.terminal(*arguments, env=env, **options))

        yield start_one


@pytest.fixture
def top(opened: Callable[..., Terminal]) -> Callable[..., Terminal]:
    """Looking five times a second."""

    def start_top(*arguments: Any, **options: Any) -> Terminal:
        found = opened("top", "-i", "0.2", *arguments, **options)
        found.shows("Ctrl-C ends")
        return found

    return start_top


@pytest.fixture
def quiet(journal: Path) -> Path:
    """200 records in several segments, of which `behind` has read 20, `middle` 100 and `done` all."""
    with jlog.Writer(journal, **SMALL) as writer:
        fill(writer, 200)
        for name, position in (("behind", 20), ("middle", 100), ("done", 200)):
            jlog.Journal(journal).add_subscriber(name, start=position)
    return journal


def stand_as(terminal: Terminal, names: list[str]) -> None:
    """Waits for the subscribers in this order. A screen arrives in pieces: its head may be newer than its lines."""

    def order() -> list[str]:
        return [line.split()[0] for line in terminal.lines if line.split() and line.split()[0] in names]

    terminal.until(lambda: order() == names)


def figures(header: list[str], line: list[str]) -> dict[str, str]:
    """A line's figures by the titles of their columns; none while the screen is half drawn."""
    return dict(zip(header, line, strict=True)) if len(header) == len(line) else {}


def journal_figures(terminal: Terminal) -> dict[str, str]:
    """Those of the only journal, whose line is below the titles."""
    lines = terminal.lines
    at = next((number for number, line in enumerate(lines[:-1]) if "REC/S" in line), 0)
    return figures(lines[at].split(), lines[at + 1].split())


def subscriber_figures(terminal: Terminal, name: str) -> dict[str, str]:
    return figures(terminal.words_of("LAG/S"), terminal.words_of(name))


# --- What it shows -----------------------------------------------------------------------------------------------


def test_journal_and_subscribers_stand_there_with_their_figures(top, quiet):
    terminal, found = top(quiet), jlog.Journal(quiet).stats()
    terminal.until(lambda: journal_figures(terminal) and subscriber_figures(terminal, "done"))
    at = journal_figures(terminal)
    assert list(at) == ["JOURNAL", *COLUMNS]
    assert (at["RECORDS"], at["SEGS"], at["WR"]) == ("200", str(found.segments), "0")
    assert at["SIZE"] == f"{found.size_bytes / 1024:.1f}KiB"
    for name, lag in (("behind", 180), ("middle", 100), ("done", 0)):
        at = subscriber_figures(terminal, name)
        held = found.subscribers[name].held_bytes
        assert (at["LAG"], at["HELD"]) == (str(lag), f"{held / 1024:.1f}KiB" if held else "0B")
        assert (at["OLDEST"] == "-") == (lag == 0)


def test_rates_and_lag_move_with_a_writing_process_and_a_reader(top, quiet):
    terminal = top(quiet)
    with start("append", quiet) as writer:

        def reader_figure(title: str) -> str:
            return subscriber_figures(terminal, "behind").get(title, "")

        def journal(title: str) -> str:
            return journal_figures(terminal).get(title, "")

        def feed() -> None:
            writer.stdin.write(b"line\n" * 50)

        terminal.until(lambda: journal("WR") == "1", feed)
        terminal.until(lambda: journal("REC/S") not in ("", "-", "0") and journal("BYTES/S") not in ("", "-", "0B"), feed)
        terminal.until(lambda: reader_figure("LAG/S").startswith("+"), feed)
        with jlog.Reader(quiet, "behind") as reader:

            def read() -> None:
                reader.read(20)
                reader.commit()

            terminal.until(lambda: reader_figure("LAG/S").startswith("-"), read)
            terminal.until(lambda: reader_figure("READ/S") not in ("-", "0", ""), read)
            terminal.until(lambda: reader_figure("STATE") == "read")
        writer.stdin.close()
        assert writer.wait(HUNG_SECONDS) == 0
    terminal.until(lambda: journal("WR") == "0")
    terminal.until(lambda: journal("REC/S") == "0")


def test_a_directory_stands_for_the_journals_below_it(top, tmp_path):
    for name in ("orders", "deep/events"):
        with jlog.Writer(tmp_path / name) as writer:
            fill(writer, 3)
        jlog.Journal(tmp_path / name).add_subscriber("billing")
    terminal = top(tmp_path, columns=160)
    terminal.until(lambda: terminal.text.count("/orders ") == terminal.text.count("/deep/events ") == 2)
    assert "2 of 2 subscribers" in terminal.text


def test_the_largest_lag_comes_first(top, quiet):
    stand_as(top(quiet), ["behind", "middle", "done"])


def test_a_long_path_is_cut_at_its_beginning_and_no_figure_is(top, quiet):
    terminal = top(quiet)
    terminal.until(lambda: re.search(r"^~\S+/journal  ", terminal.text, re.MULTILINE))
    assert journal_figures(terminal)["RECORDS"] == "200"


@pytest.mark.damage
def test_an_unreadable_journal_has_a_line_and_the_others_go_on(top, quiet, tmp_path):
    other = tmp_path / "other"
    jlog.Journal.create(other)
    terminal = top(quiet, other, columns=200)
    (other / "journal.meta").write_bytes(b"")
    terminal.shows("its first line is not the first line")
    assert "behind" in terminal.text
    jlog.Journal(quiet).add_subscriber("new")
    terminal.shows("new ")


def test_many_journals_leave_room_for_the_subscribers(top, tmp_path):
    for number in range(30):
        jlog.Journal.create(tmp_path / f"j{number:02}").add_subscriber(f"s{number:02}")
    terminal = top(tmp_path)
    terminal.shows("6 of 30 journals, 14 of 30 subscribers")
    terminal.until(lambda: len(re.findall(r"^s\d\d ", terminal.text, re.MULTILINE)) == 14)


def test_wide_characters_keep_the_columns_in_line(top, journal):
    with jlog.Writer(journal) as writer:
        fill(writer, 5)
        for name in ("漢字漢字漢字漢字漢字漢字漢字", "plain"):
            jlog.Journal(journal).add_subscriber(name)
    terminal = top(journal)
    terminal.shows("plain")
    at = next(n for n, line in enumerate(terminal.screen.display) if "LAG/S" in line)
    buffer = terminal.screen.buffer
    end_of_lag = terminal.screen.display[at].index("LAG ") + 2
    assert [buffer[at + row][end_of_lag].data for row in (1, 2)] == ["5", "5"]


def test_a_name_cannot_control_the_terminal(top, tmp_path):
    path = tmp_path / "\x1b[31m\n\x1b[2J"
    jlog.Journal.create(path)
    terminal = top(path)
    terminal.shows("\\x1b[2J")


def test_it_follows_the_size_of_the_terminal(top, tmp_path):
    for number in range(30):
        jlog.Journal.create(tmp_path / f"j{number:02}").add_subscriber(f"s{number:02}")
    terminal = top(tmp_path)
    terminal.shows("14 of 30 subscribers")
    terminal.resize(120, 40)
    terminal.shows("24 of 30 subscribers")


@pytest.mark.parametrize(("rows", "columns"), [(1, 20), (3, 20), (5, 200), (60, 20)])
def test_a_terminal_that_is_too_small_shows_what_fits(top, quiet, rows, columns):
    terminal = top(quiet)
    terminal.resize(columns, rows)
    terminal.until(lambda: terminal.lines[0].startswith("jlogtool"))
    terminal.press("\x03")
    assert terminal.wait() == 130


def test_a_size_that_the_environment_states_is_not_believed(top, quiet):
    terminal = top(quiet, columns=120, environment={"COLUMNS": "20", "LINES": "5"})
    terminal.shows("3 of 3 subscribers")


# --- Its end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_given_back(top, quiet, number):
    terminal = top(quiet)
    terminal.process.send_signal(number)
    assert terminal.wait() == 128 + number
    assert terminal.is_given_back
    assert "Traceback" not in terminal.text


def test_ctrl_c_ends_it(top, quiet):
    terminal = top(quiet)
    terminal.press("\x03")
    assert (terminal.wait(), terminal.is_given_back) == (130, True)


def test_it_ends_with_its_terminal(top, quiet):
    terminal = top(quiet)
    terminal.hang_up()
    assert terminal.wait() == 128 + signal.SIGHUP


# --- Without a terminal ------------------------------------------------------------------------------------------


def test_without_a_terminal_it_prints_everything_once(quiet):
    with jlog.Writer(quiet):
        done = run("top", "-i", "0.1", quiet)
    assert (done.code, done.err) == (0, "")
    header, journal, blank, columns, *subscribers = (line.decode().split() for line in done.lines)
    assert header == ["JOURNAL", *COLUMNS]
    assert (journal[0], dict(zip(header, journal, strict=True))["WR"]) == (str(quiet), "1")
    assert blank == []
    found = [dict(zip(columns, line, strict=True)) for line in subscribers]
    assert [(at["SUBSCRIBER"], at["LAG"], at["READ/S"]) for at in found] == [
        ("behind", "180", "0"),
        ("middle", "100", "0"),
        ("done", "0", "0"),
    ]


def test_on_a_terminal_that_cannot_be_drawn_on_too(opened, quiet):
    terminal = opened("top", "-i", "0.1", quiet, environment={"TERM": "dumb"})
    assert terminal.wait() == 0
    assert b"behind" in terminal.shown
    assert b"\x1b[?1049h" not in terminal.shown


def test_a_missing_journal_is_reported_before_anything_is_drawn(opened, tmp_path):
    terminal = opened("top", tmp_path / "missing")
    assert terminal.wait() == 1
    assert b"\x1b[?1049h" not in terminal.shown
    done = run("top", tmp_path / "missing")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "missing" in done.err


@pytest.mark.damage
def test_a_snapshot_names_unreadable_journals_and_shows_the_rest(quiet, tmp_path):
    broken = tmp_path / "broken"
    jlog.Journal.create(broken)
    os.truncate(broken / "bounds", 0)
    done = run("top", "-i", "0.1", tmp_path)
    assert done.code == 1
    assert b"behind" in done.out
    assert (done.err.count("\n"), "broken" in done.err) == (1, True)
    read_away(quiet, "behind")

"""`jlogtool metrics`."""

from __future__ import annotations

import signal
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

import jlog
from cli.command import HUNG_SECONDS, do, run, start

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def samples(text: str, name: str) -> dict[str, float]:
    """By journal."""
    return {
        sample.labels["journal"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def url_of(tool: subprocess.Popen[bytes]) -> str:
    said: bytes = tool.stderr.readline()
    assert said.startswith(b"Serving http://")
    return said.split()[1].decode()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HUNG_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def test_printed_once_it_is_what_prometheus_reads(numbers: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    jlog.Journal.create(other)
    text = do("metrics", numbers, other).out.decode()
    assert samples(text, "jlog_records") == {str(numbers): 100, str(other): 0}
    assert samples(text, "jlog_records_appended_total") == {str(numbers): 100, str(other): 0}


def test_an_unreadable_journal_is_down_and_a_line_says_why(numbers: Path, tmp_path: Path) -> None:
    done = run("metrics", tmp_path / "missing", numbers)
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert str(tmp_path / "missing") in done.err
    assert samples(done.out.decode(), "jlog_up") == {str(tmp_path / "missing"): 0, str(numbers): 1}


def test_it_fails_where_no_journal_can_be_read(tmp_path: Path) -> None:
    done = run("metrics", tmp_path / "missing")
    assert done.code == 1
    assert samples(done.out.decode(), "jlog_up") == {str(tmp_path / "missing"): 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_served_over_http_until_a_signal_ends_it(numbers: Path, number: int) -> None:
    with start("metrics", "--listen", "127.0.0.1:0", numbers) as tool:
        url = url_of(tool)
        assert samples(scrape(url), "jlog_records") == {str(numbers): 100}
        with jlog.Writer(numbers) as writer:
            writer.append(b"one more")
            assert samples(scrape(url), "jlog_records") == {str(numbers): 101}
            assert samples(scrape(url), "jlog_writers") == {str(numbers): 1}
        tool.send_signal(number)
        assert tool.wait(HUNG_SECONDS) == 0
        assert (tool.stdout.read(), tool.stderr.read()) == (b"", b"")


def test_a_port_that_is_taken_is_told_in_one_line(numbers: Path) -> None:
    with start("metrics", "--listen", "127.0.0.1:0", numbers) as tool:
        address = url_of(tool).split("/")[2]
        done = run("metrics", "--listen", address, numbers)
        assert (done.code, done.err) == (1, f"jlogtool: {address}: Address already in use\n")
        tool.terminate()
        assert tool.wait(HUNG_SECONDS) == 0


def test_a_bad_address_and_no_journal_are_errors_of_usage(numbers: Path) -> None:
    assert run("metrics", "--listen", "here", numbers).code == 2
    assert run("metrics").code == 2

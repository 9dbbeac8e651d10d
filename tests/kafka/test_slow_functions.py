"""A transform whose function takes long ends in time all the same: these functions take for ever."""

from __future__ import annotations

import time

import pytest

import jlog
from kafka.processes import captured, position
from kafka.witness import numbered
from patience import wait_until

SLOW = {
    "one record": "    time.sleep(1_000_000)\n",
    "a function that catches every error": """
    while True:
        try:
            time.sleep(1_000_000)
        except Exception:
            pass
""",
}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend(numbered(2_000))
    return tmp_path


def write_function(directory, body):
    text = f"import pathlib\nimport time\n\ndef slow(record):\n    pathlib.Path('begun').touch()\n{body}    return record\n"
    (directory / "changes.py").write_text(text)


@pytest.mark.parametrize("body", SLOW.values(), ids=SLOW)
def test_sigterm_ends_a_transform_within_its_function(processes, directory, body):
    write_function(directory, body)
    running = processes("--transform", "changes:slow", directory / "journal", directory / "sink", command="transform")
    wait_until((directory / "begun").exists)
    assert running.end() == (0, "")
    assert captured(directory / "sink") == position(directory / "journal") == 0  # the transaction was not committed in part


def test_sigterm_ends_many_mirrors_within_a_function(processes, directory, broker, topic):
    """The process ends by itself, and is not killed: its transaction is aborted."""
    write_function(directory, SLOW["one record"])
    file = directory / "mirrors.toml"
    to = f'url = "kafka://{broker.address}"\ntopic = "{topic}"\ntransform = "changes:slow"\n'
    file.write_text(f'[[to-kafka]]\njournals = "{directory}/journal"\n{to}')
    running = processes("run", file, patient=True)
    wait_until((directory / "begun").exists)
    assert running.end() == (0, "")


def test_what_a_slow_function_has_made_is_committed_before_all_is_made(tmp_path):
    """The sixth record takes longer than a transaction stays open: the others are not waited for."""
    seen = []

    def slow(record):
        if record.sequence == 5:
            time.sleep(0.2)
        seen.append(jlog.Journal(tmp_path / "sink").next_sequence)
        return record

    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend([b"%d" % number for number in range(10)])
    jlog.Journal.create(tmp_path / "sink")
    assert jlog.transform(tmp_path / "source", tmp_path / "sink", slow, linger=0.01).records == 10
    assert (seen[5], seen[6]) == (0, 6)
    assert list(jlog.Reader(tmp_path / "sink").values()) == [b"%d" % number for number in range(10)]

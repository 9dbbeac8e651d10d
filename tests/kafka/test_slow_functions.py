"""A transform whose function takes long ends in time all the same: these functions take for ever."""

from __future__ import annotations

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

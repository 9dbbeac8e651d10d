"""Segments move to the archive while the journal is written, read, committed and cleaned by many."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jlog
from behaviour.journals import value_of, values
from patience import HUNG_SECONDS

TESTS = Path(__file__).parent.parent
RECORDS = {"file": 2000, "s3": 500}
PRELUDE = """
import sys
import jlog
from behaviour.journals import value_of
path, records = sys.argv[1], int(sys.argv[2])
"""
WRITE = """
with jlog.Writer(path) as writer:
    for number in range(records):
        writer.append(value_of(number))
"""
SUBSCRIBE = """
with jlog.Reader(path, "billing", create=False) as reader:
    for record in reader.follow(timeout=200):
        assert record.value == value_of(record.sequence), record
        if record.sequence % 20 == 19:
            reader.commit()
        if record.sequence == records - 1:
            break
"""
# Each reads all of it, wherever it is, and cleans now and then.
READ_AND_CLEAN = """
expected = 0
with jlog.Reader(path, archive=True) as reader:
    for record in reader.follow(timeout=200):
        assert (record.sequence, record.value) == (expected, value_of(expected)), (record, expected)
        expected += 1
        if expected % 100 == 0:
            jlog.Journal(path).clean()
        if expected == records:
            break
assert expected == records
"""


@pytest.fixture
def start():
    """Starts processes; none is left."""
    children = []

    def start(code, path, records):
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        command = [sys.executable, "-c", PRELUDE + code, str(path), str(records)]
        children.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("where", ["file", pytest.param("s3", marks=pytest.mark.xdist_group("s3"))])
def test_nothing_is_missed_or_seen_twice_while_two_clean(tmp_path, where, request, start):
    path, records = tmp_path / "j", RECORDS[where]
    url = (tmp_path / "a").as_uri() if where == "file" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    journal = jlog.Journal.create(path, precommit=4 << 10, segment_bytes=8 << 10, retention=jlog.Retention(archive=url))
    journal.add_subscriber("billing")
    children = [start(code, path, records) for code in (READ_AND_CLEAN, READ_AND_CLEAN, SUBSCRIBE, WRITE)]
    for child in children:
        _, told = child.communicate(timeout=HUNG_SECONDS)
        assert child.returncode == 0, told
    journal.clean()
    expected = [value_of(number) for number in range(records)]
    with jlog.Reader(path, archive=True) as reader:
        assert list(reader.values()) == expected
    assert values(url) == expected[: journal.first_sequence]
    assert journal.first_sequence > 0
    assert jlog.archive.Archive(url).verify() == []

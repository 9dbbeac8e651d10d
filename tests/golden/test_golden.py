"""Journals that a released version has written stay readable. `python tests/golden/make.py` writes this version's."""

import json
import shutil
from pathlib import Path

import pytest

import jlog
import oracle
from golden.make import described, text

GOLDEN = sorted(Path(__file__).parent.glob("format-*/*.json"))


@pytest.fixture(params=GOLDEN, ids=lambda path: f"{path.parent.name} {path.stem}")
def expected(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


@pytest.fixture
def path(request, expected, tmp_path):
    """A copy, as after a move to another machine."""
    original = request.node.callspec.params["expected"].with_suffix("")
    shutil.copytree(original, tmp_path / "j")
    return tmp_path / "j"


def values(expected):
    return [bytes.fromhex(value) if value is not None else None for _, _, _, value, _ in expected["records"]]


def test_there_are_golden_journals():
    assert {path.stem for path in GOLDEN} == {"closed", "killed"}


def test_jlog_reads_all_of_it_and_changes_nothing(path, expected):
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert described(path) == expected
    assert jlog.Journal(path).verify().ok
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_oracle_reads_the_same(path, expected):
    found = oracle.check_journal(path)
    assert (found.uuid.hex(), found.first_sequence) == (expected["uuid"], expected["first_sequence"])
    assert {key.hex(): value.hex() for key, value in found.state.items()} == expected["state"]
    assert {name: position.sequence for name, position in found.subscribers.items()} == expected["subscribers"]
    assert {name: position.sequence for name, position in found.checkpoints.items()} == expected["checkpoints"]
    assert [
        [
            record.sequence,
            record.timestamp_us,
            text(record.key),
            text(record.value),
            [[name, text(value)] for name, value in record.headers],
        ]
        for record in found.records
    ] == expected["records"]


def test_every_subscriber_goes_on_where_it_stood(path, expected):
    for name, sequence in expected["subscribers"].items():
        with jlog.Reader(path, name, create=False) as reader:
            assert list(reader.values()) == values(expected)[sequence - expected["first_sequence"] :]


def test_writing_goes_on_and_no_number_is_given_out_twice(path, expected):
    with jlog.Writer(path) as writer:
        assert writer.append(b"new") >= expected["next_sequence"]
        assert jlog.Journal(path).state() == {
            bytes.fromhex(key): bytes.fromhex(value) for key, value in expected["state"].items()
        }
    with jlog.Reader(path) as reader:
        assert list(reader.values()) == [*values(expected), b"new"]
    assert jlog.Journal(path).verify().ok

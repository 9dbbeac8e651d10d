"""`jlogtool verify` and `clean`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import do, run

if TYPE_CHECKING:
    from pathlib import Path


def test_verify_of_a_sound_journal_says_so(segments: Path) -> None:
    report = do("verify", segments, "--json").json
    assert (report["ok"], report["records"], report["segments"]) == (True, 40, 5)
    assert (report["damage"], report["skipped"]) == ([], [])
    assert report["blocks"] >= 40
    assert b"sound" in do("verify", segments).out


@pytest.mark.damage
def test_verify_tells_each_damaged_place_and_ends_with_3(segments: Path) -> None:
    segment = jlog.Journal(segments).segments()[1]
    with open(segment.path, "r+b") as file:
        file.seek(segment.size_bytes - 1)
        file.write(b"\xff")
    result = run("verify", segments, "--json")
    (damage,) = result.json["damage"]
    assert (result.code, result.json["ok"], result.json["records"]) == (3, False, 39)
    assert (damage["path"], damage["first_sequence"], damage["records_lost"]) == (segment.path, 19, 1)
    assert damage.keys() == {"path", "offset", "reason", "first_sequence", "records_lost"}
    assert run("verify", segments).code == 3


def test_clean_removes_what_every_subscriber_has_read(segments: Path) -> None:
    jlog.Journal(segments).add_subscriber("one", 25)
    dry = do("clean", segments, "--dry-run", "--json").json
    assert [(segment["first_sequence"], segment["records"]) for segment in dry] == [(0, 10), (10, 10)]
    assert len(jlog.Journal(segments)) == 40
    assert do("clean", segments, "--json").json == dry
    assert jlog.Journal(segments).first_sequence == 20
    assert do("clean", segments, "--json").json == []


def test_clean_for_people_names_the_files(segments: Path) -> None:
    jlog.Journal(segments).add_subscriber("one", 10)
    assert b"00000000000000000000.seg" in do("clean", segments, "--dry-run").out

"""`jlogtool verify`, `clean`, `repair` and `backup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import do, run
from crash.tampering import change

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
    change(segment.path, segment.size_bytes - 1, b"\xff")
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


# --- Repair ------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(segments: Path) -> Path:
    """Record 13 cannot be read any more."""
    block = [block for path, block in jlog.Journal(segments).blocks() if path.endswith("10.seg")][4]
    change(segments / "00000000000000000010.seg", block.offset + 72, b"\xff")
    return segments


@pytest.mark.damage
def test_repair_says_what_it_found_and_did_and_ends_with_0(damaged: Path) -> None:
    dry = run("repair", damaged, "--dry-run", "--json")
    assert (dry.code, dry.json["ok"]) == (3, False)
    done = do("repair", damaged, "--json").json
    assert done == {**dry.json, "ok": True}
    assert done["records"] == 39
    assert done["lost"] == done["skipped"] == [{"first_sequence": 13, "next_sequence": 14}]
    assert [(at["first_sequence"], at["records_lost"]) for at in done["damage"]] == [(13, 1)]
    assert {"path", "text"} == done["actions"][0].keys()
    verified = do("verify", damaged, "--json").json
    assert verified.items() <= {**done, "damage": []}.items()
    assert do("dump", damaged).lines == [b"%d" % number for number in range(40) if number != 13]


@pytest.mark.damage
def test_repair_for_people(damaged: Path) -> None:
    dry = run("repair", damaged, "-n").out
    assert b"what would be done" in dry
    assert b"lost: records 13 to 13" in dry
    assert b"what was done" in do("repair", damaged).out
    assert b"There is nothing to do" in do("repair", damaged).out


def test_repair_of_a_sound_journal_does_nothing(segments: Path) -> None:
    for options in ((), ("--dry-run",)):
        report = do("repair", segments, "--json", *options).json
        assert (report["ok"], report["actions"], report["damage"], report["records"]) == (True, [], [], 40)


def test_repair_makes_a_lost_journal_meta_anew(segments: Path) -> None:
    (segments / "journal.meta").unlink()
    result = run("info", segments)
    assert result.code == 1
    assert "jlogtool repair" in result.err
    assert do("repair", segments, "--json").json["damage"][0]["path"].endswith("journal.meta")
    assert do("info", segments, "--json").json["records"] == 40


def test_repair_under_a_writer_is_refused(segments: Path) -> None:
    with jlog.Writer(segments):
        result = run("repair", segments)
    assert result.code == 1
    assert "close its writers" in result.err


def test_repair_of_nothing_is_an_error(tmp_path: Path) -> None:
    assert run("repair", tmp_path).code == 1


# --- Backup ------------------------------------------------------------------------------------------------------


def test_backup_copies_what_is_there(segments: Path, tmp_path: Path) -> None:
    jlog.Journal(segments).add_subscriber("one", 25)
    with jlog.Writer(segments) as writer:
        writer.append(b"40")
        told = do("backup", segments, tmp_path / "copy", "--json").json
    assert told == {
        "path": str(tmp_path / "copy"),
        "first_sequence": 0,
        "next_sequence": 41,
        "records": 41,
        "size_bytes": jlog.Journal(tmp_path / "copy").size_bytes,
    }
    assert do("dump", tmp_path / "copy").lines == [b"%d" % number for number in range(41)]
    assert jlog.Journal(tmp_path / "copy").subscribers()["one"].sequence == 25
    assert b"41 records" in do("backup", segments, tmp_path / "another").out


def test_backup_overwrites_nothing(segments: Path, tmp_path: Path) -> None:
    result = run("backup", segments, segments)
    assert (result.code, result.out) == (1, b"")
    assert "another path" in result.err
    assert run("backup", tmp_path / "missing", tmp_path / "copy").code == 1
    assert not (tmp_path / "copy").exists()

"""Journals that the real libjlog has written are imported byte by byte, and damage that it finds is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

import jlog
from cli.command import do, run
from jlog.libjlog import export_journal
from libjlog import samples
from libjlog.conftest import contents, import_all, import_quietly, subscribers

# The messages, the subscribers' next messages, exit code, and the places that stderr names.
EXPECTED = {
    "a_plain": (range(1000), {"alpha": 0, "beta": 437}, 0, ()),
    "a2_plain_trimmed": (range(223, 1000), {"alpha": 300, "beta": 700}, 0, ()),
    "b_lz4": (range(1000), {"alpha": 0, "beta": 437}, 0, ()),
    "c_precommit": (range(300), {"alpha": 0, "beta": 0}, 0, ()),
    "c_precommit_lz4": (range(300), {"alpha": 0, "beta": 0}, 0, ()),
    "c3_precommit_header_only": (range(59), {"alpha": 0, "beta": 0}, 0, ("note: {}/pre_commit: offset 4009",)),
    "d1_trunc_current": (range(199), {"alpha": 0, "beta": 0}, 0, ("note: {}/00000003: offset 34996: ",)),
    "d1b_trunc_closed": ([*range(56), *range(57, 200)], {"alpha": 0, "beta": 0}, 3, ("{}/00000000: offset 64199: ",)),
    "d2_corrupt_closed_header": ([*range(77), *range(78, 200)], {"alpha": 0, "beta": 0}, 3, ("{}/00000001: offset 23023: ",)),
    "d3_corrupt_closed_payload": (range(200), {"alpha": 0, "beta": 0}, 0, ()),
    "d4_corrupt_current_header": ([*range(185), *range(186, 200)], {"alpha": 0, "beta": 0}, 3, ("{}/00000003: offset 14526",)),
    "e_empty": ([], {"alpha": 0, "beta": 0}, 0, ()),
}  # fmt: skip
UNNOTICED = {"d3_corrupt_closed_payload": 77}  # its payload was overwritten, and libjlog has no checksums


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_of_libjlog_is_imported_byte_by_byte_and_stays_as_it_is(name: str, tmp_path: Path, journal: Path) -> None:
    numbers, places, code, told = EXPECTED[name]
    source = samples.unpack(name, tmp_path)
    before = contents(source)
    result = run("import", source, journal)
    assert result.code == code
    assert len(result.err.splitlines()) == len(told)
    for line, place in zip(result.err.splitlines(), told, strict=True):
        assert line.startswith(f"jlogtool: {place.format(source)}")
    with jlog.Reader(journal) as reader:
        found = [(record.value, record.timestamp_us, record.key, record.headers) for record in reader]
    for (value, time_us, key, headers), number in zip(found, numbers, strict=True):
        assert (time_us, key, headers) == (samples.time_us(number), None, [])
        assert (value == samples.value(number)) is (UNNOTICED.get(name) != number)
    first = min(numbers, default=0)
    assert {subscriber: at + first for subscriber, at in subscribers(journal).items()} == places
    assert contents(source) == before


@pytest.mark.parametrize("name", EXPECTED)
def test_an_export_of_a_sample_is_imported_again_as_it_was(name: str, tmp_path: Path, journal: Path) -> None:
    import_all(samples.unpack(name, tmp_path), journal)
    export_journal(journal, tmp_path / "exported", compression="lz4" if "lz4" in name else "none", unit_limit=64 << 10)
    import_quietly(tmp_path / "exported", tmp_path / "again")
    with jlog.Reader(journal) as one, jlog.Reader(tmp_path / "again") as other:
        assert [(r.value, r.timestamp_us) for r in one] == [(r.value, r.timestamp_us) for r in other]
    assert subscribers(tmp_path / "again") == subscribers(journal)


def test_an_export_of_a_plain_sample_has_the_bytes_of_the_original(tmp_path: Path, journal: Path) -> None:
    source = samples.unpack("a_plain", tmp_path)
    do("import", source, journal)
    do("export", journal, tmp_path / "exported", "--unit-limit", "128K")
    exported = contents(tmp_path / "exported")
    assert {name: content for name, (content, _) in exported.items()} == {
        name: content for name, (content, _) in contents(source).items() if not name.endswith(".idx")
    }

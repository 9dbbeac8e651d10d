"""An export is what the C library reads, and its source stays as it is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import jlog
from cli.command import do, run
from jlog.libjlog import export_journal
from libjlog import clib
from libjlog.clib import LZ4, PLAIN
from libjlog.conftest import contents, import_quietly, subscribers

TIME_US = 1_700_000_000_000_000


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "exported"


@pytest.fixture
def numbers(journal: Path) -> Path:
    with jlog.Writer(journal) as writer:
        writer.extend([b"%d" % n * (n % 30) for n in range(500)], timestamps_us=[TIME_US + n for n in range(500)])
    return journal


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("compression", "magic"), [("none", PLAIN), ("lz4", LZ4)])
def test_messages_times_and_metastore_are_as_the_format_has_them(
    compression: str, magic: int, order: str, numbers: Path, target: Path
) -> None:
    export_journal(numbers, target, compression=compression, unit_limit=3000, big_endian=order == ">")
    newest, unit_limit, safety, found = struct.unpack(f"{order}4I", (target / "metastore").read_bytes())
    assert (unit_limit, safety, found) == (3000, 1, magic)
    assert newest == len(list(target.glob("0000*"))) - 1 > 1
    assert (target / "pre_commit").read_bytes() == bytes(4)
    assert list(clib.read(target, order)) == [(1_700_000_000, n, b"%d" % n * (n % 30)) for n in range(500)]
    for segment in sorted(target.glob("0000*"))[:-1]:
        assert segment.stat().st_size >= 3000


def test_every_position_becomes_the_marker_of_the_last_message_before_it(numbers: Path, target: Path) -> None:
    journal = jlog.Journal(numbers)
    for sequence in sorted({*range(0, 501, 9), *range(200, 230), 500}):
        journal.add_subscriber(f"at-{sequence}", sequence)
    export_journal(numbers, target, unit_limit=3000)
    starts = [0]
    for segment in sorted(target.glob("0000*")):
        starts.append(starts[-1] + len(clib.offsets(segment)) - 1)
    for name, (segment, marker) in clib.checkpoints(target).items():
        assert starts[segment] + marker == int(name[3:])
        assert marker <= starts[segment + 1] - starts[segment]
    import_quietly(target, numbers.with_name("again"))
    assert subscribers(numbers.with_name("again")) == subscribers(numbers)


def test_what_the_format_has_no_place_for_is_told(journal: Path, target: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"plain", timestamp_us=TIME_US)
        writer.append(b"keyed", key=b"k", timestamp_us=TIME_US)
        writer.append(b"headed", headers=[("h", b"v")], timestamp_us=TIME_US)
        writer.append(None, timestamp_us=TIME_US)
        writer.append(b"early", timestamp_us=-1)
        writer.append(b"late", timestamp_us=(1 << 32) * 1_000_000)
    jlog.Journal(journal).set_checkpoint("mark", 2)
    result = run("export", "--json", journal, target)
    assert result.code == 0
    assert result.json["times"] == 2
    told = result.err.splitlines()
    assert [line.split(": warning: ")[1].split(":")[0] for line in told] == [
        "the key of 1 record is left out",
        "the headers of 1 record are left out",
        "the null value of 1 record is an empty message",
        "the time of 2 records does not fit into libjlog's 32 bits of seconds, and is the nearest one that does",
        "checkpoints are left out, since libjlog has none",
    ]
    assert list(clib.read(target))[3:] == [
        (1_700_000_000, 0, b""),
        (0, 0, b"early"),
        ((1 << 32) - 1, 999_999, b"late"),
    ]


def test_the_journal_is_not_changed(numbers: Path, target: Path) -> None:
    jlog.Journal(numbers).add_subscriber("one", 7)
    before = {folder: contents(folder) for folder in (numbers / "subscribers",)}
    files = {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in numbers.iterdir() if file.is_file()}
    do("export", numbers, target)
    assert {folder: contents(folder) for folder in before} == before
    assert files == {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in numbers.iterdir() if file.is_file()}


def test_only_a_new_or_empty_directory_is_written_to(numbers: Path, target: Path) -> None:
    target.mkdir()
    do("export", numbers, target)
    before = contents(target)
    assert run("export", numbers, target).code == 1
    assert contents(target) == before
    with pytest.raises(jlog.JournalError, match="lies in the journal"):
        export_journal(numbers, numbers / "inside")
    assert run("export", numbers.with_name("missing"), target.with_name("other")).code == 1
    assert not target.with_name("other").exists()


def test_an_empty_journal_is_an_empty_journal_of_libjlog(journal: Path, target: Path) -> None:
    jlog.Journal.create(journal).add_subscriber("one", "begin")
    export_journal(journal, target)
    assert list(clib.read(target)) == []
    assert clib.checkpoints(target) == {b"one": (0, 0)}


def test_a_trimmed_journal_begins_at_its_first_record(journal: Path, target: Path) -> None:
    with jlog.Writer(journal, segment_bytes=4096) as writer:
        for number in range(300):
            writer.append(b"%d" % number * 30)
    with jlog.Reader(journal, "one") as reader:
        reader.seek(250)
        reader.commit()
    assert jlog.Journal(journal).first_sequence > 0
    export_journal(journal, target)
    first = jlog.Journal(journal).first_sequence
    assert [value for _, _, value in clib.read(target)] == [b"%d" % number * 30 for number in range(first, 300)]
    assert clib.checkpoints(target) == {b"one": (0, 250 - first)}


@pytest.mark.damage
def test_a_damaged_journal_is_exported_around_the_damage_with_exit_3(journal: Path, target: Path) -> None:
    with jlog.Writer(journal, precommit=0) as writer:
        for number in range(20):
            writer.append(b"value %d" % number)
    segment = next(journal.glob("*.seg"))
    content = segment.read_bytes()
    at = content.index(b"value 7")
    segment.write_bytes(content[:at] + b"X" + content[at + 1 :])
    result = run("export", journal, target)
    assert (result.code, len(result.err.splitlines())) == (3, 1)
    assert [value for _, _, value in clib.read(target)] == [b"value %d" % number for number in range(20) if number != 7]

"""Every form that a journal of libjlog may have is imported."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

import jlog
from cli.command import do, run, run_on_terminal
from elsewhere import run_python
from jlog.libjlog import Import
from libjlog.clib import BEGIN_SECONDS, LZ4, OLD, PLAIN, UNCOMPRESSED, CWriter, numbered
from libjlog.conftest import contents, import_all, import_quietly, subscribers, values

FORMS = [
    (magic, order) for magic in (PLAIN, LZ4, UNCOMPRESSED, OLD) for order in "<>"
]  # fmt: skip


def fill(source: Path, count: int, *, first: int = 0, **options: object) -> CWriter:
    writer = CWriter(source, **options)  # type: ignore[arg-type]
    for number in range(first, first + count):
        writer.write(numbered(number), BEGIN_SECONDS + number, number % 1_000_000)
    return writer


@pytest.mark.parametrize(("magic", "order"), FORMS)
@pytest.mark.parametrize("precommit", [0, 3000])
def test_every_header_and_byte_order_is_imported_with_the_buffer(
    magic: int, order: str, precommit: int, source: Path, journal: Path
) -> None:
    writer = fill(source, 500, magic=magic, order=order, precommit=precommit, unit_limit=4000)
    writer.subscribe(b"reader", 1, 5)
    assert writer.segment > 1
    import_quietly(source, journal)
    assert values(journal) == [numbered(number) for number in range(500)]
    with jlog.Reader(journal) as reader:
        assert [record.timestamp_us for record in reader] == [(BEGIN_SECONDS + n) * 1_000_000 + n for n in range(500)]
    assert subscribers(journal)["reader"] > 5


@pytest.mark.parametrize("magic", [PLAIN, LZ4])
@pytest.mark.parametrize("messages", [1, 2, 30])
def test_messages_that_were_flushed_and_are_still_in_the_buffer_come_once(
    magic: int, messages: int, source: Path, journal: Path
) -> None:
    writer = fill(source, 100, magic=magic, precommit=50_000)
    writer.flush()
    for number in range(100, 100 + messages):
        writer.write(numbered(number), BEGIN_SECONDS + number)
    writer.flush(reset=False)
    import_quietly(source, journal)
    assert values(journal) == [numbered(number) for number in range(100 + messages)]
    writer.used = 0
    writer.write(b"later", BEGIN_SECONDS + 1000)
    import_quietly(source, journal)
    assert values(journal)[-2:] == [numbered(99 + messages), b"later"]


@pytest.mark.parametrize("flushed", [1, 7, 15, 16, 17, 40, 63, 64, 65, 700, 2000])
def test_a_flush_that_was_killed_half_way_is_continued_in_the_buffer(flushed: int, source: Path, journal: Path) -> None:
    writer = fill(source, 50, precommit=50_000)
    writer.flush()
    for number in range(50, 90):
        writer.write(numbered(number), BEGIN_SECONDS + number)
    with open(source / "00000000", "ab") as file:
        file.write((source / "pre_commit").read_bytes()[4 : 4 + flushed])
    import_quietly(source, journal)
    assert values(journal) == [numbered(number) for number in range(90)]


def test_a_flush_into_the_next_segment_is_found_there(source: Path, journal: Path) -> None:
    writer = fill(source, 60, precommit=4000, unit_limit=5000)
    assert writer.used
    import_quietly(source, journal)
    held = writer.used
    writer.roll()
    writer.subscribe(b"late", 1, 1)
    import_quietly(source, journal)
    writer.flush()
    assert (source / "00000001").stat().st_size >= held or writer.segment > 1
    writer.write(b"last", BEGIN_SECONDS + 60)
    import_quietly(source, journal)
    assert values(journal) == [*map(numbered, range(60)), b"last"]


def test_a_torn_last_message_is_a_note_and_comes_when_it_is_complete(source: Path, journal: Path) -> None:
    writer = fill(source, 10)
    torn = writer.message(b"complete at last", BEGIN_SECONDS + 10)
    for cut in (3, 16, 20):
        with open(source / "00000000", "ab") as file:
            file.write(torn[:cut])
        told = import_all(source, journal)
        assert (len(told.damage), len(told.notes)) == (0, 1)
        os.truncate(source / "00000000", (source / "00000000").stat().st_size - cut)
    with open(source / "00000000", "ab") as file:
        file.write(torn)
    import_quietly(source, journal)
    assert values(journal) == [*map(numbered, range(10)), b"complete at last"]


def test_messages_that_all_subscribers_have_read_are_imported_too(source: Path, journal: Path) -> None:
    writer = fill(source, 30)
    writer.subscribe(b"one", 0, 30)
    import_quietly(source, journal)
    assert len(values(journal)) == 30
    assert subscribers(journal) == {"one": 30}


def test_a_segment_that_is_missing_in_between_is_a_note(source: Path, journal: Path) -> None:
    fill(source, 100, unit_limit=2000).subscribe(b"one", 2, 1)
    (source / "00000001").unlink()
    told = import_all(source, journal)
    assert told.damage == []
    assert told.warnings == [f"{source}: there is no segment from 00000001 to 00000001"]


NAMES = {
    b"billing": "billing",
    "größe".encode(): "größe",
    b"a/b": "a%2Fb",
    b"a%2Fb": "a%252Fb",
    b"100%": "100%",
    b"begin": "%62egin",
    b"42": "%342",
    b"2026-01-01": "%32026-01-01",
    b".hidden": "%2Ehidden",
    b"\xff\xfe": "%FF%FE",
    b"tab\there": "tab%09here",
}


def test_a_name_that_is_not_allowed_is_percent_encoded_with_a_warning(source: Path, journal: Path, tmp_path: Path) -> None:
    writer = fill(source, 5)
    for name in NAMES:
        writer.subscribe(name, 0, 2)
    writer.subscribe(b"/" * 120, 0, 2)
    result = run("import", source, journal)
    assert result.code == 0
    encoded = [name for name, here in NAMES.items() if here.encode() != name]
    assert len(result.err.splitlines()) == result.err.count("warning: subscriber") == len(encoded) + 1
    found = subscribers(journal)
    assert set(NAMES.values()) < set(found)
    assert set(found.values()) == {2}
    result = run("export", journal, tmp_path / "exported")
    assert (result.code, len(result.err.splitlines()), "too long" in result.err) == (0, 1, True)
    assert {bytes.fromhex(file.name[3:]) for file in (tmp_path / "exported").glob("cp.*")} == set(NAMES)


def test_a_subscriber_without_a_position_begins_at_the_beginning_and_no_other_file_is_one(source: Path, journal: Path) -> None:
    fill(source, 5)
    (source / "cp.6f6e65").touch()
    (source / "cp.xyz").write_bytes(bytes(8))
    (source / "cp.74776f").mkdir()
    told = import_all(source, journal)
    assert (len(told.damage), len(told.warnings)) == (0, 3)
    assert subscribers(journal) == {"one": 0}


@pytest.mark.parametrize("marker", [5, 6, 1 << 31])
def test_a_marker_after_the_end_stands_at_the_end(marker: int, source: Path, journal: Path) -> None:
    fill(source, 5).subscribe(b"one", 0, marker)
    import_quietly(source, journal)
    assert subscribers(journal) == {"one": 5}


def test_a_metastore_with_unknown_bytes_is_damage_and_the_messages_are_imported(source: Path, journal: Path) -> None:
    fill(source, 5)
    (source / "metastore").write_bytes(b"\xff" * 16)
    result = run("import", source, journal)
    assert (result.code, "metastore: offset 0" in result.err) == (3, True)
    assert len(values(journal)) == 5


def test_a_missing_metastore_costs_no_message(source: Path, journal: Path) -> None:
    fill(source, 5)
    (source / "metastore").unlink()
    imported = import_all(source, journal)
    assert [text for text in imported.damage if "metastore: offset 0: it is missing" in text]
    assert len(values(journal)) == 5


def test_an_empty_message_of_the_null_compressor_is_a_message(source: Path, journal: Path) -> None:
    """It is stored as 16 KiB of zeros. Other bytes there are damage."""
    source.mkdir()
    (source / "metastore").write_bytes(struct.pack("<4I", 0, 4 << 20, 1, UNCOMPRESSED))
    empty = struct.pack("<5I", UNCOMPRESSED, BEGIN_SECONDS, 0, 0, 16384)
    plain = struct.pack("<5I", UNCOMPRESSED, BEGIN_SECONDS, 0, 5, 5) + b"after"
    (source / "00000000").write_bytes(empty + bytes(16384) + plain)
    import_quietly(source, journal)
    assert values(journal) == [b"", b"after"]
    (source / "00000000").write_bytes(empty + b"x" + bytes(16383) + plain)
    other = journal.with_name("other")
    assert len(import_all(source, other).damage) == 1
    assert values(other) == [b"after"]


# --- Refused --------------------------------------------------------------------------------------------------------


def test_what_is_not_a_journal_of_libjlog_is_refused_and_nothing_is_left(source: Path, journal: Path, tmp_path: Path) -> None:
    result = run("import", source, journal)
    assert (result.code, "does not exist" in result.err) == (1, True)
    source.mkdir()
    with pytest.raises(jlog.UnsupportedFormat, match="neither a file metastore nor a segment"):
        import_all(source, journal)
    (source / "metastore").write_bytes(b"short")
    with pytest.raises(jlog.UnsupportedFormat, match="5 bytes"):
        import_all(source, journal)
    (source / "metastore").write_bytes(struct.pack("<4I", 0, 1 << 20, 1, 0x15106A07))
    with pytest.raises(jlog.UnsupportedFormat, match="provider 7"):
        import_all(source, journal)
    (source / "metastore").write_bytes(struct.pack("<4I", 0, 1 << 20, 1, PLAIN))
    os.mkfifo(source / "00000000")
    with pytest.raises(jlog.CorruptJournal, match="not a regular file"):
        import_all(source, journal)
    (source / "00000000").unlink()
    (source / "00000000").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(jlog.JournalError, match="symbolic link"):
        import_all(source, journal)
    assert not journal.exists()


def test_a_journal_inside_of_the_source_is_refused(source: Path) -> None:
    fill(source, 5)
    before = contents(source)
    for target in (source, source / "inside"):
        with pytest.raises(jlog.JournalError, match="lies in the source"):
            import_all(source, target)
    assert contents(source) == before


@pytest.mark.parametrize("size", [0, 4, 100])
def test_an_empty_journal_with_nothing_but_a_metastore_is_imported(size: int, source: Path, journal: Path) -> None:
    CWriter(source, precommit=size)
    (source / "00000000").unlink()
    import_quietly(source, journal)
    assert values(journal) == []


def test_options_are_those_of_the_journal(source: Path, journal: Path) -> None:
    fill(source, 50)
    do("import", source, journal, "--compression", "lz4", "--segment-bytes", "8K", "--sync", "append")
    options = jlog.Journal(journal).options
    assert (options.compression, options.segment_bytes, options.sync) == ("lz4", 8192, "append")


def test_a_large_message_and_an_empty_one_are_imported(source: Path, journal: Path) -> None:
    writer = CWriter(source, magic=LZ4)
    large = [bytes(9 << 20), b"", random.Random(1).randbytes(5 << 20), b""]
    for number, value in enumerate(large):
        writer.write(value, BEGIN_SECONDS + number)
    import_quietly(source, journal)
    assert values(journal) == large


def test_a_terminal_sees_progress_only_if_it_takes_long_and_nothing_else(source: Path, journal: Path) -> None:
    fill(source, 50)
    assert run_on_terminal("import", source, journal) == (0, b"%s: 50 records and 0 subscribers imported\r\n" % bytes(journal))


def test_more_segments_than_a_process_may_have_open_files_are_imported(source: Path, journal: Path) -> None:
    fill(source, 400, unit_limit=10)
    assert len(list(source.iterdir())) > 400
    run_python(f"""
        import resource
        from jlog.libjlog import Import
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        assert Import({str(source)!r}, {str(journal)!r}).run().records == 400
    """)
    assert len(values(journal)) == 400


def test_json_tells_what_was_done(source: Path, journal: Path) -> None:
    fill(source, 7).subscribe(b"one")
    assert do("import", "--json", source, journal).json == {"records": 7, "damage": 0, "subscribers": 1}


@pytest.mark.parametrize(("messages", "other"), [(2, 0), (3, 0), (20, 0), (20, 1)])
def test_a_message_that_looks_like_the_last_flushed_one_is_another_one(
    messages: int, other: int, source: Path, journal: Path
) -> None:
    """A writer takes the time before it flushes, so that the last message in the segment and the first in the buffer may have
    the same."""
    writer = CWriter(source, precommit=1000)
    for _ in range(messages):
        writer.write(b"same", BEGIN_SECONDS)
    writer.flush()
    writer.write(b"same", BEGIN_SECONDS)
    if other:
        writer.write(b"other", BEGIN_SECONDS)
    import_quietly(source, journal)
    assert values(journal) == [b"same"] * (messages + 1) + [b"other"] * other


def test_retention_keeps_what_a_subscriber_has_not_read_while_it_is_imported(source: Path, journal: Path) -> None:
    fill(source, 500, unit_limit=2000).subscribe(b"one", 0, 3)
    keeping = jlog.Retention(max_bytes=8192)
    Import(source, journal, segment_bytes=4096, retention=keeping).run()
    with jlog.Reader(journal, "one", create=False) as reader:
        assert list(reader.values()) == [numbered(number) for number in range(3, 500)]


def test_a_subscriber_that_was_committed_here_is_never_moved_again(source: Path, journal: Path) -> None:
    """Also if it stands where the source's stood."""
    writer = fill(source, 20)
    writer.subscribe(b"one", 0, 5)
    import_quietly(source, journal)
    with jlog.Reader(journal, "one", create=False) as reader:
        reader.read(5)
        reader.commit()
    for marker in (10, 15):
        writer.subscribe(b"one", 0, marker)
        import_quietly(source, journal)
    assert subscribers(journal) == {"one": 10}


def test_a_new_subscriber_begins_at_the_first_record_that_retention_has_left(source: Path, journal: Path) -> None:
    writer = fill(source, 300, unit_limit=2000)
    writer.subscribe(b"one", writer.segment, 1)
    Import(source, journal, segment_bytes=4096, retention=jlog.Retention(max_bytes=4096)).run()
    jlog.Journal(journal).clean()
    first = jlog.Journal(journal).first_sequence
    assert first > 0
    writer.subscribe(b"two", 0, 0)
    told: list[str] = []
    Import(source, journal, on_warning=told.append).run()
    assert subscribers(journal)["two"] == first
    assert "retention has removed them here" in told[0]

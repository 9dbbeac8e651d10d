"""An import goes on where the one before stopped, however that stopped, and takes no other source."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

import exhaustive
import jlog
from cli.command import start
from jlog.libjlog import Import, importing, position, stream
from libjlog.clib import BEGIN_SECONDS, LZ4, PLAIN, CWriter, numbered
from libjlog.conftest import import_all, import_quietly, subscribers, values
from patience import HUNG_SECONDS


def write(writer: CWriter, first: int, end: int) -> None:
    for number in range(first, end):
        writer.write(numbered(number), BEGIN_SECONDS + number)


@pytest.mark.parametrize("magic", [PLAIN, LZ4])
@pytest.mark.parametrize("precommit", [0, 2000])
def test_each_import_brings_what_is_new_and_nothing_twice(magic: int, precommit: int, source: Path, journal: Path) -> None:
    writer = CWriter(source, magic=magic, precommit=precommit, unit_limit=4000)
    dice, end = random.Random(3), 0
    for _ in range(40):
        more = end + dice.choice((0, 1, 2, 17, 60))
        write(writer, end, more)
        if dice.random() < 0.2:
            writer.flush()
        if dice.random() < 0.1:
            writer.roll()
        found = import_quietly(source, journal)
        assert found.records == more - end
        end = more
    assert values(journal) == [numbered(number) for number in range(end)]


def test_subscribers_go_on_until_somebody_moves_them_here(source: Path, journal: Path) -> None:
    writer = CWriter(source, unit_limit=2000)
    write(writer, 0, 100)
    writer.subscribe(b"here", 0, 3)
    writer.subscribe(b"there", 0, 3)
    import_quietly(source, journal)
    assert subscribers(journal) == {"here": 3, "there": 3}
    with jlog.Reader(journal, "here") as reader:
        reader.seek(50)
        reader.commit()
    writer.subscribe(b"here", 1, 2)
    writer.subscribe(b"there", 1, 2)
    writer.subscribe(b"new", writer.segment, 0)
    import_quietly(source, journal)
    found = subscribers(journal)
    assert found["here"] == 50
    first = found["there"] - 2
    assert 3 < first < 50
    assert found["new"] > first
    jlog.Journal(journal).remove_subscriber("there")
    import_quietly(source, journal)
    assert set(subscribers(journal)) == {"here", "new"}


def test_a_subscriber_that_is_here_already_stays_with_a_note(source: Path, journal: Path) -> None:
    writer = CWriter(source)
    write(writer, 0, 10)
    writer.subscribe(b"one", 0, 5)
    with jlog.Writer(journal) as own:
        own.append(b"own")
    jlog.Journal(journal).add_subscriber("one", "begin")
    told = import_all(source, journal)
    assert subscribers(journal) == {"one": 0}
    assert told.warnings == ["subscriber 'one' is here already, and stays at 0: in the source it is at 6"]


def test_a_journal_with_many_segments_keeps_its_position_small(
    monkeypatch: pytest.MonkeyPatch, source: Path, journal: Path
) -> None:
    monkeypatch.setattr(position, "SEGMENTS_MAX", 16)
    writer = CWriter(source, unit_limit=100)
    write(writer, 0, 200)
    writer.subscribe(b"exact", 50, 1)
    import_quietly(source, journal)
    exact = subscribers(journal)["exact"]
    stored = position.decode(jlog.Journal(journal).state()[position.STATE_KEY])
    assert len(stored.segments) <= 17
    assert 50 in stored.segments
    assert stored.segments[50][0] + 1 == exact
    writer.subscribe(b"later", 61, 1)
    import_quietly(source, journal)
    assert exact < subscribers(journal)["later"] <= exact + 30


def test_a_segment_that_a_list_of_the_directory_misses_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, source: Path, journal: Path
) -> None:
    """A file that is created while a directory is listed may be missing, although a later one is there."""
    writer = CWriter(source, unit_limit=1000)
    write(writer, 0, 5)
    running = Import(source, journal, follow=True)
    running._catch_up(is_last=False)
    write(writer, 5, 60)
    listed, missed = os.listdir, [None, "00000001"]  # the first list is of the subscribers

    def list_without(path: str) -> list[str]:
        left_out = missed.pop(0) if missed else None
        return [name for name in listed(path) if name != left_out]

    monkeypatch.setattr(os, "listdir", list_without)
    running.stop()
    running.run()
    assert values(journal) == [numbered(number) for number in range(60)]


# --- Another source -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 10])
def test_another_source_is_refused_and_changes_nothing(count: int, source: Path, journal: Path, tmp_path: Path) -> None:
    write(CWriter(source), 0, count)
    import_quietly(source, journal)
    other = tmp_path / "other"
    write(CWriter(other), 500, 600)
    with pytest.raises(jlog.JournalError, match="is not the journal that was imported into"):
        import_all(other, journal)
    assert len(values(journal)) == count


def test_other_messages_at_the_same_place_are_refused(source: Path, journal: Path) -> None:
    write(CWriter(source), 0, 10)
    import_quietly(source, journal)
    for magic, first, count in ((PLAIN, 100, 50), (PLAIN, 0, 9), (LZ4, 0, 20)):
        shutil.rmtree(source)
        write(CWriter(source, magic=magic), first, first + count)
        with pytest.raises(jlog.JournalError, match="is not the journal that was imported into"):
            import_all(source, journal)
    assert len(values(journal)) == 10


def test_a_source_that_was_moved_goes_on_and_a_copy_needs_to_be_told(source: Path, journal: Path, tmp_path: Path) -> None:
    write(CWriter(source), 0, 10)
    import_quietly(source, journal)
    moved, copy = tmp_path / "moved", tmp_path / "copy"
    source.rename(moved)
    write(CWriter(moved), 10, 20)
    import_quietly(moved, journal)
    shutil.copytree(moved, copy)
    shutil.rmtree(moved)
    write(CWriter(copy), 20, 30)
    with pytest.raises(jlog.JournalError, match="--moved"):
        import_all(copy, journal)
    import_quietly(copy, journal, moved=True)
    import_quietly(copy, journal)
    assert values(journal) == [numbered(number) for number in range(30)]


def test_segments_that_libjlog_has_removed_unread_are_told(source: Path, journal: Path) -> None:
    writer = CWriter(source, unit_limit=1000)
    write(writer, 0, 5)
    import_quietly(source, journal)
    write(writer, 5, 100)
    (source / "00000000").unlink()
    told = import_all(source, journal)
    assert len(told.damage) == 1
    assert "segment 00000000 was removed before" in told.damage[0]
    assert values(journal)[-1] == numbered(99)


def test_segments_that_libjlog_removes_meanwhile_are_read_to_their_end(source: Path, journal: Path) -> None:
    writer = CWriter(source, unit_limit=1000)
    write(writer, 0, 5)
    running = Import(source, journal, follow=True)
    running._catch_up(is_last=False)
    write(writer, 5, 8)
    (source / "00000000").unlink()
    writer.roll()
    writer.flush()
    running.stop()
    running.run()
    assert values(journal) == [numbered(number) for number in range(8)]


# --- Killed ---------------------------------------------------------------------------------------------------------


def test_an_import_that_ends_after_any_append_is_continued(
    monkeypatch: pytest.MonkeyPatch, source: Path, journal: Path
) -> None:
    """Every append carries the position: whatever a killed import has appended, the next one goes on after it."""

    class Ended(Exception):
        pass

    monkeypatch.setattr(stream, "BODY_BYTES", 500)
    writer = CWriter(source, unit_limit=3000, precommit=2000)
    write(writer, 0, 120)
    writer.subscribe(b"one", 1, 3)
    ends, appends = 0, importing.Import._store
    while True:
        running = Import(source, journal)
        left = [ends % 3 + 1]

        def store(self: Import, *arguments: object, left: list[int] = left) -> None:
            if not left[0]:
                raise Ended
            left[0] -= 1
            appends(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(importing.Import, "_store", store)
        try:
            running.run()
            break
        except Ended:
            ends += 1
    assert ends > 10
    assert values(journal) == [numbered(number) for number in range(120)]
    assert subscribers(journal)["one"] > 3


@pytest.mark.parametrize("seed", range(exhaustive.count(1, 8)))
def test_an_import_that_is_killed_anywhere_is_continued(seed: int, source: Path, journal: Path) -> None:
    writer = CWriter(source, unit_limit=100_000, precommit=30_000)
    write(writer, 0, 20_000)
    writer.subscribe(b"one", 1, 3)
    dice = random.Random(seed)
    for _ in range(exhaustive.count(3, 12)):
        process = start("import", source, journal)
        while process.poll() is None and not journal.exists():
            os.sched_yield()
        if dice.random() < 0.7:
            for _ in range(dice.randrange(2000)):
                os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=HUNG_SECONDS)
    import_quietly(source, journal)
    assert values(journal) == [numbered(number) for number in range(20_000)]
    assert subscribers(journal)["one"] > 3

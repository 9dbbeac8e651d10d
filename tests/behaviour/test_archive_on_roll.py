"""Segments are archived soon after they were sealed: by archive(), by a thread of the process that rolls, and by a command."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import jlog
from behaviour.journals import SMALL, fill, read_away, value_of, values
from cli.command import do, run, start
from elsewhere import python
from jlog.archive.store import ArchiveFolder
from patience import HUNG_SECONDS, wait_until

ON_S3 = pytest.param("s3", marks=pytest.mark.xdist_group("s3"))


@pytest.fixture(params=["file", ON_S3])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty archive."""
    if request.param == "file":
        return (tmp_path / "archive").as_uri()
    return f"{request.getfixturevalue('s3')}/{secrets.token_hex(8)}"


@pytest.fixture
def files(tmp_path: Path) -> str:
    return (tmp_path / "archive").as_uri()


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the segments that this process copies."""
    found: list[str] = []
    put = ArchiveFolder.put

    def noted(folder: ArchiveFolder, path: str, name: str, *more: object) -> None:
        found.append(name)
        put(folder, path, name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveFolder, "put", noted)
    return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """This process copies no segment before the event is set."""
    go_on, put = threading.Event(), ArchiveFolder.put

    def wait(*arguments: object) -> None:
        assert go_on.wait(HUNG_SECONDS)
        put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveFolder, "put", wait)
    return go_on


def archived(url: str) -> list[bytes | None]:
    try:
        return values(url)
    except jlog.JournalNotFound:
        return []


def expected(records: int) -> list[bytes]:
    return [value_of(number) for number in range(records)]


def fill_segments(writer: jlog.Writer, segments: int) -> None:
    for _ in range(segments):
        fill(writer, 10)
        writer.roll()


def _append_for_ever(writer: jlog.Writer) -> None:
    for number in itertools.count():
        writer.append(value_of(number))


def _is_appended(writer: jlog.Writer) -> bool:
    """Tries to append a record."""
    try:
        writer.append(b"there is room again")
    except jlog.JournalFull:
        return False
    return True


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "jlog-archive"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not threads())


# --- archive() --------------------------------------------------------------------------------------------------------


def test_all_sealed_segments_are_copied_and_none_is_removed(path: Path, url: str) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url)) as writer:
        fill_segments(writer, 3)
        fill(writer, 5)
        journal = jlog.Journal(path)
        assert [segment.first_sequence for segment in journal.archive()] == [0, 10, 20]
        assert values(url) == expected(30)
        assert journal.archive() == []
        fill(writer, 5)
        writer.roll()
        assert [segment.first_sequence for segment in journal.archive()] == [30]
    assert values(url) == expected(40)
    assert journal.first_sequence == 0


def test_clean_copies_no_archived_segment_again(path: Path, url: str, uploads: list[str]) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url)) as writer:
        fill_segments(writer, 3)
        jlog.Journal(path).archive()
        assert len(uploads) == 3
        read_away(path, "billing")
        assert len(jlog.Journal(path).clean()) == 3
    assert len(uploads) == 3
    assert values(url) == expected(30)


def test_what_is_archived_is_durable_in_the_journal(path: Path, files: str) -> None:
    """Else a power loss would give the numbers of archived records to others."""
    with jlog.Writer(path, **SMALL, sync="none", retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 2)
        jlog.Journal(path).archive()
        with jlog.Reader(path, durable_only=True) as reader:
            assert len(list(reader)) >= 20


def test_a_copy_that_nobody_has_opened_archives_nothing(path: Path, files: str, tmp_path: Path) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 1)
        jlog.Journal(path).archive()
        fill_segments(writer, 1)
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(jlog.JournalError, match="another copy of this journal"):
        jlog.Journal(tmp_path / "copy").archive()
    assert values(files) == expected(10)


def test_a_journal_without_an_archive_says_how_to_name_one(path: Path) -> None:
    jlog.Journal.create(path)
    with pytest.raises(jlog.JournalError, match="jlogtool options --archive URL"):
        jlog.Journal(path).archive()


def test_threads_and_processes_archive_at_once(path: Path, files: str) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 20)
        code = f"import jlog; jlog.Journal({str(path)!r}).archive()"
        others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
        read_away(path, "billing")
        jlog.Journal(path).clean()
        assert [other.wait(HUNG_SECONDS) for other in others] == [0, 0]
    assert values(files) == expected(200)


def test_what_killed_uploads_have_left_is_removed(path: Path, files: str) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 3)
        jlog.Journal(path).archive()
        fill_segments(writer, 3)
    folder = next(Path(files.removeprefix("file://")).iterdir())
    newest = jlog.Journal(path).segments()[-2].first_sequence
    for ending in ("seg", "idx", "json"):
        (folder / f".{newest:020d}.{ending}.0123456789abcdef.part").write_bytes(b"half")
    jlog.Journal(path).archive()
    assert not list(folder.glob("*.part"))


def test_what_a_killed_call_has_begun_is_continued(path: Path, files: str) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 200)
    code = f"import jlog; jlog.Journal({str(path)!r}).archive()"
    with subprocess.Popen([sys.executable, "-c", code]) as killed:
        wait_until(lambda: len(archived(files)) >= 50)
        killed.kill()
    jlog.Journal(path).archive()
    assert values(files) == expected(2_000)
    assert not list(Path(files.removeprefix("file://")).rglob("*.part"))


# --- archive_on_roll --------------------------------------------------------------------------------------------------


def test_each_roll_archives_in_the_background(path: Path, url: str, uploads: list[str]) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url, archive_on_roll=True)) as writer:
        jlog.Journal(path).add_subscriber("billing")
        fill_segments(writer, 5)
        wait_until(lambda: archived(url) == expected(50))
        assert jlog.Journal(path).first_sequence == 0
        read_away(path, "billing")
        fill_segments(writer, 1)
        wait_until(lambda: jlog.Journal(path).first_sequence >= 50)
        wait_until(lambda: archived(url) == expected(60))
    assert len(uploads) == 6


def test_an_append_does_not_wait_for_the_archive(path: Path, files: str, slow: threading.Event) -> None:
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files, archive_on_roll=True)) as writer:
        fill_segments(writer, 5)
        assert len(threads()) == 1
    assert jlog.Journal(path).next_sequence == 50  # the writer has closed, too
    slow.set()
    wait_until(lambda: archived(files) == expected(50))


def test_an_archive_that_is_away_is_caught_up_with(
    path: Path, files: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "archive").touch()  # where a directory would have to be
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files, archive_on_roll=True)) as writer:
        with caplog.at_level(logging.WARNING, "jlog"):
            fill_segments(writer, 3)
            wait_until(lambda: caplog.records)
        assert "not archived yet, and tried again" in caplog.text
        (tmp_path / "archive").unlink()
        wait_until(lambda: archived(files) == expected(30))
    assert len(caplog.records) == 1


def test_a_forked_process_archives_too(path: Path, files: str) -> None:
    retention = jlog.Retention(archive=files, archive_on_roll=True)
    with jlog.Writer(path, **SMALL, retention=retention) as writer:
        fill_segments(writer, 2)
        child = os.fork()
        if child == 0:
            try:
                with jlog.Writer(path) as own:
                    fill_segments(own, 2)
                    wait_until(lambda: len(archived(files)) == 40)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert values(files) == expected(40)


def test_the_next_roll_archives_what_a_killed_writer_left(path: Path, files: str) -> None:
    code = f"""
    import jlog, os, signal
    from behaviour.journals import SMALL, fill
    writer = jlog.Writer({str(path)!r}, **SMALL, retention=jlog.Retention(archive={files!r}, archive_on_roll=True))
    for _ in range(50):
        fill(writer, 10)
        writer.roll()
    os.kill(os.getpid(), signal.SIGKILL)
    """
    assert python(code, PYTHONPATH=os.pathsep.join(sys.path)).returncode == -signal.SIGKILL
    with jlog.Writer(path) as writer:
        fill_segments(writer, 1)
        wait_until(lambda: archived(files) == expected(510))


def test_a_full_journal_waits_for_no_upload(path: Path, files: str, slow: threading.Event) -> None:
    retention = jlog.Retention(archive=files, archive_on_roll=True, max_bytes=20_000, limit_bytes=40_000)
    with jlog.Writer(path, **SMALL, retention=retention) as writer:
        with pytest.raises(jlog.JournalFull):
            _append_for_ever(writer)
        slow.set()
        wait_until(lambda: _is_appended(writer))
        assert jlog.Journal(path).first_sequence > 0


def test_a_full_journal_is_freed_though_it_does_not_roll(path: Path, files: str) -> None:
    retention = jlog.Retention(archive=files, archive_on_roll=True, limit_bytes=40_000)
    with jlog.Writer(path, **SMALL, retention=retention) as writer:
        jlog.Journal(path).add_subscriber("billing")
        with pytest.raises(jlog.JournalFull):
            _append_for_ever(writer)
        wait_until(lambda: not threads())
        read_away(path, "billing")
        wait_until(lambda: _is_appended(writer))
        assert jlog.Journal(path).first_sequence > 0


@pytest.mark.parametrize("given", [{"archive_on_roll": True}, {"archive_on_roll": 1, "archive": "s3://logs"}])
def test_an_archive_on_roll_needs_an_archive(given: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError), match="archive"):
        jlog.Retention(**given)  # type: ignore[arg-type]


# --- jlogtool archive -------------------------------------------------------------------------------------------------


def test_the_command_archives_once(path: Path, files: str) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill_segments(writer, 2)
    do("options", path, "--archive", files)
    rows = do("archive", path, "--json").json
    assert [(row["first_sequence"], row["records"]) for row in rows] == [(0, 10), (10, 10)]
    assert do("archive", path, "--json").json == []
    assert values(files) == expected(20)


def test_the_command_needs_an_archive(path: Path) -> None:
    jlog.Journal.create(path)
    for arguments in (["archive", path], ["archive", "--follow", path]):
        result = run(*arguments)
        assert (result.code, "jlogtool options --archive" in result.err) == (1, True)
    assert run("archive", "--every", "10s", path).code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_follows_until_it_is_told_to_end(path: Path, files: str, number: signal.Signals) -> None:
    """With --every no roll of the writers' own is needed."""
    with jlog.Writer(path, retention=jlog.Retention(archive=files)) as writer:
        fill(writer, 10)
        command = start("archive", "--follow", "--every", "1s", path)
        wait_until(lambda: archived(files) == expected(10))
        fill(writer, 10)
        wait_until(lambda: archived(files) == expected(20))
        read_away(path, "billing")
        wait_until(lambda: jlog.Journal(path).first_sequence == 20)
    command.send_signal(number)
    out, err = command.communicate(timeout=HUNG_SECONDS)
    assert (command.returncode, err) == (0, b"")
    assert out.count(b"10 records") == 2


def test_the_command_takes_another_archive_when_it_is_changed(path: Path, files: str, tmp_path: Path) -> None:
    other = (tmp_path / "other").as_uri()
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 2)
        command = start("archive", "--follow", path)
        wait_until(lambda: archived(files) == expected(20))
        do("options", path, "--archive", other)
        wait_until(lambda: archived(other) == expected(20))
        read_away(path, "billing")
        wait_until(lambda: jlog.Journal(path).first_sequence == 20)
    command.terminate()
    assert command.communicate(timeout=HUNG_SECONDS)[1] == b""


def test_the_command_goes_on_when_the_archive_is_back(path: Path, files: str, tmp_path: Path) -> None:
    (tmp_path / "archive").touch()
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files)) as writer:
        fill_segments(writer, 2)
    command = start("archive", "--follow", path)
    assert command.stderr is not None
    assert b"not archived yet, and tried again" in command.stderr.readline()
    (tmp_path / "archive").unlink()
    wait_until(lambda: archived(files) == expected(20))
    command.terminate()
    assert command.communicate(timeout=HUNG_SECONDS)[1] == b""
    assert command.returncode == 0

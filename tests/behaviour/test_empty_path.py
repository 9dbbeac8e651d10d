"""An empty path names nothing, not the working directory, and one with a NUL not what is before that."""

import os

import pytest

import jlog
from jlog import archive, metrics

CALLS = {
    "Writer": lambda: jlog.Writer(""),
    "Reader": lambda: jlog.Reader(""),
    "Reader with an archive": lambda: jlog.Reader("", archive="file:///tmp"),
    "Journal": lambda: jlog.Journal(""),
    "Journal.create": lambda: jlog.Journal.create(""),
    "Journal.delete": lambda: jlog.Journal.delete(""),
    "Journal.repair_at": lambda: jlog.Journal.repair_at(""),
    "open_writer": lambda: jlog.open_writer(""),
    "open_reader": lambda: jlog.open_reader(""),
    "open_journal": lambda: jlog.open_journal(""),
    "a file URL": lambda: jlog.open_writer("file:"),
    "Archive": lambda: archive.Archive(""),
    "archive.segments": lambda: archive.segments(""),
    "archive.restore": lambda: archive.restore("file:///tmp", ""),
    "metrics": lambda: metrics.exposition([""]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_empty_path_is_a_value_error_and_makes_nothing(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError):  # noqa: PT011
        call()
    assert os.listdir(tmp_path) == []


def test_a_backup_to_an_empty_path_is_a_value_error(tmp_path, monkeypatch):
    journal = jlog.Journal.create(tmp_path / "j")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ValueError, match="empty path"):
        journal.backup("")
    assert os.listdir(tmp_path / "here") == []


@pytest.mark.parametrize("call", [jlog.Writer, jlog.Reader, jlog.Journal, jlog.Journal.create])
def test_a_path_with_a_nul_is_a_value_error_and_opens_nothing(call, tmp_path):
    jlog.Journal.create(tmp_path / "j")
    with pytest.raises(ValueError, match="null byte"):
        call(f"{tmp_path}/j\0x")
    assert os.listdir(tmp_path) == ["j"]


def test_the_working_directory_is_named_by_a_dot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jlog.Writer(".").close()
    assert "journal.meta" in os.listdir(tmp_path)

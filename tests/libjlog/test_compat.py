"""A program for libjlog's Python binding runs with the names of jlog.compat."""

from __future__ import annotations

from pathlib import Path

import pytest

import jlog
from jlog.compat import (
    JLOG_BEGIN,
    JLOG_END,
    JLogError,
    JLogReader,
    JLogWriter,
    jlog_add_subscriber,
    jlog_remove_subscriber,
)
from libjlog.conftest import subscribers


def test_what_is_written_is_read_and_committed_one_by_one(journal: Path) -> None:
    writer = JLogWriter(journal)
    assert writer.add_subscriber("one") is True
    for number in range(5):
        writer.write(b"%d" % number)
    reader = JLogReader(journal, "one")
    assert len(reader) == 5
    assert next(reader) == b"0"
    assert subscribers(journal) == {"one": 1}
    assert list(reader) == [b"1", b"2", b"3", b"4"]
    assert list(reader) == []
    writer.write(b"5")
    assert list(reader) == [b"5"]
    reader.close()
    writer.close()


def test_subscribers_come_and_go_and_failures_are_false(journal: Path) -> None:
    assert jlog_add_subscriber(journal, "one") is False
    writer = JLogWriter(journal)
    writer.write(b"old")
    assert jlog_add_subscriber(journal, "begin-of-it", JLOG_BEGIN)
    assert jlog_add_subscriber(journal, "end-of-it", JLOG_END)
    assert subscribers(journal) == {"begin-of-it": 0, "end-of-it": 1}
    assert not jlog_add_subscriber(journal, "end-of-it")
    assert not jlog_add_subscriber(journal, "a/b")
    assert not jlog_add_subscriber(journal, "other", 7)
    assert writer.remove_subscriber("end-of-it")
    assert not jlog_remove_subscriber(journal, "end-of-it")
    writer.close()


def test_truncate_leaves_the_newest(journal: Path) -> None:
    writer = JLogWriter(journal)
    writer.add_subscriber("one")
    for number in range(10):
        writer.write(b"%d" % number)
    reader = JLogReader(journal, "one")
    assert reader.truncate(20) is False
    assert reader.truncate(3) is True
    assert list(reader) == [b"7", b"8", b"9"]
    writer.write(b"more")
    assert reader.truncate() is True
    assert list(reader) == []
    reader.close()
    writer.close()


def test_errors_are_those_of_the_binding_with_their_cause(journal: Path, tmp_path: Path) -> None:
    JLogWriter(journal).close()
    with pytest.raises(JLogError, match="failed to open subscriber one@") as told:
        JLogReader(journal, "one")
    assert isinstance(told.value.__cause__, jlog.SubscriberNotFound)
    (tmp_path / "file").touch()
    with pytest.raises(JLogError, match="writer failed to open"):
        JLogWriter(tmp_path / "file")
    writer = JLogWriter(journal)
    writer.close()
    with pytest.raises(JLogError, match="write error"):
        writer.write(b"late")

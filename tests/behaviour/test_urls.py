"""Journals and Kafka topics by URL."""

import os
import re
from pathlib import Path

import pytest

import jlog
import jlog.logging
from behaviour.journals import values
from elsewhere import python
from jlog.urls import path_of, place_of

SAME = {
    "/var/lib/orders": "/var/lib/orders",
    "orders": "orders",
    "a:b": "a:b",
    "orders:v1/x": "orders:v1/x",
    "100%": "100%",
    "c?d#e": "c?d#e",
    "file:/var/lib/orders": "/var/lib/orders",
    "file:///var/lib/orders": "/var/lib/orders",
    "file://localhost/var/lib/orders": "/var/lib/orders",
    "FILE://LocalHost/orders": "/orders",
    "file:orders": "orders",
    "file:../orders": "../orders",
    "file:a%20b%2Fc": "a b/c",
    "file:gr%C3%B6%C3%9Fe": "größe",
    "file:größe": "größe",
    "file:a%FF": os.fsdecode(b"a\xff"),
    "file:a%25%3F%23": "a%?#",
    "file:a b\tc\n": "a b\tc\n",
    "file:a;b=c&d": "a;b=c&d",
}


@pytest.mark.parametrize("url", SAME)
def test_a_file_url_and_a_plain_path_are_a_journals_path(url):
    assert path_of(url) == SAME[url]


def test_a_path_object_is_a_path_whatever_it_looks_like():
    assert path_of(Path("kafka:x")) == "kafka:x"


REFUSED = {
    "file://elsewhere/var/lib/orders": "host 'elsewhere'",
    "file://var/lib/orders": "host 'var'",
    "file:": "no path",
    "file://": "no path",
    "file://localhost": "no path",
    "file:a?durable=1": "%3F",
    "file:a#b": "%23",
    "file:100%": "%25",
    "file:a%0": "%25",
    "file:a%00b": "zero byte",
    "s3://bucket/orders": "kafka://HOST:PORT/TOPIC",
    "http://localhost/orders": "file:PATH",
    "kafka:orders": "kafka://HOST:PORT/TOPIC",
}


@pytest.mark.parametrize("url", REFUSED)
@pytest.mark.parametrize("open_it", [jlog.open_writer, jlog.open_reader])
def test_a_url_that_names_no_journal_is_a_helpful_value_error(open_it, url):
    with pytest.raises(ValueError, match=re.escape(REFUSED[url])) as caught:
        open_it(url)
    assert repr(url) in str(caught.value)


def test_writer_and_reader_of_a_url_are_those_of_the_path(tmp_path):
    path = tmp_path / "a b"
    url = f"file://{tmp_path}/a%20b"
    with jlog.open_writer(url, precommit=0, segment_bytes=8192) as writer:
        assert type(writer) is jlog.Writer
        writer.extend([b"one", b"two"])
    assert jlog.Journal(path).options.segment_bytes == 8192
    with jlog.open_reader(url, "billing", start=1) as reader:
        assert type(reader) is jlog.Reader
        assert list(reader.values()) == [b"two"]
        reader.commit()
    assert jlog.Journal(path).subscribers()["billing"].sequence == 2
    with jlog.open_reader(path, start="end") as reader:
        assert (reader.name, reader.position) == (None, 2)
    assert values(path) == [b"one", b"two"]


def test_the_work_of_a_topic_is_refused_with_the_two_ways_to_share_it_out():
    with pytest.raises(ValueError, match=r"kafka://host/jobs.* ShareConsumer of confluent-kafka.*`jlogtool mirror from-kafka`"):
        jlog.open_worker("kafka://host/jobs", "resize")


def test_a_relative_url_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jlog.open_writer("file:here/orders") as writer:
        assert writer.path == str(tmp_path / "here/orders")


TAKES_A_PATH = [
    jlog.Writer,
    jlog.Journal,
    jlog.Journal.create,
    jlog.Journal.delete,
    jlog.Journal.repair_at,
    jlog.logging.JournalHandler,
]


@pytest.mark.parametrize("function", TAKES_A_PATH, ids=lambda function: function.__qualname__)
@pytest.mark.parametrize("url", ["file:/orders", "file://host/orders", "kafka://host/orders", "s3://host/orders"])
def test_a_url_in_place_of_a_path_makes_no_directory(tmp_path, monkeypatch, function, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(jlog.JournalError, match=r"is a URL.*jlog\.open_writer"):
        function(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["open_writer", "open_reader", "open_journal"])
def test_kafka_without_its_extra_says_what_to_install(name):
    program = (
        "import sys; sys.modules['confluent_kafka'] = None; import jlog\n"
        f"try: jlog.{name}('kafka://127.0.0.1:9/orders')\n"
        "except ImportError as error: print(error)"
    )
    done = python(program)
    assert "pip install 'pyjlog[kafka]'" in done.stdout
    assert "traceback" not in done.stderr.lower()


def test_jlog_itself_imports_nothing_of_kafka():
    program = "import jlog, jlog.cli, sys; print([name for name in sys.modules if 'kafka' in name])"
    done = python(program)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("wrong", [None, 5, b"j"])
def test_what_is_neither_a_url_nor_a_path_is_told(wrong):
    with pytest.raises(TypeError, match="a journal is named by a URL or a path"):
        jlog.open_writer(wrong)


def test_a_text_names_a_journal_an_archive_or_a_topic(tmp_path):
    archive = tmp_path / "archive"
    with jlog.Writer(tmp_path / "journal", retention=jlog.Retention(archive=archive.as_uri())) as writer:
        writer.append(b"1")
        writer.roll()
    jlog.Journal(tmp_path / "journal").archive()
    journal, of_directory, of_url, topic = map(
        place_of, [f"file:{tmp_path}/journal", str(archive), "s3://bucket/prefix", "kafka://host/orders"]
    )
    assert (journal, journal.is_journal) == (str(tmp_path / "journal"), True)
    assert (of_directory, of_directory.is_archive) == (archive.as_uri(), True)
    assert (of_url, of_url.is_archive) == ("s3://bucket/prefix", True)
    assert (topic.is_topic, topic.is_archive, topic.is_journal) == (True, False, False)

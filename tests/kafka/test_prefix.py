"""The setting `prefix`, which begins every name that jlog keeps for itself in a cluster, and settings for one end of a flow."""

from __future__ import annotations

import pytest

import jlog
from jlog.kafka import Capture, Mirror, Settings, positions, promote, status, verify
from jlog.kafka.client.url import parse
from jlog.kafka.status import PartPosition
from kafka.processes import fill, journal_of_ten  # noqa: F401
from kafka.test_command import do_json, run
from kafka.witness import numbered

PREFIX = {"prefix": "acme."}


def test_all_names_of_a_mirror_begin_with_the_prefix(journal, url, topic, witness):
    Mirror(journal, url, until_end=True, config=PREFIX).run()
    uuid = jlog.Journal(journal).uuid
    assert {name for name in witness.topics() if topic in name} == {topic, f"acme.jlog.mirror.{topic}.{uuid}"}
    assert status(journal, url, config=PREFIX).sequence == 10
    assert verify(journal, url, config=PREFIX).compared == 10
    assert positions(journal, url, config=PREFIX) == [PartPosition(str(journal), 10, 0)]


def test_a_prefix_comes_with_the_other_settings(journal, url, topic, witness, tmp_path, monkeypatch):
    file = tmp_path / "settings"
    file.write_text("prefix = acme.\n")
    assert do_json("mirror", "to-kafka", "--until-end", "--config", file, journal, url)["records"] == 10
    monkeypatch.setenv("JLOG_KAFKA_PREFIX", "acme.")
    assert do_json("mirror", "status", journal, url)["sequence"] == 10
    assert do_json("checkpoint", "ls", url) == []
    code, _, said = run("mirror", "status", "-X", "prefix=no/prefix", journal, url)
    assert code == 2
    assert "prefix=no/prefix" in said


def test_another_prefix_does_not_begin_anew(journal, url):
    Mirror(journal, url, until_end=True).run()
    with pytest.raises(jlog.JournalError, match=r"another prefix than 'acme\.'"):
        Mirror(journal, url, until_end=True, config=PREFIX).run()
    with pytest.raises(jlog.JournalError, match=r"another prefix than 'acme\.'"):
        status(journal, url, config=PREFIX)
    Mirror(journal, url, until_end=True).run()
    assert verify(journal, url).compared == 10


def test_a_pattern_matches_no_table_whatever_its_prefix(journal, topic, witness, tmp_path):
    name = f"acme.{topic}"
    url = witness.url(name)
    Mirror(journal, url, until_end=True, config=PREFIX).run()
    with jlog.open_reader(url, "billing", config=PREFIX) as reader:
        reader.checkpoint("here")
    Capture(witness.url(f"acme.*{topic}*,*{topic[-6:]}*"), tmp_path / "copy", until_end=True).run()
    assert len(jlog.Journal(tmp_path / "copy")) == 10


def test_a_reader_keeps_its_checkpoints_under_the_prefix(url, topic, witness):
    witness.make(topic)
    with jlog.open_writer(url, transactional=True, config=PREFIX) as writer:
        writer.extend(numbered(10))
    with jlog.open_reader(url, "billing", config=PREFIX) as reader:
        assert len(reader.read(4)) == 4
        reader.checkpoint("four")
        groups = [group.group_id for group in witness.admin.list_consumer_groups().result().valid]
        assert f"acme.jlog.reader.{topic}.0.billing" in groups
        reader.rewind("four")
        assert reader.position == 4
    assert "acme.jlog.checkpoints" in witness.topics()
    with jlog.open_reader(url, config=PREFIX) as reader, pytest.raises(jlog.CheckpointNotFound):
        with jlog.open_reader(url, "other") as other:
            other.rewind("four")


def test_a_standby_finds_its_mirror_under_the_prefix(journal, url, tmp_path):
    Mirror(journal, url, until_end=True, standby=True, config=PREFIX).run()
    with pytest.raises(jlog.JournalError, match="no mirror sends to it what a standby needs"):
        jlog.kafka.Standby(url, tmp_path / "standby", until_end=True).run()
    jlog.kafka.Standby(url, tmp_path / "standby", until_end=True, config=PREFIX).run()
    assert promote(url, tmp_path / "standby", config=PREFIX).sequence == 10


def test_a_standby_of_a_topic_takes_no_mirror_of_a_longer_name(journal, url, tmp_path):
    Mirror(journal, url, until_end=True, standby=True).run()
    fill(tmp_path / "other", 3)
    Mirror(tmp_path / "other", f"{url}.v2", until_end=True, standby=True).run()
    jlog.kafka.Standby(url, tmp_path / "standby", until_end=True).run()
    assert len(jlog.Journal(tmp_path / "standby")) == 10


# --- Ends -----------------------------------------------------------------------------------------------------------


def test_each_end_of_a_transform_has_settings_of_its_own(witness, topic):
    source, sink = witness.make(topic), witness.url(f"{topic}-sink")
    witness.produce(topic, numbered(10))
    config = {"client.id": "both", "sink.prefix": "acme."}
    stats = jlog.transform(source, sink, lambda record: record, config=config)
    assert stats.records == 10
    assert [name for name in witness.topics() if name.startswith(f"acme.jlog.mirror.{topic}-sink.")]
    assert [row.position for row in positions(source, sink, config=config)] == [10]
    with pytest.raises(jlog.kafka.BrokerError, match="No such configuration property"):
        jlog.transform(source, sink, lambda record: record, config={"source.no.such.setting": "1"})


def test_an_ends_own_setting_wins_and_that_of_the_other_is_not_seen(monkeypatch):
    monkeypatch.setenv("JLOG_KAFKA_SINK_SASL_USERNAME", "writer")
    given = {"source.sasl.username": "reader", "sasl.username": "anybody", "client.id": "me"}
    at = parse("kafka://h/t")
    assert Settings(at, given, ends=["source", "sink"]).given == {"sasl.username": "reader", "client.id": "me"}
    assert Settings(at, given, ends=["sink", "source"]).given == {"sasl.username": "writer", "client.id": "me"}


def test_a_setting_for_an_end_that_is_not_a_topic_is_refused_by_name(journal, url):
    with pytest.raises(ValueError, match=r"source\.linger\.ms cannot be set.*topic as its source"):
        Mirror(journal, url, config={"source.linger.ms": "5"})
    with pytest.raises(ValueError, match="acks cannot be set"):
        Mirror(journal, url, config={"sink.acks": "1"})
    with pytest.raises(ValueError, match=r"sink\.client\.id cannot be set"):
        status(journal, url, config={"sink.client.id": "5"})

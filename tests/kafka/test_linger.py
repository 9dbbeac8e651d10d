"""The time that a transaction waits for more records."""

from __future__ import annotations

import pytest

import jlog
from jlog.kafka import Capture, Mirror, Mirrors, Standby
from kafka.processes import captured, run_to_end
from kafka.witness import numbered


@pytest.mark.parametrize(("linger", "transactions"), [(0, 4), (2, 1)])
def test_a_transaction_waits_for_more_records_as_long_as_it_is_told(tmp_path, linger, transactions):
    """Each record but the last makes the next one come."""
    with jlog.Writer(tmp_path / "source") as writer:
        writer.append(b"0")

        def next_one(record):
            if record.sequence < 3:
                writer.append(b"%d" % (record.sequence + 1))
            return record

        flow = jlog.transforming(tmp_path / "source", tmp_path / "sink", next_one, linger=linger)
        while flow.stats.records < 4:
            flow.step(timeout=1)
        flow.close()
    assert flow.stats.transactions == transactions


@pytest.mark.parametrize("linger", [-0.1, 6])
@pytest.mark.parametrize("flow", [Mirror, Capture])
def test_a_linger_is_no_longer_than_brokers_allow(flow, linger, url, witness, topic, tmp_path):
    witness.make(topic)
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend(numbered(1))
    ends = (tmp_path / "journal", url) if flow is Mirror else (url, tmp_path / "copy")
    with pytest.raises(ValueError, match="linger must be a number of seconds, from 0 to 5"):
        flow(*ends, linger=linger)


def test_every_command_takes_it(url, broker, topic, tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text("def same(record):\n    return record\n")
    monkeypatch.chdir(tmp_path)
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend(numbered(10))
    run_to_end("to-kafka", "--standby", "--linger", "0.01", tmp_path / "journal", url)
    run_to_end("from-kafka", "--linger", "0", "--transform", "changes:same", url, tmp_path / "copy")
    run_to_end("standby", "--linger", "0.01", url, tmp_path / "standby")
    Standby(url, tmp_path / "standby", linger=0.01, until_end=True).run()
    assert captured(tmp_path / "copy") == captured(tmp_path / "standby") == 10
    file = tmp_path / "mirrors.toml"
    file.write_text(f'[[from-kafka]]\nurl = "kafka://{broker.address}"\ntopics = "{topic}"\njournal = "all"\nlinger = 9\n')
    with pytest.raises(ValueError, match="line 5: linger must be a number of seconds, from 0 to 5, not 9"):
        Mirrors(file, until_end=True)

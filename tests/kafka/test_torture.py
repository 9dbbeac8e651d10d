"""tools/kafka_torture.py, which is run by hand. It judges an end by the seconds that brokers were away before it, and a machine
that is busy with other tests has its own seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafka_torture.judge import check_capture, check_mirror
from kafka_torture.records import Wrong

import jlog
from jlog.kafka import Capture, Mirror

TORTURE = Path(__file__).parents[2] / "tools" / "kafka_torture.py"


def test_the_tool_starts():
    done = subprocess.run([sys.executable, str(TORTURE), "--help"], capture_output=True, text=True)
    assert (done.returncode, "--seed" in done.stdout) == (0, True)


def test_its_judge_finds_a_record_too_few_and_one_too_many(witness, topic, url, tmp_path):
    journal, copy = tmp_path / "journal", tmp_path / "copy"
    with jlog.Writer(journal) as writer:
        writer.extend([b"%d " % n for n in range(10)])
    Mirror(journal, url, until_end=True).run()
    Capture(f"{url}*", copy, until_end=True).run()  # of several topics, so that each record names its own
    check_mirror(witness, topic, journal, 10, b"")
    check_capture(witness, copy, {topic: 1})
    witness.produce(topic, [b"9 "])
    with pytest.raises(Wrong):
        check_mirror(witness, topic, journal, 10, b"")
    with pytest.raises(Wrong, match="1 missing in the journal"):
        check_capture(witness, copy, {topic: 1})

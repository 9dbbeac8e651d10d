"""Recorded runs, and what power losses at moments of them leave: all that was promised is there. faults/replay.py, by hand,
tries every moment."""

from __future__ import annotations

import json

import pytest

import exhaustive
import jlog
from crash.tampering import lose_unsynced
from faults import shim

STATES = exhaustive.count(30, 1_000)

pytestmark = pytest.mark.usefixtures("failpoints")


@pytest.mark.parametrize(
    ("boot", "seed"),
    [("changed", 1), ("absent", 2)],
)
def test_promises_hold_after_a_power_loss_at_any_moment(boot, seed):
    done = shim.run("faults.replay", "--boot", boot, "--seed", str(seed), "--states", str(STATES))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["states"] >= STATES


def test_a_subscriber_goes_on_after_records_lost_with_power(tmp_path):
    """Its position was written back by the kernel, and they were not."""
    lost = tmp_path / "lost"
    with jlog.Writer(tmp_path / "j") as writer:
        writer.append(b"synced")
        writer.sync()
        with jlog.Reader(tmp_path / "j", "billing") as reader:
            writer.extend([b"lost"] * 5)
            assert len(list(reader)) == 6
            reader.commit()
            reader.checkpoint("here")
        lose_unsynced(tmp_path / "j", lost)
    with jlog.Reader(lost, "billing") as reader:
        assert list(reader) == []
        with jlog.Writer(lost) as writer:
            first = writer.append(b"after")
        assert [record.sequence for record in reader] == [first]
        reader.rewind("here")
        assert [record.sequence for record in reader] == [first]
    with jlog.Reader(lost, "billing") as reader:
        assert [record.value for record in reader] == [b"after"]

"""A commit into a journal is cut off at each step, and the checkpoint, the journal or both are brought back from a backup: each
row is there once, or the next batch is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import jlog
from behaviour.journals import values
from jlog.spark.writing import sink as sinks
from jlog.spark.writing.ledger import STREAM, Ledger
from jlog.spark.writing.sink import StagingSink
from jlog.spark.writing.staging import Staging
from spark.writing.rows import VALUE, numbered, stage

STEPS = {
    "begin": (Ledger, "begin", 1),
    "list": (Staging, "keep", 1),
    "first append": (sinks, "read_piece", 1),
    "second append": (sinks, "read_piece", 2),
    "note": (sinks, "note", 1),
    "remove": (Staging, "remove", 1),
    "after": None,
}


class Cut(Exception):
    """Stands for a kill at this step."""


def cut_at(step: str, patch: pytest.MonkeyPatch) -> None:
    """Has the next commit be killed before it takes the step."""
    where = STEPS[step]
    if where is None:
        return
    owner, name, last = where
    whole, calls = getattr(owner, name), 0

    def cut(*given: object) -> object:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Cut
        return whole(*given)

    patch.setattr(owner, name, cut)


def commit(folder: Path, batch: int, begin: int, end: int) -> None:
    """Does for a batch of these rows, in two tasks, what Spark does: it notes the offsets, and has tasks and driver write."""
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"sequence":{end}}}')
    sink = StagingSink(VALUE, {"path": str(folder / "journal")}, False)
    rows = numbered(end)[begin:]
    sink.commit(STREAM, "q", batch, stage(sink, "q", batch, [rows[:2], rows[2:]]), str(folder / "checkpoint"))


@pytest.mark.parametrize("step", STEPS)
def test_after_a_kill_and_a_restore_each_row_is_there_once_or_the_next_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Where the checkpoint is that of before, Spark builds the second batch anew, with newer rows. Where it knows that the
    second one is in, it goes on with the third."""
    monkeypatch.setattr(sinks, "AT_ONCE_BYTES", 0)  # the rows of each task are an append
    for restored in ("", "checkpoint", "journal", "checkpoint journal"):
        folder = tmp_path / (restored or "nothing")
        folder.mkdir()
        commit(folder, 0, 0, 5)
        for name in ("checkpoint", "journal"):
            shutil.copytree(folder / name, folder / f"{name}.old")
        with monkeypatch.context() as patch:
            cut_at(step, patch)
            if step == "after":
                commit(folder, 1, 5, 10)
            else:
                with pytest.raises(Cut):
                    commit(folder, 1, 5, 10)
        for name in restored.split():
            shutil.rmtree(folder / name)
            (folder / f"{name}.old").rename(folder / name)
        next_batch = (2, 10, 15) if step == "after" and "checkpoint" not in restored else (1, 5, 10)
        if "checkpoint" in restored:
            next_batch = (1, 5, 15)
        has_some = step not in ("begin", "list", "first append")
        if has_some and restored == "checkpoint":
            with pytest.raises(jlog.JournalError, match="its sources begin or end at other positions"):
                commit(folder, *next_batch)
            expected = 10
        elif step in ("remove", "after") and restored == "journal":
            with pytest.raises(jlog.JournalError, match="batches up to 1, and the journal has only those up to 0"):
                commit(folder, *next_batch)
            expected = 5
        else:
            commit(folder, *next_batch)
            expected = next_batch[2]
        assert values(folder / "journal") == numbered(expected), (step, restored)

"""Small journals with all sorts of files, ways to damage them, and what of their records must still be there then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jlog
import oracle
from crash.tampering import copy, copy_of_killed

SMALL: dict[str, Any] = {"precommit": 4 << 10, "segment_bytes": 4 << 10}


def fill(writer: jlog.Writer, turns: int) -> None:
    """Segments of some blocks each, with state in some of them."""
    for turn in range(turns):
        for part in range(4):
            writer.append(b"value %d %d" % (turn, part) + b"." * 60)
        writer.flush()
        writer.extend([b"with state", b"%d" % turn], state={b"turn": b"%d" % turn, b"only %d" % turn: b"x"})
        writer.append(b"", key=b"key", headers=[("name", b"value"), ("null", None)], timestamp_us=1 << 50)
        writer.flush()
        writer.extend([], state={b"alone": b"%d" % turn, b"only %d" % (turn - 1): None})
        writer.append(None, key=b"gone")
        if turn < turns - 1:
            writer.roll()


def closed(path: Path) -> None:
    """Synced, and all of it kept."""
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False), **SMALL) as writer:
        fill(writer, 4)
        writer.sync()
    subscribe(path)


def never_synced(path: Path) -> None:
    with jlog.Writer(path, compression="lz4", retention=jlog.Retention(delete_read=False), **SMALL) as writer:
        fill(writer, 3)
    subscribe(path)


def cleaned(path: Path) -> None:
    """Its first segment is gone, and a power loss has left a hole."""
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 2)
        subscribe(path)
        writer.append(b"the last before the power fails")
        writer.sync()
        lost = copy(path, path.with_name("lost"))
    shutil.rmtree(path)
    os.rename(lost, path)
    with jlog.Writer(path) as writer:
        fill(writer, 2)


def left_open(path: Path) -> jlog.Writer:
    """A journal with records in the buffer."""
    writer = jlog.Writer(path, retention=jlog.Retention(delete_read=False), **SMALL)
    fill(writer, 2)
    writer.sync()
    fill(writer, 1)
    subscribe(path)
    return writer


def subscribe(path: Path) -> None:
    with jlog.Reader(path, "billing") as reader:
        reader.read(9)
        reader.checkpoint("nine")
        reader.read(4)
        reader.commit()


@dataclass
class Block:
    """The place of the block, its bytes, and its records."""

    file: str
    offset: int
    content: bytes
    records: list[tuple[int, bytes | None]]


class Whole:
    """A journal before anything happens to it."""

    def __init__(self, path: Path, copying: Callable[[Path, Path], Path], scratch: Path) -> None:
        self.path, self.copy = path, copying
        contents = oracle.read_journal(copying(path, scratch))
        self.blocks = [whole_block(block) for block in contents.blocks]
        self.records = {record.sequence: record.value for record in contents.records}
        self.positions = {name: position.sequence for name, position in contents.positions.items()}
        self.changes = {change for block in contents.blocks for change in oracle.decode_block(block)[1]}
        self.next_sequence = contents.next_sequence
        shutil.rmtree(scratch)

    def __repr__(self) -> str:
        return f"<{self.path}>"

    def ruin(self, target: Path) -> Path:
        return self.copy(self.path, target)

    def survivors(self, ruin: Path) -> dict[int, bytes | None]:
        """Of every block whose bytes stand where they stood; of the open block, while its file is as it was but for the
        place that a copy has."""
        found: dict[int, bytes | None] = {}
        for block in self.blocks:
            file = ruin / block.file
            if file.exists() and file.read_bytes()[block.offset :].startswith(block.content):
                found |= dict(block.records)
        buffer = ruin / "precommit"
        if buffer.exists() and buffer.read_bytes() == (self.path / "precommit").read_bytes():
            closed = {sequence for block in self.blocks for sequence, _ in block.records}
            found |= {sequence: value for sequence, value in self.records.items() if sequence not in closed}
        return found


def whole_block(block: oracle.Block) -> Block:
    content = Path(block.path).read_bytes()[block.offset : block.end_offset]
    records = [(record.sequence, record.value) for record in oracle.decode_block(block)[0]]
    return Block(os.path.basename(block.path), block.offset, content, records)


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """The files below it are the same in the end, byte for byte."""
    before = snapshot(path)
    yield
    assert snapshot(path) == before


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def page_of(path: Path) -> bytes:
    """Capacity, generation and slots of the control page. A repair leaves them as they were struck."""
    page = (path / "precommit").read_bytes() if (path / "precommit").exists() else b""
    return page[64:72] + page[448:456] + page[512:640]


# --- After a repair ------------------------------------------------------------------------------------------------


def check(whole, path, survivors, sound_positions=(), *, as_found=False):
    """The required state of a repaired journal. `as_found`: there was nothing to repair, and perhaps the power failed."""
    journal = jlog.Journal(path)
    report = journal.verify()
    assert report.ok, report
    if not as_found:
        oracle.check_journal(path, page=page_of(path) == page_of(whole.path))
    with jlog.Reader(path) as reader:
        found = {record.sequence: record.value for record in reader}
    assert survivors.keys() <= found.keys()
    assert found.items() <= whole.records.items()
    assert len(journal) == len(found) == report.records
    assert whole.changes >= set(journal.state().items())
    for name in ("billing", "nine"):
        kind = "subscribers" if name == "billing" else "checkpoints"
        if f"{kind}/{name}" in sound_positions:
            assert getattr(journal, kind)()[name].sequence == whole.positions[f"{kind}/{name}"]
    for name, position in journal.subscribers().items():
        wanted = [sequence for sequence in found if sequence >= position.sequence]
        assert position.lag == len(wanted)
        with jlog.Reader(path, name) as reader:
            assert [record.sequence for record in reader] == wanted
            assert reader.lag == 0
            assert [record.sequence for record in reader.read_backward(100)] == sorted(found)[::-1]
    return found


def epochs_of(path):
    return len(oracle.read_meta(str(path))["epochs"])


def check_goes_on(whole, path, found):
    """A writer appends: under a number that no record had before, after everything that is there."""
    with jlog.Writer(path) as writer:
        sequence = writer.append(b"after the repair")
        # Where nothing tells any more which numbers were given out, a new epoch says that some may be given out again.
        assert sequence >= whole.next_sequence or epochs_of(path) > epochs_of(whole.path)
        assert sequence not in found
        writer.roll()
        writer.append(b"and one more", timestamp_us=0)
        writer.sync()
    assert jlog.Journal(path).verify().ok
    oracle.check_journal(path)
    with jlog.Reader(path) as reader:
        assert {r.sequence: r.value for r in reader if r.sequence in found} == found


# How each is made, and what becomes of it: a copy is as after a power loss, or as after a kill.
JOURNALS: dict[str, tuple[Callable[[Path], jlog.Writer | None], Callable[[Path, Path], Path]]] = {
    "closed": (closed, copy),
    "closed in this boot": (closed, copy_of_killed),
    "never synced": (never_synced, copy),
    "cleaned": (cleaned, copy),
    "lost power": (left_open, copy),
    "killed": (left_open, copy_of_killed),
}

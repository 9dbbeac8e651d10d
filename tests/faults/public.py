"""The public calls: each with what must be there before it, and the call itself, which can be made again after a failure."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import jlog
from crash.tampering import another_boot, change, flip
from faults.working import WORK_CALLS
from faults.worlds import SUBSCRIBER, SYNC_ERROR_AT, World, in_child
from jlog.archive import Archive, restore
from jlog.writer import SegmentBuilder

Step = Callable[[World], None]
Look = Callable[[], None]
Call = Callable[[World], "Look | None"]  # what it returns looks at the result, once nothing fails any more


# --- What is there before ------------------------------------------------------------------------------------------


def filled(world: World) -> None:
    """A writer, three sealed segments and an open one with a record in the buffer."""
    world.open()
    world.fill()


def nothing(world: World) -> None:
    """Not even a journal."""


def closed(world: World) -> None:
    filled(world)
    world.close()


def killed(world: World) -> None:
    """Its writer has died with records in the buffer; nobody has it open."""
    closed(world)
    in_child(lambda: jlog.Writer(world.path).append(b"from the dead"))
    world.values[max(world.values) + 1] = b"from the dead"


def rebooted(world: World) -> None:
    killed(world)
    another_boot(Path(world.path))


def unsynced(world: World) -> None:
    """An fdatasync had failed, and then all writers died."""
    killed(world)
    change(os.path.join(world.path, "precommit"), SYNC_ERROR_AT, struct.pack("<I", errno.EIO))


def full_segment(world: World) -> None:
    """The next large append opens a segment."""
    filled(world)
    for _ in range(2):
        world.extend(1, 2500)


def full_buffer(world: World) -> None:
    """The next append fills the block, and another one is opened."""
    filled(world)
    world.append(3800)


def synced_each(world: World) -> None:
    world.open(sync="append")
    world.fill()


def compressed(world: World) -> None:
    world.open(compression="lz4")
    world.fill()
    world.append(3000)


def bypassing(world: World) -> None:
    filled(world)
    world.direct = jlog.Writer(world.path, precommit=0)


def subscribed(world: World) -> None:
    """A reader that has read everything and committed nothing."""
    filled(world)
    world.reader = jlog.Reader(world.path, SUBSCRIBER)
    assert len(list(world.reader)) == len(world.values)


def committed(world: World) -> None:
    subscribed(world)
    assert world.reader is not None
    world.reader.checkpoint("here")
    world.reader.commit(durable=True)


def to_be_cleaned(world: World) -> None:
    """Segments that a dead commit has left to be removed."""
    world.open(retention=jlog.Retention(delete_read=False))
    world.fill()
    commit_and_reopen(world)


def commit_and_reopen(world: World) -> None:
    with jlog.Reader(world.path, SUBSCRIBER) as reader:
        list(reader)
        reader.commit()
    assert world.writer is not None
    world.writer.close()
    world.open(retention=jlog.Retention())


def to_be_archived(world: World) -> None:
    world.archive = f"file://{world.root}/archive"
    world.open(retention=jlog.Retention(archive=world.archive))
    world.fill()
    with jlog.Reader(world.path, SUBSCRIBER) as reader:
        list(reader)
        reader.commit()


def archived(world: World) -> None:
    to_be_archived(world)
    jlog.Journal(world.path).clean()


def damaged(world: World) -> None:
    """A block in the middle, and an index."""
    closed(world)
    segments = sorted(Path(world.path).glob("*.seg"))
    flip(segments[1], 200, 3)
    for index in sorted(Path(world.path).glob("*.idx"))[2:3]:
        index.write_bytes(b"no index")
    world.damaged = True
    world.values = {sequence: value for sequence, value in world.there().items() if value is not None}


def dead_in(failpoint: str, call: Callable[[jlog.Writer], object]) -> Step:
    """Another process has died while it had the append lock."""

    def prepare(world: World) -> None:
        filled(world)
        in_child(lambda: call(jlog.Writer(world.path)), f"{failpoint}=kill@1")

    return prepare


# --- The calls -------------------------------------------------------------------------------------------------------


def writer_of(world: World) -> jlog.Writer:
    assert world.writer is not None
    return world.writer


def reader_of(world: World) -> jlog.Reader:
    assert world.reader is not None
    return world.reader


def close(world: World) -> None:
    """A Writer whose close has failed is closed."""
    writer, world.writer = world.writer, None
    if writer is not None:
        writer.close()


def with_ids(world: World) -> None:
    filled(world)
    world.append_once()


def with_ids_to_be_cleaned(world: World) -> None:
    """The same, with ids in the segments that are to be removed."""
    world.open(retention=jlog.Retention(delete_read=False))
    world.append_once()
    world.fill()
    commit_and_reopen(world)


def append_known(world: World) -> None:
    """Each writer knows the ids, also one that is opened for it."""
    world.find_ids(writer_of(world))
    with jlog.Writer(world.path) as other:
        world.find_ids(other)


def clean(world: World) -> None:
    jlog.Journal(world.path).clean()


def clean_ids(world: World) -> None:
    """An id of a removed record is known still."""
    jlog.Journal(world.path).clean()
    append_known(world)


def ingest(world: World) -> None:
    world.number += 1
    path = str(world.root / f"made{world.number}")
    values = [world.value(300) for _ in range(20)]
    import pyarrow

    with SegmentBuilder(path) as file:
        file.add(pyarrow.array(values, pyarrow.binary()))
    state = {b"ingested": b"%d" % world.number}
    first = jlog.writer.ingest(writer_of(world), path, file.pieces, state)
    assert first is not None
    world.values.update({first + i: value for i, value in enumerate(values)})
    world.state.update(state)


def read(world: World) -> None:
    with jlog.Reader(world.path) as reader:
        found = {record.sequence: record.value for record in reader}
    assert found == world.values, f"read {found}"


def read_on(world: World) -> None:
    reader = reader_of(world)
    reader.seek("begin")
    assert [record.value for record in reader] == list(world.values.values())


def follow(world: World) -> None:
    with jlog.Reader(world.path) as reader:
        found = [record.value for record in reader.follow(timeout=0)]
    assert found == list(world.values.values())


def subscribe(world: World) -> None:
    with jlog.Reader(world.path, "another") as reader:
        assert len(list(reader)) == len(world.values)


def verify(world: World) -> None:
    report = jlog.Journal(world.path).verify()
    # A check for damage reports a file that cannot be read as damage; a process without descriptors has found none.
    assert report.ok or world.error == errno.EIO, report


def look(world: World) -> None:
    journal = jlog.Journal(world.path)
    journal.stats()
    kept = sum(sequence >= journal.first_sequence for sequence in world.values)
    assert len(journal) == kept
    assert sum(segment.records for segment in journal.segments()) == kept
    assert journal.state() == world.state
    assert journal.subscribers().keys() == {SUBSCRIBER}
    assert journal.checkpoints().keys() == {"here"}


def backup(world: World) -> Look:
    target = world.root / "copy"
    if not world.error:
        shutil.rmtree(target, ignore_errors=True)  # where it could not even tidy up, it says that this is to be done
    jlog.Journal(world.path).backup(target)

    def look() -> None:
        with jlog.Reader(target) as reader:
            assert {record.sequence: record.value for record in reader} == world.values
        assert jlog.Journal(target).verify().ok
        shutil.rmtree(target)

    return look


def repair(world: World) -> None:
    report = jlog.Journal(world.path).repair()
    assert report.ok, report
    world.damaged = False
    world.state = jlog.Journal(world.path).state()


def restore_it(world: World) -> Look:
    assert world.archive is not None
    target = world.root / "restored"
    restore(world.archive, target)

    def look() -> None:
        assert world.archive is not None
        with jlog.Reader(target) as reader:
            found = {record.sequence: record.value for record in reader}
        assert found == {sequence: world.values[sequence] for sequence in found}
        assert len(found) == Archive(world.archive).next_sequence
        shutil.rmtree(target)

    return look


def positions(world: World) -> None:
    """The calls of Journal on subscribers."""
    journal = jlog.Journal(world.path)
    for name in {"new"} & journal.subscribers().keys():
        journal.remove_subscriber(name)
    journal.add_subscriber("new")
    journal.set_subscriber("new", 3)
    journal.set_checkpoint("point", 5)
    journal.rewind("new", "point")
    assert journal.subscribers()["new"].sequence == 5
    journal.remove_checkpoint("point")
    journal.remove_subscriber("new")


CALLS: dict[str, tuple[Step, Call]] = {
    "create": (nothing, lambda world: jlog.Journal.create(world.path, exist_ok=True) and None),
    "open new": (nothing, lambda world: world.open()),
    "open": (closed, lambda world: world.open()),
    "open after a kill": (killed, lambda world: world.open()),
    "open after a power loss": (rebooted, lambda world: world.open()),
    "open after a failed sync": (unsynced, lambda world: world.open()),
    "open with options": (filled, lambda world: jlog.Writer(world.path, compression="lz4", roll="daily").close()),
    "append": (filled, lambda world: world.append()),
    "append that closes a block": (full_buffer, lambda world: world.append(2000)),
    "append that rolls": (full_segment, lambda world: world.append(3500)),
    "append synced": (synced_each, lambda world: world.append()),
    "append compressed": (compressed, lambda world: world.append(2000)),
    "append once": (filled, lambda world: world.append_once()),
    "append an id that is known": (with_ids, append_known),
    "clean ids": (with_ids_to_be_cleaned, clean_ids),
    "append beside the buffer": (bypassing, lambda world: world.append(40, world.direct)),
    "extend": (filled, lambda world: world.extend(4)),
    "extend large": (filled, lambda world: world.extend(3, 5000)),
    "extend with state": (filled, lambda world: world.extend(2, 40, {b"key": b"value"})),
    "flush": (filled, lambda world: writer_of(world).flush()),
    "sync": (filled, lambda world: writer_of(world).sync() and None),
    "roll": (filled, lambda world: writer_of(world).roll()),
    "close": (filled, close),
    "ingest": (filled, ingest),
    "take over an append": (dead_in("append.encoded", lambda w: w.append(b"x")), lambda world: world.append()),
    "take over a roll": (dead_in("roll.renamed", lambda w: w.roll()), lambda world: world.append()),
    "read": (filled, read),
    "read closed": (closed, read),
    "read after a power loss": (rebooted, read),
    "read on": (subscribed, read_on),
    "follow": (filled, follow),
    "subscribe": (filled, subscribe),
    "commit": (subscribed, lambda world: reader_of(world).commit()),
    "commit durably": (subscribed, lambda world: reader_of(world).commit(durable=True)),
    "checkpoint": (subscribed, lambda world: reader_of(world).checkpoint("point")),
    "rewind": (committed, lambda world: reader_of(world).rewind("here")),
    "clean": (to_be_cleaned, clean),
    "archive": (to_be_archived, clean),
    "restore": (archived, restore_it),
    "look": (committed, look),
    "verify": (filled, verify),
    "positions": (filled, positions),
    "back up": (filled, backup),
    "repair": (damaged, repair),
    **WORK_CALLS,
}  # fmt: skip

"""A journal in the hands of many writers and subscribers, against a model in plain Python."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import exhaustive
import jlog
import oracle

SEGMENT_BYTES = 4 << 10
WRITERS = {"small": 4 << 10, "large": 128 << 10, "bypassing": 0}
SUBSCRIBERS = ("billing", "shipping", "lake")
CHECKPOINTS = ("before", "middle")

sizes = st.integers(0, 300) | st.sampled_from([1000, 4079, 4080, 4081, 9000])
values = st.builds(lambda size, byte: bytes([byte]) * size, sizes, st.integers(0, 255))
optional = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), optional), max_size=2)
states = st.dictionaries(st.sampled_from([b"", b"a", b"b"]), st.none() | st.binary(max_size=100), max_size=2)
compressions = st.sampled_from(["none", "lz4"])
syncs = st.sampled_from(["none", "interval", "append"])
writer_names = st.sampled_from(sorted(WRITERS))
subscriber_names = st.sampled_from(SUBSCRIBERS)
checkpoint_names = st.sampled_from(CHECKPOINTS)
parts = st.floats(0, 1)


class JournalMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="jlog-test-")
        self.path = Path(self.directory) / "j"
        self.records: list[tuple] = []  # value, key, headers
        self.state: dict[bytes, bytes] = {}
        self.writers: dict[str, jlog.Writer] = {}
        self.readers: dict[str, jlog.Reader] = {}
        self.positions: dict[str, int] = {}  # of the open readers
        self.committed: dict[str, int] = {}
        self.checkpoints: dict[str, int] = {}
        self.sync_mode = "none"
        self.synced = 0  # so many at least survive a power loss
        self.first = 0  # as it was last seen: it only grows

    @initialize(precommit=st.sampled_from(sorted(WRITERS.values())), compression=compressions, sync=syncs)
    def create(self, precommit, compression, sync):
        self.journal = jlog.Journal.create(
            self.path,
            precommit=precommit,
            segment_bytes=SEGMENT_BYTES,
            compression=compression,
            sync=sync,
            sync_interval=0.05,
        )
        self.sync_mode = sync

    def teardown(self):
        for opened in [*self.writers.values(), *self.readers.values()]:
            opened.close()
        if self.path.exists():
            contents = oracle.check_journal(self.path)
            found = [(record.value, record.key, record.headers) for record in contents.records]
            assert found == self.records[contents.first_sequence :]
            assert contents.state == self.state
        shutil.rmtree(self.directory)

    def somewhere(self, part):
        """Between the first record that is there and the end."""
        first = self.journal.first_sequence
        return first + round(part * (len(self.records) - first))

    # --- Writers --------------------------------------------------------------------------------------------------

    def writer(self, name):
        if name not in self.writers:
            self.writers[name] = jlog.Writer(self.path, precommit=WRITERS[name])
        return self.writers[name]

    def appended(self):
        if self.sync_mode == "append":
            self.synced = len(self.records)

    def closed(self):
        if self.sync_mode != "none" and not self.writers:
            self.synced = len(self.records)

    @rule(compression=st.none() | compressions, sync=st.none() | syncs)
    def change_options(self, compression, sync):
        jlog.Writer(self.path, compression=compression, sync=sync).close()
        self.sync_mode = sync or self.sync_mode
        self.closed()

    @rule(name=writer_names, many=st.lists(values, min_size=1, max_size=30))
    def append(self, name, many):
        for value in many:
            assert self.writer(name).append(value) == len(self.records)
            self.records.append((value, None, []))
        self.appended()

    @rule(name=writer_names, value=st.none() | values, key=optional, headers=headers)
    def append_whole(self, name, value, key, headers):
        assert self.writer(name).append(value, key=key, headers=headers) == len(self.records)
        self.records.append((value, key, headers))
        self.appended()

    @rule(name=writer_names, many=st.lists(st.none() | values, max_size=30), state=states)
    def extend(self, name, many, state):
        assert self.writer(name).extend(many, state=state) == len(self.records)
        self.records += [(value, None, []) for value in many]
        for key, value in state.items():
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value
        if many or state:
            self.appended()

    @rule(name=writer_names)
    def roll(self, name):
        self.writer(name).roll()

    @rule(name=writer_names)
    def flush(self, name):
        self.writer(name).flush()

    @rule(name=writer_names)
    def sync(self, name):
        self.writer(name).sync()
        self.synced = len(self.records)

    @rule(name=writer_names)
    def close_writer(self, name):
        if name in self.writers:
            self.writers.pop(name).close()
            self.closed()

    # --- Subscribers ----------------------------------------------------------------------------------------------

    def reader(self, name, part=0.0):
        """Opens it where it is not open; a new one begins at that part of the journal."""
        if name not in self.readers:
            start = self.somewhere(part)
            self.readers[name] = jlog.Reader(self.path, name, start=start)
            self.positions[name] = self.committed.setdefault(name, start)
        return self.readers[name]

    def reader_that_lost_nothing(self, name, part=0.0):
        """A reader may be before the oldest retained record, if it has committed beyond what it read: it is told, or still
        has the file, and goes on at the first."""
        reader, first = self.reader(name, part), self.journal.first_sequence
        start = self.positions[name]
        if start < first:
            found = []
            try:
                for value in reader.values():
                    found.append(value)  # noqa: PERF402
            except jlog.PositionLost as error:
                assert error.first_sequence == first  # noqa: PT017
            assert found == [value for value, _, _ in self.records[start : start + len(found)]]
            reader.seek("begin")
            self.positions[name] = first
        return reader

    def expected(self, start, count):
        return [(number, *record) for number, record in enumerate(self.records)][start : start + count]

    @rule(name=subscriber_names, part=parts, count=st.integers(1, 60))
    def read(self, name, part, count):
        batch = self.reader_that_lost_nothing(name, part).read(max_records=count)
        found = [(record.sequence, record.value, record.key, record.headers) for record in batch]
        assert found == self.expected(self.positions[name], count)
        self.positions[name] += len(found)

    @rule(name=subscriber_names, part=parts)
    def read_all(self, name, part):
        found = list(self.reader_that_lost_nothing(name, part).values())
        assert found == [value for value, _, _ in self.records[self.positions[name] :]]
        self.positions[name] = len(self.records)

    @rule(name=subscriber_names, count=st.integers(1, 60))
    def read_backward(self, name, count):
        reader = self.reader_that_lost_nothing(name)
        end, first = self.positions[name], self.journal.first_sequence
        found = [record.sequence for record in reader.read_backward(count)]
        assert found == list(range(end - 1, max(end - count, first) - 1, -1))
        self.positions[name] = end - len(found)

    @rule(name=subscriber_names)
    def commit(self, name):
        reader = self.reader_that_lost_nothing(name)
        reader.commit()
        self.committed[name] = self.positions[name]

    @rule(name=subscriber_names, part=parts)
    def commit_somewhere(self, name, part):
        reader, sequence = self.reader(name), self.somewhere(part)
        reader.commit(sequence)
        self.committed[name] = sequence

    @rule(name=subscriber_names, part=parts)
    def seek(self, name, part):
        reader, sequence = self.reader(name), self.somewhere(part)
        reader.seek(sequence)
        self.positions[name] = sequence

    @rule(name=subscriber_names, checkpoint=checkpoint_names)
    def checkpoint(self, name, checkpoint):
        self.reader_that_lost_nothing(name).checkpoint(checkpoint)
        self.checkpoints[checkpoint] = self.positions[name]

    @rule(name=subscriber_names, checkpoint=checkpoint_names)
    def rewind(self, name, checkpoint):
        reader = self.reader(name)
        if checkpoint not in self.checkpoints:
            with pytest.raises(jlog.CheckpointNotFound):
                reader.rewind(checkpoint)
            return
        if self.checkpoints[checkpoint] < self.journal.first_sequence:
            with pytest.raises(jlog.PositionLost):
                reader.rewind(checkpoint)
            return
        reader.rewind(checkpoint)
        self.positions[name] = self.committed[name] = self.checkpoints[checkpoint]

    @rule(name=subscriber_names)
    def close_reader(self, name):
        if name in self.readers:
            self.readers.pop(name).close()
            del self.positions[name]

    # --- From outside ---------------------------------------------------------------------------------------------

    @rule(name=subscriber_names)
    def remove_subscriber(self, name):
        if name in self.readers:
            with pytest.raises(jlog.SubscriberBusy):
                self.journal.remove_subscriber(name)
        elif name not in self.committed:
            with pytest.raises(jlog.SubscriberNotFound):
                self.journal.remove_subscriber(name)
        else:
            self.journal.remove_subscriber(name)
            del self.committed[name]

    @rule(name=subscriber_names, part=parts)
    def set_subscriber(self, name, part):
        sequence = self.somewhere(part)
        if name in self.committed and name not in self.readers:
            self.journal.set_subscriber(name, sequence)
            self.committed[name] = sequence

    @rule(name=checkpoint_names, part=parts)
    def set_checkpoint(self, name, part):
        sequence = self.somewhere(part)
        self.journal.set_checkpoint(name, sequence)
        self.checkpoints[name] = sequence

    @precondition(lambda self: self.checkpoints)
    @rule(name=checkpoint_names)
    def remove_checkpoint(self, name):
        if self.checkpoints.pop(name, None) is not None:
            self.journal.remove_checkpoint(name)

    @rule()
    def clean(self):
        would, removed = self.journal.clean(dry_run=True), self.journal.clean()
        assert removed == would
        assert self.journal.clean() == []
        kept = self.journal.segments()
        floor = min([*self.committed.values(), *self.checkpoints.values()], default=0) if self.committed else 0
        assert [segment.end_sequence > floor or not segment.sealed for segment in kept] == [True] * len(kept)

    # --- What always holds ----------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_removed_that_somebody_wants(self):
        if not hasattr(self, "journal"):
            return
        first = self.journal.first_sequence
        wanted = min([*self.committed.values(), *self.checkpoints.values()], default=len(self.records))
        if first > self.first:
            assert self.committed, "without a subscriber everything is kept"
            assert first <= wanted
        assert first >= self.first
        self.first = first

    @invariant()
    def what_is_kept_is_what_was_written(self):
        if not hasattr(self, "journal"):
            return
        with jlog.Reader(self.path) as reader:
            assert reader.position == self.first
            assert list(reader.values()) == [value for value, _, _ in self.records[self.first :]]
        assert (self.journal.first_sequence, self.journal.next_sequence) == (self.first, len(self.records))
        assert len(self.journal) == len(self.records) - self.first
        assert self.journal.state() == self.state
        with jlog.Reader(self.path, durable_only=True) as reader:
            found = list(reader.values())  # more than that, if the thread of a writer has synced
        assert len(found) >= self.synced - self.first
        assert found == [value for value, _, _ in self.records[self.first :]][: len(found)]

    @invariant()
    def positions_and_lags_are_right(self):
        if not hasattr(self, "journal"):
            return
        end = len(self.records)
        for kind, expected in (
            (self.journal.subscribers(), self.committed),
            (self.journal.checkpoints(), self.checkpoints),
        ):
            assert {name: position.sequence for name, position in kind.items()} == expected
            for position in kind.values():
                assert position.lag == end - max(position.sequence, self.first)
        for name, reader in self.readers.items():
            position = self.positions[name]
            assert (reader.position, reader.committed, reader.lag) == (
                position,
                self.committed[name],
                end - max(position, self.first),
            )
            assert self.journal.subscribers()[name].busy


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(
    max_examples=exhaustive.count(20, 200),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

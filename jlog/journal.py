"""The journal as a whole: its records, its subscribers and checkpoints, and its care."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jlog._core.format.constants import FORMAT_VERSION
from jlog._core.read.cursor import Cursor
from jlog._core.segments.segment import Block, SegmentFile
from jlog._core.system.lock import Deadline
from jlog.care.backup import backup
from jlog.care.cleaning import archive_of, archive_sealed, clean, clean_if_free, roll_if_due
from jlog.care.clock import ahead_seconds
from jlog.care.deletion import delete
from jlog.care.standing import shared_fields, standing_positions, with_held_bytes
from jlog.care.verify import Progress, Report, segment_ends, verify
from jlog.errors import JournalError, SubscriberExists
from jlog.html import SHOWN_ROWS, ends, records_table, table, time_text
from jlog.options import (
    DEFAULTS,
    PRECOMMIT_DEFAULT,
    Options,
    check_lock_timeout,
    check_options,
    check_precommit,
    dedup_of,
    retention_fields,
    retention_of,
)
from jlog.positions import position_files, query_owners, work_files
from jlog.positions.names import Start, check_name, timestamp_us_of
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, Position
from jlog.positions.start import find_start, find_time
from jlog.reading.reader import Reader
from jlog.storage.attaching import attached
from jlog.storage.creation import create_journal
from jlog.storage.damage import Damage, walk_segment
from jlog.storage.gaps import Gaps
from jlog.storage.meta import read_meta, unless_deleted
from jlog.storage.segments import Segment, read_state, segments_now
from jlog.system.arguments import check_flag
from jlog.system.filesystem import journal_path

if TYPE_CHECKING:
    from jlog.care.statistics import Stats, StatsSource
    from jlog.repair.repair import RepairReport


class Journal:
    """Looks at the journal at `path`, and keeps its subscribers and checkpoints. Needs no writer lock and holds nothing.

    lock_timeout: seconds that one call waits for other processes and threads, before JournalLocked; None: for ever. Calls that
        only look wait for nobody.

    A property is a single fact. What lists, takes an argument, works long or changes something is a method.

    Raises JournalNotFound, CorruptJournal or UnsupportedFormat where the journal cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_timeout: float | None = None) -> None:
        self._lock_timeout = check_lock_timeout(lock_timeout)
        self._path = journal_path(path)
        self._meta = read_meta(self._path)
        self._gaps = Gaps(self._path, self._meta.uuid)
        self._stats: StatsSource | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        precommit: int = PRECOMMIT_DEFAULT,
        exist_ok: bool = False,
        lock_timeout: float | None = None,
        **options: Any,
    ) -> Journal:
        """Creates an empty journal, with the options of a Writer. Raises JournalExists where one exists, unless `exist_ok`."""
        deadline = Deadline(check_lock_timeout(lock_timeout))
        check_flag("exist_ok", exist_ok)
        unknown = sorted(set(options) - set(DEFAULTS))
        if unknown:
            raise TypeError(f"a journal has no option {', '.join(unknown)}; it has precommit, {', '.join(DEFAULTS)}")
        capacity = check_precommit(precommit) or PRECOMMIT_DEFAULT
        create_journal(
            journal_path(path),
            {**DEFAULTS, **check_options(options), "precommit": capacity},
            exist_ok=exist_ok,
            deadline=deadline,
        )
        return cls(path, lock_timeout=lock_timeout)

    @staticmethod
    def delete(path: str | os.PathLike[str], *, lock_timeout: float | None = None) -> None:
        """Removes the journal with all its records, and its directory. Files of others in there stay, and the directory with
        them. A call that was killed is completed by the next one, or by the next creation at this path.
        Raises JournalLocked or SubscriberBusy while a process writes or subscribes."""
        delete(journal_path(path), Deadline(check_lock_timeout(lock_timeout)))

    def __repr__(self) -> str:
        return f"<jlog.Journal {self._path!r}>"

    def _repr_html_(self) -> str:
        """Shows the segments, the subscribers, the checkpoints and the newest records in a notebook."""
        try:
            segments = [
                (one.first_sequence, one.records, one.size_bytes, one.sealed, time_text(one.first_timestamp_us))
                for one in self.segments()
            ]
            subscribers = [(name, position.sequence, position.lag) for name, position in self.subscribers().items()]
            checkpoints = [(name, position.sequence) for name, position in self.checkpoints().items()]
            with Reader(self._path, start="end") as reader:
                newest = reader.read_backward(2 * SHOWN_ROWS)[::-1]
        except (JournalError, OSError) as error:
            return table(f"{self!r}: {error}", (), ())
        return "".join(
            (
                table(repr(self), ("segment", "records", "bytes", "sealed", "first timestamp"), ends(segments)),
                table("subscribers", ("name", "sequence", "lag"), ends(subscribers)),
                table("checkpoints", ("name", "sequence"), ends(checkpoints)),
                records_table("newest records", newest),
            )
        )

    def _deadline(self) -> Deadline:
        """Begins the time that one call may wait for other processes and threads."""
        return Deadline(self._lock_timeout)

    @property
    def path(self) -> str:
        return self._path

    @property
    def uuid(self) -> str:
        return self._meta.uuid.hex()

    @property
    def options(self) -> Options:
        """The options as they are now."""
        options = read_meta(self._path).options
        return Options(**{**options, "dedup": dedup_of(options), "retention": retention_of(options)})

    # --- Contents ---------------------------------------------------------------------------------------------------

    def _cursor(self) -> Cursor:
        with unless_deleted(self._path, self._meta):
            return Cursor(self._path, self._meta.uuid)

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest retained record."""
        with unless_deleted(self._path, self._meta):
            return int(self._cursor().first_sequence)

    @property
    def next_sequence(self) -> int:
        """Sequence of the record that comes next: the end."""
        with unless_deleted(self._path, self._meta):
            return int(self._cursor().next_sequence)

    def __len__(self) -> int:
        return self._gaps.records_between(self.first_sequence, self.next_sequence)

    def __bool__(self) -> bool:
        return True

    @property
    def size_bytes(self) -> int:
        """Size of the segment files' content, once the pre-commit buffer is written there. Preallocated bytes do not count."""
        return sum(segment.size_bytes for segment in self.segments())

    def segments(self) -> list[Segment]:
        """Lists the segments, oldest first, with the open one."""
        with unless_deleted(self._path, self._meta):
            return segments_now(self._path, self._meta)

    def blocks(self) -> Iterator[tuple[str, Block | Damage]]:
        """Yields each block in the segments, with the path of its segment: the raw structure, as the blocks' headers state it.
        Where a block is damaged a Damage comes instead, followed by the blocks after it."""
        cursor = self._cursor()
        for segment, end in segment_ends(self._path, self._meta, cursor.end_place, int(cursor.first_sequence)):
            try:
                file = SegmentFile(self._path, segment, self._meta.uuid, check_header=False)
            except FileNotFoundError:
                continue  # removed by retention in the meantime
            with closing(file):
                for piece in walk_segment(file, end, bodies=False):
                    yield file.path, piece if isinstance(piece, Block) else piece.damage(file.path)

    def find(self, time: datetime) -> int:
        """Returns the sequence of the first record at or after `time`, or the end where all records are earlier."""
        return find_time(self._path, self._meta, timestamp_us_of(time), self._cursor())

    def state(self) -> dict[bytes, bytes]:
        """Returns the newest value of every key that Writer.extend(state=) has stored."""
        return read_state(self._path, self._meta.uuid, self._cursor())

    def epochs(self) -> list[tuple[int, int]]:
        """Returns random number and first sequence of each epoch, oldest first. A copy, or a backup that was restored, begins
        a new epoch when it is first written to. A position that is kept elsewhere carries uuid and epoch; if it is beyond the
        sequence at which a later epoch begins, it is a position in another journal."""
        return list(read_meta(self._path).epochs)

    def gaps(self) -> list[tuple[int, int]]:
        """Returns the gaps: first sequence and next sequence of each range of sequences that have no record and never will."""
        return self._gaps.all()

    # --- Subscribers and checkpoints --------------------------------------------------------------------------------

    def subscribers(self, names: Collection[str] | None = None) -> dict[str, Position]:
        """Returns the subscribers. names: only those of them that exist, where there are too many to look at all."""
        return self._positions(SUBSCRIBER, names)

    def checkpoints(self, names: Collection[str] | None = None) -> dict[str, Position]:
        """Returns the checkpoints; names: as in subscribers()."""
        return self._positions(CHECKPOINT, names)

    def _positions(self, kind: str, names: Collection[str] | None) -> dict[str, Position]:
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise TypeError(f"names must be a list of str, not {names!r}")
        first, end = self.first_sequence, self.next_sequence
        found = standing_positions(self._path, self._meta, kind, cache(self._gaps.all), first, end, names)
        if not found:
            return found
        lowest = min(at.sequence for at in found.values())
        return with_held_bytes(found, segments_now(self._path, self._meta, lowest))

    def add_subscriber(self, name: str, start: Start = "begin", *, copy_of: str | None = None) -> None:
        """Creates a subscriber, at `start` or at the position of another one. Raises SubscriberExists where the name is
        taken."""
        check_name(name, SUBSCRIBER)
        with position_files.table_locked(self._path, self._deadline()):
            if position_files.exists(self._path, SUBSCRIBER, name):
                raise SubscriberExists(f"{self._path} already has a subscriber {name!r}; remove it, or choose another name")
            if copy_of is None:
                sequence = self._kept(self._find(start))
            else:
                sequence = position_files.read(self._path, self._meta, SUBSCRIBER, copy_of)
            position_files.create(self._path, self._meta, SUBSCRIBER, name, sequence)

    def remove_subscriber(self, name: str) -> None:
        """Removes a subscriber. Raises SubscriberBusy while a Reader or a Worker has its name."""
        with position_files.table_locked(self._path, self._deadline()):
            file = position_files.hold(self._path, self._meta, name)
            try:  # without closing(), in whose frames a signal's handler could raise, and the name would stay held
                position_files.remove(self._path, SUBSCRIBER, name)
                work_files.remove(self._path, name)
                query_owners.release(self._path, name)
            finally:
                file.close()
        clean_if_free(self._path)

    def set_subscriber(self, name: str, position: Start) -> None:
        """Moves a subscriber durably. Raises SubscriberBusy while a Reader or a Worker has its name."""
        self._move(name, lambda: self._find(position))

    def rewind(self, name: str, checkpoint: str) -> None:
        """Moves a subscriber back to a checkpoint, durably. Raises SubscriberBusy while a Reader or a Worker has its name."""
        self._move(name, lambda: position_files.read(self._path, self._meta, CHECKPOINT, checkpoint))

    def _move(self, name: str, find: Callable[[], int]) -> None:
        with position_files.table_locked(self._path, self._deadline()):
            file = position_files.hold(self._path, self._meta, name)
            try:  # as in remove_subscriber()
                sequence = self._kept(find())
                work_files.forget(self._path, self._meta, name)
                query_owners.release(self._path, name)
                file.write(sequence)
                file.sync()
            finally:
                file.close()

    def set_checkpoint(self, name: str, position: Start) -> None:
        """Creates a checkpoint, or moves it, durably."""
        check_name(name, CHECKPOINT)
        with position_files.table_locked(self._path, self._deadline()):
            position_files.put(self._path, self._meta, CHECKPOINT, name, self._kept(self._find(position)))

    def remove_checkpoint(self, name: str) -> None:
        with position_files.table_locked(self._path, self._deadline()):
            position_files.remove(self._path, CHECKPOINT, name)
        clean_if_free(self._path)

    def _find(self, start: Start) -> int:
        return find_start(self._path, self._meta, self._cursor(), start)

    def _kept(self, sequence: int) -> int:
        return int(self._cursor().kept(sequence))

    # --- Care -------------------------------------------------------------------------------------------------------

    def clean(self, *, dry_run: bool = False, progress: Callable[[int], None] | None = None) -> list[Segment]:
        """Removes the sealed segments that retention lets go, oldest first, and returns them, each with its `reason`.

        A journal with an archive copies each segment there and reads it back first. Where that fails, a JournalError says why,
        and the segment stays here until the next clean(). Any number of processes may clean at once, and a call continues what
        a killed one has begun. In a journal that rolls by time, an open segment whose period is over is sealed first.

        dry_run: changes nothing, and needs no write access.
        progress: called with each number of bytes that were archived.
        """
        check_flag("dry_run", dry_run)
        deadline = self._deadline()
        if not dry_run:
            roll_if_due(self._path, deadline)
        return clean(self._path, dry_run=dry_run, deadline=deadline, progress=progress)

    def archive(self, *, progress: Callable[[int], None] | None = None) -> list[Segment]:
        """Copies the sealed segments that are not archived yet to the archive, oldest first, reads each back, and returns them.
        Removes nothing here: clean() removes segments later, and does not copy them again.

        A JournalError says what has failed, also where the journal's retention names no archive. Any number of processes may
        archive and clean at once, and a call continues what a killed one has begun. In a journal that rolls by time, an open
        segment whose period is over is sealed first.

        progress: called with each number of bytes that were archived.
        """
        deadline = self._deadline()
        meta = read_meta(self._path)
        archive = archive_of(self._path, meta)
        roll_if_due(self._path, deadline)
        return list(archive_sealed(self._path, meta, archive, deadline=deadline, progress=progress))

    def sync(self) -> None:
        """Makes all records so far survive a power loss, and all that workers have finished so far. Raises SubscriberBusy where
        a Reader has the name of workers whose finishes are not synced."""
        from jlog.working.worker import sync_finishes  # most programs do not need it

        deadline = self._deadline()
        with attached(self._path, deadline) as attachment:
            attachment.sync(deadline)
        sync_finishes(self._path, self._meta, self._lock_timeout)

    def verify(self, *, progress: Progress = lambda _: None) -> Report:
        """Reads and checks every retained byte. Changes nothing, and needs no lock. Calls `progress` with each number of bytes
        that were checked."""
        return verify(self._path, progress)

    def backup(self, target: str | os.PathLike[str], *, progress: Progress = lambda _: None) -> Journal:
        """Copies the journal to the directory `target` while other processes write, and returns the copy. The copy has every
        record that was appended before the call, synced, and all subscribers and checkpoints. Calls `progress` with each number
        of bytes that were copied.

        The copy is a journal of its own: the first writer that opens it begins a new epoch. No writer waits meanwhile, but no
        segment is removed. A call that is killed leaves no journal at `target`; make the backup again, to another or an
        empty place.

        Raises JournalExists unless `target` is missing or an empty directory; OSError where the disk is full, and then removes
        what it has copied.
        """
        target = journal_path(target, "target")
        backup(self._path, target, progress, self._deadline())
        return Journal(target)

    def repair(self, *, dry_run: bool = False, progress: Progress = lambda _: None) -> RepairReport:
        """Repairs a damaged journal, and keeps every record that can still be read, with its sequence.

        The sequences of lost records become a gap: lag does not count them, and a reader whose position lies in the gap goes on
        after it. Damaged bytes are moved to `quarantine/` in the journal's directory. A repair may be killed anywhere and
        done again. It needs disk space for one more segment and for the damaged bytes.

        dry_run: changes nothing, and says what would be done.

        Raises JournalLocked while a process writes to the journal or copies it, SubscriberBusy while a subscriber is read.
        Anonymous readers have to be opened anew.
        """
        return self.repair_at(self._path, dry_run=dry_run, progress=progress, lock_timeout=self._lock_timeout)

    @staticmethod
    def repair_at(
        path: str | os.PathLike[str],
        *,
        dry_run: bool = False,
        progress: Progress = lambda _: None,
        lock_timeout: float | None = None,
    ) -> RepairReport:
        """Repairs a journal that cannot be opened, since `journal.meta` is lost or damaged. That file is created anew with a
        new epoch and the options of a new journal, but for one: no record is removed for having been read."""
        check_flag("dry_run", dry_run)
        from jlog.repair.repair import repair  # slow to import, and few programs repair journals

        deadline = Deadline(check_lock_timeout(lock_timeout))
        return repair(journal_path(path), dry_run=dry_run, progress=progress, deadline=deadline)

    def stats(self) -> Stats:
        """Returns the counters of all processes, and how the journal and its subscribers stand now. Call it each second on one
        Journal object, in one thread at a time: the object keeps what never changes. A journal that was deleted and created
        anew in between is looked at anew."""
        if self._stats is None:
            from jlog.care.statistics import StatsSource  # slow to import, and few programs ask

            self._stats = StatsSource(self._path)
        return self._stats.look()

    def info(self) -> dict[str, Any]:
        """Returns what `jlogtool info --json` prints."""
        segments = self.segments()
        meta = read_meta(self._path)
        subscribers, checkpoints = self.subscribers(), self.checkpoints()
        dead = {name: at for name, at in subscribers.items() if at.dead or at.expired}
        shared = shared_fields(subscribers, self.stats)
        return {
            "path": self._path,
            "uuid": self.uuid,
            "format_version": FORMAT_VERSION,
            "first_sequence": self.first_sequence,
            "next_sequence": self.next_sequence,
            "records": len(self),
            "size_bytes": sum(segment.size_bytes for segment in segments),
            "raw_bytes": sum(block.raw_bytes for _, block in self.blocks() if isinstance(block, Block)),
            "segments": len(segments),
            **meta.options,
            "retention": retention_fields(retention_of(meta.options)),
            "subscribers": [
                fields | shared.get(fields["name"], {}) for fields in _fields_of(subscribers, "sequence", "lag", "busy")
            ],
            "dead": _fields_of(dead, "idle_seconds", "held_bytes", "expired"),
            "checkpoints": _fields_of(checkpoints, "sequence", "lag"),
            "skipped": [{"first_sequence": first, "next_sequence": last} for first, last in self.gaps()],
            "ahead_seconds": ahead_seconds(self._path, meta),
        }


def _fields_of(positions: Mapping[str, Position], *fields: str) -> list[dict[str, Any]]:
    return [{"name": name, **{field: getattr(at, field) for field in fields}} for name, at in positions.items()]

"""The writer: appends records to a journal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from jlog._core.system.lock import Deadline
from jlog._core.write import writer
from jlog.care.cleaning import Cleaner
from jlog.errors import JournalError, JournalMoved, JournalNotFound, RecordTooLarge
from jlog.options import (
    PRECOMMIT_DEFAULT,
    Compression,
    Retention,
    Roll,
    Sync,
    check_lock_timeout,
    check_options,
    check_precommit,
)
from jlog.positions.position_files import table_locked
from jlog.storage.attaching import MetaPolicy
from jlog.storage.creation import create_if_missing
from jlog.storage.segments import state_of
from jlog.system.arguments import check_flag
from jlog.system.filesystem import journal_path
from jlog.typed.codec import Codec, check_codec, encoded, encoded_columns
from jlog.writer.ids import Ids
from jlog.writer.syncing import NO_MEMORY_PAUSE_SECONDS, AsyncSyncs

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from jlog.typed.codec import Headers

__all__ = ["Writer"]


@writer.with_own_append
class Writer(writer.Writer):
    """Appends records to the journal at `path`, creating it if there is none.

    Any number of processes and threads may have writers on one journal at once, with any options, in any mix: order is
    total, and one writer's records keep theirs. Objects are thread-safe. After a fork the parent's writer goes on, and the
    child's opens the journal anew, with the same options, at its first call. A writer pickles as its path and options and opens
    the journal anew where it is unpickled.

    What an acknowledged record survives: the death of any process, at any instruction; a power loss with sync="append";
    with sync="interval" once sync_interval has passed, while a writing process lives; always once sync() has returned.

    path: the journal's directory.
    precommit: bytes of the shared pre-commit buffer, 4 KiB to 1 GiB, default 128 KiB. The buffer is the journal's: as
        large as its creator asked for, grown by a writer that asks for more while it is alone. 0: this writer bypasses
        it, every append is in the segment file before it returns.
    compression, segment_bytes, roll, sync, sync_interval, dedup, retention: the journal's options. None: as the journal has
        them; a value changes them for what is written from then on, by every process.
    compression: "none" or "lz4", block by block: a block that would not become smaller stays as it is.
    segment_bytes: size at which a segment ends, 4 KiB to 1 TiB, default 64 MiB.
    roll: "never", "minutely", "hourly", "daily" or "weekly" (on Monday): a segment also ends with the period of UTC that
        its first record was appended in, by the clock at append.
    sync: "none", "interval" (each sync_interval seconds, default 1.0) or "append": an append returns after an fdatasync,
        which all appends at that time share.
    dedup: which ids of append(id=) are known: the last so many, 1 to 10,000,000, default 100,000, or those of so long ago, a
        timedelta.
    exclusive: the only writing process; JournalLocked while another one writes, and for others as long as this lives.
    codec: appends objects in place of bytes, for example `jlog.typed.json(Order)`.
    lock_timeout: seconds that one call waits in all for what other processes and threads do, at whichever locks it meets,
        before JournalLocked; None: for ever. Ctrl-C gets through. A close that meets its limit closes all the same, and the
        next to open makes up for what is left.
    create: False raises JournalNotFound instead of creating the journal.
    """

    __slots__ = ("_codec", "_given", "_ids", "_syncs")
    _codec: Codec | None
    _given: dict[str, Any]
    _ids: Ids | None
    _syncs: AsyncSyncs

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        precommit: int = 128 << 10,
        compression: Compression | None = None,
        segment_bytes: int | None = None,
        roll: Roll | None = None,
        sync: Sync | None = None,
        sync_interval: float | None = None,
        dedup: int | timedelta | None = None,
        retention: Retention | None = None,
        exclusive: bool = False,
        codec: Codec | None = None,
        lock_timeout: float | None = None,
        create: bool = True,
    ) -> None:
        if hasattr(self, "_given"):
            raise RuntimeError("a Writer is initialised once; close it and create another one")
        check_codec(codec, "encode")
        if codec is not None and type(self) not in {Writer, TypedWriter}:
            raise TypeError("only jlog.Writer itself takes a codec; a class that is derived from it encodes in its own append")
        path = journal_path(path)
        check_flag("exclusive", exclusive)
        check_flag("create", create)
        options = {
            "compression": compression,
            "segment_bytes": segment_bytes,
            "roll": roll,
            "sync": sync,
            "sync_interval": sync_interval,
            "dedup": dedup,
            "retention": retention,
        }
        deadline = Deadline(check_lock_timeout(lock_timeout))
        capacity, changes = check_precommit(precommit), check_options(options)
        while True:
            if create:
                create_if_missing(path, deadline, **changes, precommit=capacity or PRECOMMIT_DEFAULT)
            try:
                super().__init__(
                    path,
                    MetaPolicy(),
                    Cleaner(path),
                    capacity=capacity,
                    options=changes,
                    exclusive=exclusive,
                    lock_timeout=lock_timeout,
                    deadline=deadline,
                )
                break
            except (JournalMoved, JournalNotFound):
                if not create:
                    raise
                # It was deleted or moved since it was found or created.
        given = {"precommit": precommit, "exclusive": exclusive, "lock_timeout": lock_timeout, "create": create}
        self._given = {**options, **given, "codec": codec}
        self._syncs = AsyncSyncs()
        self._ids = None
        self._codec = codec
        if codec is not None:
            self.__class__ = TypedWriter  # so that appends without a codec look for none
            try:
                _settle_types(self, codec, deadline)
            except BaseException:
                self.close()
                raise

    async def append_durable(
        self,
        value: Buffer | None,
        /,
        *,
        key: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None] | None = None,
        timestamp_us: int | None = None,
        id: Buffer | None = None,  # noqa: A002
        timestamp: datetime | None = None,
    ) -> int:
        """Appends one record as append does, and returns its sequence once the record survives a power loss, whatever `sync`
        the journal has. All coroutines that wait, of all event loops, share one fdatasync, and one thread of this writer makes
        it. If the coroutine is cancelled, the record is appended all the same.

        Raises as append does, with nothing appended. An error of the sync says that the record is appended. Where there is no
        memory for the sync it tries again.
        """
        self._syncs.begin()
        sequence = self._append_unsynced(value, key, headers, timestamp_us, id, timestamp)
        while True:
            try:
                try:
                    await self._syncs.wait(self.sync)
                    return sequence
                except (JournalError, OSError) as error:
                    raise writer.not_durable(self.path, error, sequence) from error
            except MemoryError:  # to the caller it would mean that nothing is appended
                time.sleep(NO_MEMORY_PAUSE_SECONDS)

    async def sync_async(self) -> None:
        """Does what sync does, for coroutines: all that wait, of all event loops, share one fdatasync. Raises as sync does."""
        await self._syncs.wait(self.sync)

    def _append_or_find(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None] | None,
        timestamp_us: int | None,
        id: bytes,  # noqa: A002
        deadline: Deadline,
    ) -> int:
        """Appends a record with an id, or finds the one that has it: the core calls this."""
        if self._ids is None:
            self._ids = Ids(self.path, deadline)
        return self._ids.append(self, value, key, headers, timestamp_us, id, deadline)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._ids is not None:
                self._ids.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self.path, self._given)

    def _anew(self) -> Writer:
        """Opens the journal for a child of a fork: the core calls this."""
        return _open(self.path, self._given)


class TypedWriter(Writer):
    """The Writer that `jlog.Writer(path, codec=…)` is: each value that it takes is an object of the codec's types, or None.
    jlog.writer takes bytes all the same."""

    __slots__ = ()
    _codec: Codec

    def append(
        self,
        value: Any,
        /,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp_us: int | None = None,
        id: Buffer | None = None,  # noqa: A002
        timestamp: datetime | None = None,
    ) -> int:
        stored, headers = encoded(self._codec, value, headers)
        return super().append(stored, key=key, headers=headers, timestamp_us=timestamp_us, id=id, timestamp=timestamp)

    async def append_durable(self, value: Any, /, *, headers: Headers | None = None, **others: Any) -> int:
        stored, headers = encoded(self._codec, value, headers)
        return await super().append_durable(stored, headers=headers, **others)

    def extend(
        self,
        values: Iterable[Any],
        /,
        keys: Iterable[Buffer | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps_us: Iterable[int | None] | None = None,
        state: Mapping[bytes, Buffer | None] | None = None,
    ) -> int:
        stored, headers = encoded_columns(self._codec, values, headers)
        return super().extend(stored, keys, headers, timestamps_us, state)


def _open(path: str, options: dict[str, Any]) -> Writer:
    return Writer(path, **options)


def _settle_types(writer: Writer, codec: Codec, deadline: Deadline) -> None:
    """Lets the codec compare its types with those that the journal has had, and stores what it says. Raises SchemaConflict."""
    new_state = getattr(codec, "new_state", None)
    if new_state is None:
        return
    # Two writers that open at once: the second reads what the first has stored.
    with table_locked(writer.path, deadline):
        changes = new_state(state_of(writer.path), writer.path)
        if not changes:
            return
        try:
            writer.extend((), state=changes)
        except RecordTooLarge as error:
            raise RecordTooLarge(
                f"{writer.path}: the schema of {codec!r} is stored in the journal's state, and does not fit: {error}; "
                "give fewer types, types with fewer fields, or json(dict), which takes any object"
            ) from None

"""Removes the segments that retention lets go, and archives segments: those that it removes, or all that are sealed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from jlog._core.read.cursor import Cursor
from jlog._core.recover.recovery import write_blocks
from jlog._core.segments.segment import SegmentFile, first_block_offset, index_name, segment_name
from jlog._core.system.durable import sync_data, sync_directory
from jlog._core.system.lock import AT_ONCE, NEVER, Deadline
from jlog._core.system.notices import warn
from jlog._core.write.attachment import Attachment
from jlog.care.background import Background
from jlog.care.retention import removable
from jlog.errors import JournalError, JournalLocked
from jlog.options import Retention, retention_of
from jlog.positions import position_files
from jlog.storage.attaching import attached
from jlog.storage.copying import nobody_copies
from jlog.storage.ids import keep_ids
from jlog.storage.meta import Meta, read_meta
from jlog.storage.segments import Segment, segments_now
from jlog.system.files import file_in, has_more_entries, naming, naming_its_path, open_file, remove_file

if TYPE_CHECKING:
    from jlog.archive.archive import Archive

FEW_FILES = 512  # a journal's directory with more of them takes some time to list
LOCK_SECONDS = 1.0  # how long an append that has met limit_bytes waits for a process that cleans or moves a position


def _removable_now(path: str, meta: Meta, retention: Retention) -> list[Segment]:
    """Lists the segments that may go, without any lock. They are looked at again under the lock of the table before they are
    removed."""
    with closing(Cursor(path, meta.uuid)) as cursor:
        while True:
            try:
                return removable(path, meta, retention, cursor.end_place, cursor.buffered_bytes)
            except FileNotFoundError:
                continue  # removed in the meantime


@naming_its_path
def clean(
    path: str, *, dry_run: bool = False, deadline: Deadline = NEVER, progress: Callable[[int], None] | None = None
) -> list[Segment]:
    """Removes the segments that may go, and returns them. A journal with an archive copies each of them there before. The
    positions that allow it, and the new first sequence, are made durable before: a segment that a power loss brings back is
    then known to be removed.

    progress: called with each number of bytes that the archive has taken.
    """
    meta = read_meta(path)
    retention = retention_of(meta.options)
    found = _removable_now(path, meta, retention)
    if dry_run or not found:
        return found
    if retention.archive is not None:
        return _archive_and_remove(path, meta, found, deadline, progress)
    with attached(path, deadline) as attachment, position_files.table_locked(path, deadline):
        found = _still_removable(path, attachment, None)
        if found:
            remove(path, meta, attachment, found, deadline)
        return found


def _still_removable(path: str, attachment: Attachment, archive: str | None) -> list[Segment]:
    """Lists the segments that may go by the retention as it is now, which may have been changed since they were found. None may
    go where it names another archive by now than `archive`. Called under the table's lock."""
    meta = read_meta(path)
    retention = retention_of(meta.options)
    if retention.archive != archive:
        return []
    return removable(path, meta, retention, attachment.written_place, attachment.buffered_bytes)


def _archive_and_remove(
    path: str, meta: Meta, found: list[Segment], deadline: Deadline, progress: Callable[[int], None] | None
) -> list[Segment]:
    """Archives and removes one segment after the other, so that an interrupted call has freed what it copied. Nobody waits for
    the upload: the table is locked only once the segment is archived, and a segment that is needed again by then stays."""
    archive, url = archive_of(path, meta), retention_of(meta.options).archive
    _take_part(path, deadline)
    removed = []
    for segment in found:
        if not _store(path, archive, segment, deadline, progress):
            continue  # another process has archived and removed it
        with attached(path, deadline) as attachment, position_files.table_locked(path, deadline):
            oldest = _still_removable(path, attachment, url)[:1]
            if oldest == [segment]:
                remove(path, meta, attachment, oldest, deadline)
                removed += oldest
        if not oldest:
            break
    return removed


def _store(path: str, archive: Archive, segment: Segment, deadline: Deadline, progress: Callable[[int], None] | None) -> bool:
    """Copies a sealed segment to the archive. Returns False where it has been removed. The process is one that writes only for
    a moment: an upload takes long, and may be cut off by the end of the process."""
    try:
        if os.path.getsize(segment.path) > segment.size_bytes:
            with attached(path, deadline) as attachment:
                attachment.seal(segment.first_sequence, segment.size_bytes)
        archive.store(segment, progress)
    except FileNotFoundError:
        return False
    return True


def archive_of(path: str, meta: Meta) -> Archive:
    """Opens the archive that the journal's retention names. Raises JournalError where it names none."""
    from jlog.archive.archive import Archive  # most journals archive nothing

    url = retention_of(meta.options).archive
    if url is None:
        raise JournalError(f"{path} has no archive; set one with `jlogtool options --archive URL {path}`")
    return Archive(url, journal=path)


def archive_sealed(
    path: str, meta: Meta, archive: Archive, *, deadline: Deadline = NEVER, progress: Callable[[int], None] | None = None
) -> Iterator[Segment]:
    """Copies the sealed segments that are not archived yet, oldest first, and yields each that is."""
    sealed = [segment for segment in segments_now(path, meta) if segment.sealed]
    missing = [segment for segment, is_there in zip(sealed, archive.has(sealed), strict=True) if not is_there]
    if missing:
        _take_part(path, deadline)
    for segment in missing:
        if _store(path, archive, segment, deadline, progress):
            yield segment


def _take_part(path: str, deadline: Deadline) -> None:
    """Is a process that writes for a moment: a journal that was copied begins a new epoch, and all records that it has are made
    durable. Else a power loss could take records from the journal that are archived, and others would get their numbers."""
    with attached(path, deadline) as attachment:
        attachment.sync(deadline)


def archive_and_clean(path: str) -> None:
    """Archives what is sealed, and removes what may go; for a journal that archives when it rolls."""
    meta = read_meta(path)
    if not retention_of(meta.options).archive_on_roll:
        return
    for _ in archive_sealed(path, meta, archive_of(path, meta)):
        pass
    with suppress(JournalLocked):  # a backup copies the journal
        clean(path)


def remove(path: str, meta: Meta, attachment: Attachment, segments: list[Segment], deadline: Deadline = NEVER) -> None:
    """Removes the segments, under the table's lock. Raises JournalLocked, and removes nothing, while a backup copies the
    journal, or where another process writes `bounds` until the deadline."""
    with nobody_copies(path):
        position_files.sync_all(path, meta)
        first = segments[-1].next_segment
        keep_ids(path, meta, first)
        # Each segment begins with the complete state: that of the first retained one must not be lost with the others. It is
        # written again before the sync. The kernel may have failed to write it, have told that to another descriptor, and take
        # it for clean now.
        name = file_in(path, segment_name(first))
        with naming(name), open_file(name, os.O_RDWR) as opened:
            with closing(SegmentFile(path, first, attachment.uuid)) as file:
                offset = first_block_offset(file)
                # A writer that has given the name to another file in between has synced that file.
                if os.path.samestat(os.fstat(file.fileno()), os.fstat(opened.fd)):
                    write_blocks(file, offset, opened.fd)
            sync_data(opened.fd, name)
        sync_directory(path)
        attachment.bounds_file.update(first_sequence=first, mark=(first, offset, first), durable=True, deadline=deadline)
        for segment in segments:
            for name in (index_name(segment.first_sequence), segment_name(segment.first_sequence)):
                with suppress(FileNotFoundError):
                    remove_file(file_in(path, name))


_archiving = Background("jlog-archive", archive_and_clean, waited_for=False)  # an upload may take hours
_cleaning = Background("jlog-clean", lambda path: clean_if_free(path, on_roll=True), waited_for=True)


class Cleaner:
    """Cleans for the appends of this process, which call it without locks."""

    def __init__(self, path: str) -> None:
        self._path = path

    def after_roll(self) -> None:
        """Cleans, or has a thread archive and clean. Waits for nothing."""
        clean_soon(self._path, on_roll=True)

    def free_space(self, deadline: Deadline) -> None:
        """Removes what may go, for an append that has met limit_bytes after the open segment was sealed. A journal with an
        archive leaves this to clean(), or to the thread that archives, for a later append."""
        clean_if_free(self._path, deadline.at_most(LOCK_SECONDS), on_roll=True)


def clean_if_free(path: str, deadline: Deadline = AT_ONCE, *, on_roll: bool = False) -> bool:
    """Cleans after a commit or a roll. Returns False where it leaves the work to the next one: another process is at it until
    the deadline, or it fails. A journal with an archive leaves it to clean(), and after a roll to the thread that archives."""
    try:
        retention = retention_of(read_meta(path).options)
        if retention.archive is None:
            clean(path, deadline=deadline)
        elif on_roll and retention.archive_on_roll:
            _archiving.ask(path)
        return True
    except JournalLocked:
        return False
    except (JournalError, OSError) as error:
        warn(path, "nothing was cleaned", error)
        return False


def clean_soon(path: str, *, on_roll: bool = False) -> bool:
    """Does what clean_if_free() does. Where there are many positions or segments to look at, it leaves that to a thread, and
    returns at once."""
    are_many = position_files.are_many(path) or has_more_entries(path, FEW_FILES)
    return (are_many and _cleaning.ask(path)) or clean_if_free(path, on_roll=on_roll)


def roll_if_due(path: str, deadline: Deadline = NEVER) -> None:
    """Rolls where the journal rolls by time, and no append has come since the period of the open segment ended. Raises OSError
    where this process may not write, also where nothing is due."""
    with attached(path, deadline) as attachment:
        rolled = attachment.roll_if_due(deadline)
    if rolled:
        clean_if_free(path, on_roll=True)

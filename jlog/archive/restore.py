"""Creates a journal from an archive."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise

from jlog._core.format.constants import RESERVATION_STRIDE
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.recover.recovery import create_segment
from jlog._core.segments.build import segment_start
from jlog._core.segments.index import write_index
from jlog._core.segments.segment import SegmentFile, index_name
from jlog._core.system.durable import sync_directory
from jlog._core.system.lock import LockFile
from jlog.archive.archive import Archive
from jlog.archive.manifest import ArchivedSegment, file_size_and_crc, is_whole
from jlog.errors import CorruptJournal, JournalExists
from jlog.options import Retention, retention_fields
from jlog.storage.creation import share_lock
from jlog.storage.meta import DIRECTORIES, Meta, write_meta
from jlog.system.files import Directory, naming
from jlog.system.filesystem import journal_path


def restore(url: str, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None) -> None:
    """Creates a journal at `path` from everything that is archived at `url`, with the same sequences, timestamps, keys, headers
    and state. It is another journal from there on, with an epoch of its own. It keeps every record, whatever the retention was,
    and archives nothing, until a writer sets another retention.

    The journal is there as a whole or not at all. A call that was killed leaves a directory `<path>.<…>.restoring`.

    progress: called with each number of bytes that were fetched.

    Raises JournalExists where something is at `path`, PositionLost where a segment between others is missing, CorruptJournal
    where a segment is not what was archived, JournalNotFound and JournalError as Archive does.
    """
    path = journal_path(path)
    with naming(path):
        _restore(url, path, progress)


def _restore(url: str, path: str, progress: Callable[[int], None] | None) -> None:
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise JournalExists(f"{path} already exists; choose another path for the journal", path)
    import secrets  # both are slow to import, and few programs restore
    import shutil

    archive = Archive(url)
    segments = archive.segments()
    for before, segment in pairwise(segments):
        if not segment.follows(before):
            raise archive.missing(before.end_sequence, segment.first_sequence)
    meta = archive.meta()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    work = f"{path}.{secrets.token_hex(4)}.restoring"
    os.mkdir(work)
    try:
        for segment in segments:
            _fetch(archive, segment, work, meta)
            if progress is not None:
                progress(segment.size_bytes)
        _complete(work, meta, segments)
        os.rename(work, path)
        try:
            sync_directory(os.path.dirname(path))
        except OSError:
            os.rename(path, work)  # a call that fails leaves nothing
            raise
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _fetch(archive: Archive, segment: ArchivedSegment, work: str, meta: Meta) -> None:
    with Directory(work) as directory, directory.made(segment.name) as fd:
        archive.folder.copy(segment.name, fd)
        if not is_whole(segment, *file_size_and_crc(fd)):
            raise CorruptJournal(segment.path, 0, "it differs from what was archived, so it is not restored")
    if segment.sound:
        write_index(work, segment.first_sequence, meta.uuid, segment.size_bytes, "next.restore.idx")


def _complete(work: str, meta: Meta, segments: list[ArchivedSegment]) -> None:
    """Creates the other files: an empty segment to go on in, so that the archived ones stay as they are, and at last
    `journal.meta`, which makes the directory a journal."""
    last = segments[-1]
    end = last.end_sequence
    import secrets

    meta.epochs.append((secrets.randbits(63), end))
    meta.options["retention"] = retention_fields(Retention(delete_read=False))
    for directory in DIRECTORIES:
        Directory(work, directory, make=True).close()
    file = SegmentFile(work, last.first_sequence, meta.uuid)
    previous = last.first_sequence, last.size_bytes, end
    if last.first_sequence == end:
        # The last segment has no record, so the one to go on in has the same name, and takes its place.
        previous = file.previous_segment, file.previous_end_offset, file.previous_end_sequence
        with Directory(work) as opened:
            opened.remove(index_name(end))
    start = segment_start(
        meta.uuid,
        meta.epoch,
        end,
        previous,
        file.state_before(last.size_bytes),
        durable_end=end,
        floor_us=max(block.clock_us for block in file.blocks()),
    )
    file.close()
    create_segment(work, end, start)
    place, first = (end, len(start), end), segments[0].first_sequence
    bounds = os.path.join(work, "bounds")
    BoundsFile.create(bounds, meta.uuid, end + RESERVATION_STRIDE, place, first_sequence=first, mark=place)
    with closing(LockFile(os.path.join(work, "lock"), create=True)) as lock_file:
        share_lock(work, lock_file)
    write_meta(work, meta)

"""Copies a journal while other processes write, roll and clean."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import pairwise
from typing import BinaryIO

from jlog._core.format.constants import DUAL_SLOT_OFFSETS, RESERVATION_STRIDE
from jlog._core.format.dual_slot import BoundsFile, both_copies
from jlog._core.read.open_block import read_buffer
from jlog._core.recover.abandoned_buffer import Body
from jlog._core.segments.build import encode_block
from jlog._core.segments.index import read_index, segment_end
from jlog._core.segments.segment import index_name, list_segments, segment_name
from jlog._core.system.durable import sync_directory
from jlog._core.system.lock import NEVER, Deadline
from jlog.errors import JournalError, JournalExists
from jlog.positions import position_files, work_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER
from jlog.storage.copying import being_copied, copy_range
from jlog.storage.ids import copy_ids
from jlog.storage.meta import BYTES_MAX, DIRECTORIES, Meta, read_meta
from jlog.storage.meta import NAME as META
from jlog.system.files import Directory, naming, naming_its_path, open_file, open_stream, read_small, read_whole, write_whole

UNFINISHED = "next.backup"  # in a copy until it is whole
TEARS_MAX = 100
POSITION_BYTES = 64
Progress = Callable[[int], object]  # called with each number of bytes that was copied


@naming_its_path
def backup(path: str, target: str, progress: Progress = lambda _: None, deadline: Deadline = NEVER) -> None:
    """Copies the journal at `path` to `target`. Raises JournalExists unless `target` is missing or an empty directory;
    JournalLocked where another process removes segments until the deadline."""
    meta = read_meta(path)
    _check_target(path, target)
    made = _make_directories(path, target)
    try:
        _make(target, UNFINISHED)
    except FileExistsError:
        raise JournalExists(_unfinished(target), target) from None
    try:
        with being_copied(path, deadline):
            _copy(path, meta, target, progress)
        _finish(path, target)
        for directory in [target, *made]:
            sync_directory(os.path.dirname(directory))
    except BaseException:
        with suppress(OSError):  # the error that ended the backup is the one to report
            for name in os.listdir(target):
                _remove(os.path.join(target, name))
            for directory in made:
                os.rmdir(directory)
        raise


def _check_target(path: str, target: str) -> None:
    if os.path.lexists(target) and not os.path.isdir(target):
        raise JournalExists(f"{target} is a file; choose another path for the copy, or remove it", target)
    there = os.listdir(target) if os.path.isdir(target) else []
    if META in there:
        raise JournalExists(f"{target} is already a journal; choose another path for the copy", target)
    if UNFINISHED in there:
        raise JournalExists(_unfinished(target), target)
    inside = os.path.realpath(path)
    if os.path.commonpath([inside, os.path.realpath(target)]) == inside:
        raise JournalError(f"{target} lies in the journal {path} itself; choose a path outside of it for the copy")
    if there:
        message = f"{target} is a directory with other files; choose another path for the copy"
        raise JournalExists(message, target)


def _unfinished(target: str) -> str:
    return (
        f"{target} holds what a backup has copied that was cut short or is still at work; remove the directory, or choose "
        "another path for the copy"
    )


def _make_directories(path: str, target: str) -> list[str]:
    """Creates the target, with the mode of the journal's own directory, and the directories above it. Returns those that were
    created, the target first."""
    made: list[str] = []
    missing = target
    while not os.path.isdir(missing):
        made.append(missing)
        missing = os.path.dirname(missing)
    for directory in reversed(made):
        os.mkdir(directory)
    if made:
        import shutil  # slow to import, and few programs back up a journal

        shutil.copymode(path, target)
    return made


def _copy(path: str, meta: Meta, target: str, progress: Progress) -> None:
    """Copies the files. Positions come first: none of them can lie beyond the end that is looked up afterwards."""
    for directory in DIRECTORIES:
        Directory(target, directory, make=True).close()
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in position_files.names(path, kind):
            _copy_position(path, meta, target, kind, name)
        sync_directory(os.path.join(target, f"{kind}s"))
    work_files.copy_options(path, meta, target, position_files.names(path, SUBSCRIBER))
    copy_ids(path, meta, target)
    bodies, newest = _open_segment(path, meta)
    with newest:
        bounds = BoundsFile(os.path.join(path, "bounds"), meta.uuid, None, writable=False).read()
        for segment, following in pairwise(name for name in list_segments(path) if name <= bodies[0].segment):
            if following > bounds.first_sequence:  # else it is a removed segment that a power loss has brought back
                end, _, stated = segment_end(path, segment, following, meta.uuid)
                with open_stream(os.path.join(path, segment_name(segment))) as source:
                    _copy_segment(source, target, end if stated else None, progress)
                if read_index(path, segment, meta.uuid) is not None:  # else the first reader that needs an index builds it anew
                    with suppress(FileNotFoundError), open_stream(os.path.join(path, index_name(segment))) as source:
                        _copy_segment(source, target, None, lambda _: None)
        place = _copy_open_segment(newest, meta, target, bodies, progress)
    reservation = max(bounds.reservation_limit, place[2] + RESERVATION_STRIDE)
    file = os.path.join(target, "bounds")
    BoundsFile.create(file, meta.uuid, reservation, place, first_sequence=bounds.first_sequence, mark=place)


def _copy_position(path: str, meta: Meta, target: str, kind: str, name: str) -> None:
    try:
        file = position_files.PositionFile(path, meta, kind, name)
    except LookupError:
        return  # removed in the meantime
    with closing(file), Directory(target, f"{kind}s") as directory, directory.made(name) as made:
        for at, content in zip(DUAL_SLOT_OFFSETS, _read_copies(file.lock_file.fileno(), meta), strict=True):
            write_whole(made, content, at)


def _read_copies(fd: int, meta: Meta) -> list[bytes]:
    """Returns both copies of a dual-slot record: the valid one twice, for the file may be written at this moment. Damaged ones
    are copied as they are."""
    for _ in range(TEARS_MAX):
        whole = [copy for copy in both_copies(fd, meta.uuid) if copy is not None]
        if whole:
            return [max(whole, key=lambda copy: int.from_bytes(copy[16:24], "little"))] * 2
    return [read_whole(fd, POSITION_BYTES, at) for at in DUAL_SLOT_OFFSETS]


def _open_segment(path: str, meta: Meta) -> tuple[list[Body], BinaryIO]:
    """Returns the blocks in the buffer, and the file of their segment. A segment without a record may be replaced by another
    file of the same name at any time."""
    while True:
        bodies = read_buffer(path, meta.uuid)
        first = bodies[0]
        file = open_stream(os.path.join(path, segment_name(first.segment)))
        again = read_buffer(path, meta.uuid)[0]
        if first.first_sequence > first.segment or (again.segment, again.offset) == (first.segment, first.offset):
            return bodies, file
        file.close()


def _copy_segment(source: BinaryIO, target: str, end: int | None, progress: Progress) -> None:
    """Copies the segment's blocks, or all of it where nothing states their end."""
    with Directory(target) as directory, directory.made(os.path.basename(source.name)) as copy:
        size = os.fstat(source.fileno()).st_size
        copy_range(source.fileno(), 0, size if end is None else end, copy, 0, progress)


def _copy_open_segment(
    source: BinaryIO, meta: Meta, target: str, bodies: list[Body], progress: Progress
) -> tuple[int, int, int]:
    """Copies the blocks in the segment, and those in the buffer as if they had been flushed. Returns the end of the copy."""
    _copy_segment(source, target, bodies[0].offset, progress)
    segment, offset, sequence = bodies[0].segment, bodies[0].offset, bodies[0].first_sequence
    file = os.path.join(target, segment_name(segment))
    with naming(file), open_file(file, os.O_RDWR) as copy:
        for body in bodies:
            if body.records:
                block = encode_block(meta.uuid, segment, offset, body.raw, body.base_time_us, sequence)
                write_whole(copy.fd, block, offset)
                offset, sequence = offset + len(block), sequence + body.records
        os.fsync(copy.fd)
    return segment, offset, sequence


def _finish(path: str, target: str) -> None:
    """Adds `journal.meta`, which makes the copy a journal, and so comes last. It is copied unchanged: the first writer sees
    that it is another file, and so that the journal is a copy."""
    _make(target, "lock")
    sync_directory(target)
    content = read_small(os.path.join(path, META), BYTES_MAX)
    with Directory(target) as directory:
        with directory.made(META, f".{META}") as made:
            write_whole(made, content, 0)
        directory.remove(UNFINISHED)
    sync_directory(target)


def _make(target: str, name: str) -> None:
    """Creates an empty file. Raises FileExistsError where the name is taken."""
    with Directory(target) as directory:
        directory.create(name).close()


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path)
    else:
        os.unlink(path)

"""Reads the directory of a damaged journal, and says all that can be known of it. Nothing is changed here."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace

from jlog._core.buffer.precommit import Precommit
from jlog._core.format.constants import DUAL_SLOT_OFFSETS, NONE, SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import SIGNATURE_BYTES, Bounds, BoundsFile, Signature, both_copies, whose
from jlog._core.recover.abandoned_buffer import Body, Page, is_longer, look_at_page, only_processes_died
from jlog._core.recover.scan import scan as find_end
from jlog._core.segments.index import build_index, read_index
from jlog._core.segments.segment import Block, SegmentFile, end_of_content, list_segments, named, segment_name
from jlog.care.verify import Progress, damage_of_small_files
from jlog.errors import CorruptJournal, JournalError, JournalNotFound
from jlog.options import DEFAULTS, PRECOMMIT_DEFAULT, Retention, retention_fields
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.repair.findings import (
    BlockPlace,
    BlockRun,
    Findings,
    FoundBody,
    FoundIndex,
    FoundPosition,
    FoundSegment,
    SegmentFileOnDisk,
    SegmentHead,
    is_chain,
    trusted,
)
from jlog.storage.damage import Damage, DamagedRange, bad_sectors_are_damage, open_segment, walk_segment
from jlog.storage.meta import DIRECTORIES, Meta, read_meta
from jlog.storage.meta import NAME as META
from jlog.system.files import open_file

BEGINNINGS = ("next.", ".journal.meta", ".ids")  # of the names that unfinished files have


def scan(path: str, progress: Progress) -> Findings:
    """Raises CorruptJournal where no file tells which journal it is. `progress` is called with each number of bytes read."""
    import secrets  # slow to import, and few programs repair

    meta, damage = _read_meta(path, secrets.randbits(63))
    bounds = _read_bounds(path, meta)
    page = look_at_page(path, meta.uuid)
    small_damage = damage_of_small_files(path, meta)
    positions = tuple(_positions(path, meta))
    believed = trusted(page, bounds)
    segments = tuple(_segments(path, meta.uuid, bounds, believed, progress))
    return Findings(
        path=path,
        meta=meta,
        has_meta=damage is None,
        new_epoch=secrets.randbits(63),
        bounds=bounds,
        damaged_bounds_copies=() if bounds is None else _damaged_copies(os.path.join(path, "bounds"), meta, bounds=True),
        page=page,
        bodies=tuple(_look_at_body(path, meta.uuid, body, segments) for body in (page.bodies if page is not None else ())),
        segments=segments,
        segment_files=_segment_files(path, segments),
        open_end=_open_end_of_journal(path, meta.uuid, believed, segments),
        recovered_end=_recovered_end(path, meta.uuid, bounds, believed, segments),
        indexes=tuple(_indexes(path, meta.uuid, segments)),
        positions=positions,
        missing_directories=tuple(name for name in DIRECTORIES if not os.path.isdir(os.path.join(path, name))),
        unfinished=tuple(_unfinished(path)),
        damage=(*([] if damage is None else [damage]), *small_damage),
    )


# --- Small files ---------------------------------------------------------------------------------------------------------


def _read_meta(path: str, first_epoch: int) -> tuple[Meta, Damage | None]:
    """Returns the meta; or, with the damage, one that is made of what the other files say."""
    try:
        return read_meta(path), None
    except JournalNotFound:
        reason = "it is missing"
    except CorruptJournal as error:
        reason = error.reason
    uuid, epochs = _find_identity(path)
    kept = retention_fields(Retention(delete_read=False))
    options = {**DEFAULTS, "precommit": PRECOMMIT_DEFAULT, "retention": kept}
    meta = Meta(uuid, epochs or [(first_epoch, 0)], options)
    return meta, Damage(os.path.join(path, META), 0, reason, 0, 0)


def _find_identity(path: str) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns the uuid, and the epochs with the first sequence of each. Raises CorruptJournal where no file states them."""
    found = _signatures(path)
    if not found:
        raise CorruptJournal(
            os.path.join(path, META),
            0,
            "it is missing or damaged, and no other file has the journal's identity; restore the journal from a backup",
        )
    ((uuid, _),) = Counter(signature.uuid for signature in found).most_common(1)
    epochs: dict[int, int] = {}
    begun = 0
    for signature in found:
        if signature.uuid == uuid and signature.epoch is not None and signature.epoch not in epochs:
            begun = max(begun, signature.first_sequence or 0) if epochs else 0
            epochs[signature.epoch] = begun
    return uuid, list(epochs.items())


def _signatures(path: str) -> list[Signature]:
    """Reads the signature of every file that has one, segments first and oldest first."""
    places = [(segment_name(name), 0) for name in list_segments(path)]
    others = ["bounds"]
    for folder in DIRECTORIES:
        if os.path.isdir(os.path.join(path, folder)):
            others += [os.path.join(folder, name) for name in sorted(os.listdir(os.path.join(path, folder)))]
    places += [(name, at) for name in others for at in DUAL_SLOT_OFFSETS]
    found = []
    for name, at in places:
        try:
            file = open_file(os.path.join(path, name))
        except (FileNotFoundError, JournalError):
            continue
        with file:
            signature = whose(os.pread(file.fd, SIGNATURE_BYTES, at))
        if signature is not None:
            found.append(signature)
    return found


def _read_bounds(path: str, meta: Meta) -> Bounds | None:
    try:
        with bad_sectors_are_damage():
            return BoundsFile(os.path.join(path, "bounds"), meta.uuid, None, writable=False).read()
    except (CorruptJournal, FileNotFoundError):
        return None


def _positions(path: str, meta: Meta) -> Iterator[FoundPosition]:
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in position_files.names(path, kind):
            file = PositionFile(path, meta, kind, name)
            try:
                with bad_sectors_are_damage():
                    sequence = file.read()
                    damaged = _damaged_copies(os.path.join(path, f"{kind}s", name), meta)
                yield FoundPosition(kind, name, sequence, damaged)
            except CorruptJournal:
                yield FoundPosition(kind, name, None, ())
            finally:
                file.close()


def _damaged_copies(path: str, meta: Meta, *, bounds: bool = False) -> tuple[int, ...]:
    """Returns the offsets of the copies that can be made anew from the other one."""
    with open_file(path) as file:
        copies = both_copies(file.fd, meta.uuid, bounds=bounds)
    pairs = zip(DUAL_SLOT_OFFSETS, copies, reversed(copies), strict=True)
    return tuple(at for at, copy, other in pairs if copy is None and other is not None)


def _indexes(path: str, uuid: bytes, segments: tuple[FoundSegment, ...]) -> Iterator[FoundIndex]:
    """Only a whole segment's index can be right: every other segment is written anew, and its index with it."""
    runs = {segment.segment: segment.whole_run for segment in segments}
    for file in sorted(os.listdir(path)):
        segment = named(file, "idx")
        if segment is not None:
            run = runs.get(segment)
            yield FoundIndex(segment, file, run is not None and _index_is_right(path, uuid, segment, run.end))


def _index_is_right(path: str, uuid: bytes, segment: int, end: int) -> bool:
    found = read_index(path, segment, uuid)
    return found is not None and found.entries == build_index(path, segment, uuid, end).entries


def _unfinished(path: str) -> Iterator[str]:
    for folder in ("", *DIRECTORIES):
        directory = os.path.join(path, folder)
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            if name.startswith("." if folder else BEGINNINGS) and os.path.isfile(os.path.join(directory, name)):
                yield os.path.join(folder, name)


# --- Segments ------------------------------------------------------------------------------------------------------------


def _segments(path: str, uuid: bytes, bounds: Bounds | None, page: Page | None, progress: Progress) -> Iterator[FoundSegment]:
    """Reads every segment file that is part of the journal, oldest first."""
    names = list_segments(path)
    if page is not None and page.current:  # a later one was left by a roll that was killed
        names = [name for name in names if name <= page.segment]
    heads = {name: _read_head(path, uuid, name) for name in names}
    names = [name for name in names if heads[name] is not None or _has_block(path, uuid, name)]
    if bounds is not None:
        pairs = zip(names, [*names[1:], NONE], strict=False)
        names = [name for name, following in pairs if following > bounds.first_sequence]
    for name, following in zip(names, [*names[1:], None], strict=False):
        end = None
        with closing(SegmentFile(path, name, uuid, check_header=False)) as file:
            if following is not None:
                head = heads[following]
                if head is not None and head.previous is not None and head.previous[0] == name:
                    end = head.previous[1:]
            elif page is not None and page.current and page.segment == name:
                end = _open_end(file, page)
            yield _look_at_segment(file, heads[name], end, NONE if following is None else following, progress)


def _read_head(path: str, uuid: bytes, name: int) -> SegmentHead | None:
    file, error = open_segment(path, name, uuid)
    previous = file.previous_segment, file.previous_end_offset, file.previous_end_sequence
    head = SegmentHead(file.epoch, None if previous[0] == NONE else previous, file.created_us, file.replacements)
    file.close()
    return head if error is None else None


def _has_block(path: str, uuid: bytes, name: int) -> bool:
    with closing(SegmentFile(path, name, uuid, check_header=False)) as file:
        return any(isinstance(piece, Block) for piece in walk_segment(file, None))


def _look_at_segment(
    file: SegmentFile, head: SegmentHead | None, end: tuple[int, int] | None, limit: int, progress: Progress
) -> FoundSegment:
    """Reads all blocks. `limit`: the first sequence of the next segment, which no record here can have."""
    runs: list[BlockRun] = []
    damaged_ranges: list[DamagedRange] = []
    clock_us = durable_end = 0
    goes_on = False
    for piece in walk_segment(file, end):
        if isinstance(piece, DamagedRange):
            damaged_ranges.append(piece)
            goes_on = False
            progress(piece.end - piece.offset)
            continue
        if piece.end_sequence > limit:
            break
        progress(piece.end - piece.offset)
        if goes_on:
            runs[-1] = replace(runs[-1], end=piece.end, end_sequence=piece.end_sequence, blocks=runs[-1].blocks + 1)
        else:
            begins = piece.offset == SEGMENT_HEADER_BYTES
            runs.append(BlockRun(piece.offset, piece.end, piece.first_sequence, piece.end_sequence, 1, has_state_block=begins))
        goes_on = True
        clock_us = max(clock_us, piece.clock_us)
        durable_end = max(durable_end, piece.durable_end)
    return FoundSegment(file.segment, file.path, head, tuple(runs), tuple(damaged_ranges), clock_us, durable_end)


def _segment_files(path: str, segments: tuple[FoundSegment, ...]) -> dict[int, SegmentFileOnDisk]:
    read = {segment.segment: segment for segment in segments}
    return {name: _look_at_file(os.path.join(path, segment_name(name)), read.get(name)) for name in list_segments(path)}


def _look_at_file(file: str, found: FoundSegment | None) -> SegmentFileOnDisk:
    """Finds which bytes no block holds: all, where nothing can be read."""
    ranges: list[tuple[int, int | None]] = [(0, None)]
    if found is not None:
        ranges = [(0, SEGMENT_HEADER_BYTES)] if found.head is None else []
        ranges += [(damaged_range.offset, damaged_range.end) for damaged_range in found.damaged_ranges]
        ranges.append((found.known_end, None))
    size = os.path.getsize(file) if os.path.exists(file) else 0
    if not os.path.isfile(file):
        return SegmentFileOnDisk(size, ())
    return SegmentFileOnDisk(size, tuple((start, end) for start, end in ranges if _has_content(file, start, end or size)))


def _has_content(file: str, start: int, end: int) -> bool:
    """Says whether there are bytes other than zeros. Bytes that cannot be read may be such bytes."""
    if start >= os.path.getsize(file):
        return False
    try:
        with open_file(file) as opened:
            return end_of_content(opened.fd, start, min(end, os.path.getsize(file))) > start
    except JournalError:
        return True
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return True


# --- The end -------------------------------------------------------------------------------------------------------------


def _open_end(file: SegmentFile, page: Page) -> tuple[int, int]:
    """Returns where the page says that the blocks end. A whole direct block at the open place counts, though its writer was
    killed before it published it."""
    if page.direct:
        block, _ = file.block_at(page.offset)
        if block is not None and block.first_sequence == page.first_sequence:
            return block.end, block.end_sequence
    return page.offset, page.first_sequence


def _open_end_of_journal(path: str, uuid: bytes, page: Page | None, segments: tuple[FoundSegment, ...]) -> BlockPlace | None:
    if page is None or not page.current or not segments or segments[-1].segment != page.segment:
        return None
    with closing(SegmentFile(path, page.segment, uuid, check_header=False)) as file:
        return page.segment, *_open_end(file, page)


def _recovered_end(
    path: str, uuid: bytes, bounds: Bounds | None, page: Page | None, segments: tuple[FoundSegment, ...]
) -> BlockPlace | None:
    """Returns the end that the next writer finds; None where it meets damage, or need not look for it."""
    if bounds is None or (page is not None and page.current) or not is_chain(segments):
        return None
    try:
        end = find_end(path, uuid, bounds)
    except CorruptJournal:
        return None
    return None if end.damage else (end.segment, end.offset, end.sequence)


# --- The pre-commit buffer -----------------------------------------------------------------------------------------------


def _look_at_body(path: str, uuid: bytes, body: Body, segments: tuple[FoundSegment, ...]) -> FoundBody:
    """Compares the body with the block at its place: it may have more records than the block."""
    runs = [run for segment in segments if segment.segment == body.segment for run in segment.runs]
    if not any(run.start <= body.offset < run.end for run in runs):
        return FoundBody(body, None, 0)
    with closing(SegmentFile(path, body.segment, uuid, check_header=False)) as file:
        block, _ = file.block_at(body.offset)
    image = body.base_time_us.to_bytes(8, "little", signed=True) + body.raw
    if block is None or block.has_state or block.first_sequence != body.first_sequence or not is_longer(image, block):
        return FoundBody(body, None, 0)
    rest = body._replace(
        first_sequence=block.end_sequence, raw=body.raw[block.raw_bytes :], records=body.records - block.records
    )
    return FoundBody(body, rest, block.end)


def has_unwritten_records(findings: Findings) -> bool:
    """Says whether a writer that opens the journal now would go on in the buffer, and write back what it holds."""
    page, bounds = findings.page, findings.bounds
    if page is None or not page.current or bounds is None or not findings.has_meta:
        return False
    place = page.segment, page.offset, page.first_sequence
    has_body = any((body.segment, body.offset, body.first_sequence) == place for body in page.bodies)
    if not (has_body or page.direct or page.sync_failed):
        return False
    with closing(Precommit(findings.path, findings.meta.uuid)) as precommit, suppress(CorruptJournal):
        precommit.map()
        return only_processes_died(findings.path, findings.meta.uuid, precommit, bounds)
    return False

"""Records and files that a damaged journal has lost, and the damage that explains it."""

from __future__ import annotations

import os

from jlog._core.segments.segment import segment_name
from jlog.repair.draft import SegmentDraft
from jlog.repair.findings import Findings
from jlog.storage.damage import Damage


def lost_records(findings: Findings, drafts: list[SegmentDraft], known_end: int) -> list[tuple[int, int]]:
    """Returns the sequences that had been given out and whose records no file holds any more."""
    heads = [(segment.head.previous, segment.segment) for segment in findings.segments if segment.head is not None]
    gaps = [(previous[2], segment) for previous, segment in heads if previous is not None]
    found = []
    for i, draft in enumerate(drafts[1:], 1):
        end = draft.first_sequence if i < len(drafts) - 1 else min(draft.first_sequence, known_end)
        found += _without(drafts[i - 1].end_sequence, end, gaps)
    return found


def _without(first: int, end: int, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the sequences from `first` to `end` that are in none of the parts."""
    found = []
    for part_first, part_end in sorted(parts):
        if first < part_end and part_first < end:
            found.append((first, part_first))
            first = part_end
    return [(a, b) for a, b in [*found, (first, end)] if a < b]


def _lost_files(findings: Findings) -> dict[int, str]:
    """Returns the segments of which nothing is left, each with the reason: files that others name, and files of which nothing
    can be read."""
    bounds, page = findings.bounds, findings.trusted_page
    first_retained = 0 if bounds is None else bounds.first_sequence
    wanted = [segment.head.previous[0] for segment in findings.segments if segment.head is not None and segment.head.previous]
    if bounds is not None:
        wanted += [bounds.mark_segment] + ([bounds.closed[0]] if bounds.closed is not None else [])
    if page is not None and page.current:
        wanted.append(page.segment)
    left = {segment.segment for segment in findings.segments}
    last = max([*wanted, *left, 0])
    found = dict.fromkeys(wanted, "the segment file is missing")
    found |= {name: "nothing of the segment can be read" for name in findings.segment_files if name <= last}
    return {name: reason for name, reason in found.items() if name not in left and name >= first_retained}


def damage_of_segments(findings: Findings, lost: list[tuple[int, int]]) -> list[Damage]:
    """Returns each damaged place. Lost records that lie in none of them were in a file that is missing."""
    found, explained = [], []
    for segment in findings.segments:
        if segment.head is None:
            found.append(Damage(segment.path, 0, "the segment's header is damaged", segment.segment, 0))
        for damaged_range in segment.damaged_ranges:
            found.append(damaged_range.damage(segment.path))
            explained.append((damaged_range.first_sequence, damaged_range.next_sequence))
    unexplained = [part for first, end in lost for part in _without(first, end, explained)]
    for name, reason in sorted(_lost_files(findings).items()):
        parts = [(first, end) for first, end in unexplained if first <= name < end]
        unexplained = [part for part in unexplained if part not in parts]
        first, end = parts[0] if parts else (name, name)
        found.append(Damage(os.path.join(findings.path, segment_name(name)), 0, reason, first, end - first))
    for first, end in unexplained:
        found.append(Damage(findings.path, 0, "no file holds these records any more", first, end - first))
    found.sort(key=lambda damage: (damage.first_sequence, damage.path, damage.offset))
    page = findings.trusted_page
    if page is not None and page.current and not page.whole:
        buffer = os.path.join(findings.path, "precommit")
        found.append(Damage(buffer, 0, "the open block cannot be read", page.first_sequence, 0))
    return found

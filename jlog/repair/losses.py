"""What a damaged journal has lost: sequences without a record, and each damaged place."""

from __future__ import annotations

import os
from collections.abc import Sequence

from jlog._core.segments.segment import list_segments, segment_name
from jlog.repair.planned import PlannedSegment
from jlog.repair.scan import Findings
from jlog.storage.damage import Damage

Range = tuple[int, int]  # the first sequence, and the one behind the last


def lost_sequences(findings: Findings, planned: Sequence[PlannedSegment], known_end: int) -> list[Range]:
    """Returns the sequences that had been assigned, and whose records are nowhere any more."""
    heads = [(found.head.previous, found.segment) for found in findings.segments if found.head is not None]
    gaps = [(previous[2], segment) for previous, segment in heads if previous is not None]
    lost = []
    for i, after in enumerate(planned[1:], 1):
        end = after.first_sequence if i < len(planned) - 1 else min(after.first_sequence, known_end)
        lost += _without(planned[i - 1].end_sequence, end, gaps)
    return lost


def _without(first: int, end: int, parts: Sequence[Range]) -> list[Range]:
    """Returns what the parts leave of the sequences from `first` to `end`."""
    left = []
    for part_first, part_end in sorted(parts):
        if first < part_end and part_first < end:
            left.append((first, part_first))
            first = part_end
    return [(a, b) for a, b in [*left, (first, end)] if a < b]


def damaged_places(findings: Findings, lost: Sequence[Range]) -> list[Damage]:
    """Returns each damaged place. Lost sequences that lie in none of them are those of a missing file."""
    damage, explained = [], []
    for found in findings.segments:
        if found.head is None:
            damage.append(Damage(found.path, 0, "the segment's header is damaged", found.segment, 0))
        for gap in found.gaps:
            damage.append(gap.damage(found.path))
            explained.append((gap.first_sequence, gap.next_sequence))
    unexplained = [part for first, end in lost for part in _without(first, end, explained)]
    for name, reason in sorted(_lost_segments(findings).items()):
        parts = [(first, end) for first, end in unexplained if first <= name < end]
        unexplained = [part for part in unexplained if part not in parts]
        first, end = parts[0] if parts else (name, name)
        damage.append(Damage(os.path.join(findings.path, segment_name(name)), 0, reason, first, end - first))
    for first, end in unexplained:
        damage.append(Damage(findings.path, 0, "no file holds these records any more", first, end - first))
    return sorted(damage, key=lambda place: (place.first_sequence, place.path, place.offset))


def _lost_segments(findings: Findings) -> dict[int, str]:
    """Returns the segments of which nothing is left, each with the reason: files that others name, and files of which nothing
    can be read."""
    bounds, page = findings.bounds, findings.believed_page
    first_retained = 0 if bounds is None else bounds.first_sequence
    named = [found.head.previous[0] for found in findings.segments if found.head is not None and found.head.previous]
    if bounds is not None:
        named += [bounds.mark_segment] + ([bounds.closed[0]] if bounds.closed is not None else [])
    if page is not None and page.current:
        named.append(page.segment)
    left = {found.segment for found in findings.segments}
    there = [name for name in list_segments(findings.path) if name <= max([*named, *left, 0])]
    lost = dict.fromkeys(named, "the segment file is missing")
    lost |= dict.fromkeys(there, "nothing of the segment can be read")
    return {name: reason for name, reason in lost.items() if name not in left and name >= first_retained}

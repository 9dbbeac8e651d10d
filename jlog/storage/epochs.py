"""Positions in other journals. After a backup was restored, numbers come again: so a position that is stored outside of its
journal has the uuid and the epoch of that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from jlog._core.format.constants import NUMBER_MAX
from jlog.storage.meta import Meta, check_uuid, whole_number

EPOCH_MAX = (1 << 64) - 1


class Shared(NamedTuple):
    """How far a journal still is the one that a position was taken in: it has the records before `end` that were before the
    position. reason: why it lacks the others; empty if its epochs show no reason."""

    end: int
    reason: str


@dataclass(frozen=True)
class ForeignPosition:
    """A position in another journal: the sequence of the next record, with the uuid of the journal and the epoch in which the
    record before it was appended. So the position after a record also identifies that record, whatever is restored later."""

    uuid: str
    epoch: int
    sequence: int

    def __post_init__(self) -> None:
        check_uuid(self.uuid)
        fields = {"epoch": self.epoch, "sequence": self.sequence}
        whole_number(fields, "epoch", 0, EPOCH_MAX)
        whole_number(fields, "sequence", 0, NUMBER_MAX + 1)

    @classmethod
    def of(cls, meta: Meta, sequence: int) -> ForeignPosition:
        """Returns the position before this record of the journal that has this `journal.meta` now."""
        begun = [epoch for epoch, first in meta.epochs if first < sequence]
        return cls(meta.uuid.hex(), begun[-1] if begun else meta.epochs[0][0], sequence)

    @classmethod
    def of_number(cls, meta: Meta, sequence: int) -> ForeignPosition:
        """Returns the position that an earlier version of jlog stored as a plain number. Its epoch is not known. It counts as
        one of the epoch before the present one, so it says nothing of records that were appended in the present one."""
        return cls(meta.uuid.hex(), meta.epochs[max(0, len(meta.epochs) - 2)][0], sequence)

    @classmethod
    def parse(cls, text: str) -> ForeignPosition:
        """Returns the position that str() has given this text. Raises ValueError for another text."""
        try:
            uuid, epoch, sequence = text.split(":")
            return cls(uuid, int(epoch, 16), int(sequence))
        except ValueError:
            raise ValueError(f"{text!r} is not UUID:EPOCH:SEQUENCE, as jlog stores a position in another journal") from None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ForeignPosition:
        """Returns the position that fields() has given these fields. Raises KeyError where one of them is missing."""
        return cls(fields["uuid"], fields["epoch"], int(fields["sequence"]))

    def __str__(self) -> str:
        return f"{self.uuid}:{self.epoch:016x}:{self.sequence}"

    def fields(self) -> dict[str, Any]:
        """Returns the position for JSON."""
        return asdict(self)

    def shared_with(self, meta: Meta) -> Shared:
        """Judges the position by the epochs of the journal that is there now. Up to the sequence at which the next epoch began,
        both have the same records under the same numbers. Of an epoch that the journal does not know, nothing is certain. The
        caller compares with the journal's end, which may be before the position too."""
        if self.uuid != meta.uuid.hex():
            return Shared(0, "it is another journal now")
        known = [epoch for epoch, _ in meta.epochs]
        if self.epoch not in known:
            return Shared(0, "it was replaced by an older copy")
        later = [first for _, first in meta.epochs[known.index(self.epoch) + 1 :]]
        end = min([self.sequence, *later])
        return Shared(end, "" if end == self.sequence else "it has lost its tail, or is another copy")

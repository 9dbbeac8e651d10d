"""The report of a repair. It is a module of its own because `import jlog` has it, and not the repair itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from jlog.care.verify import Report


@dataclass(frozen=True)
class RepairAction:
    """A change that a repair has made to a file; in a dry run, one that it would make."""

    path: str
    text: str


@dataclass
class RepairReport(Report):
    """Result of repair(). `damage` and `lost` are what it found. The numbers are those of the journal as it is afterwards.
    `ok`: it is sound then; of a dry run: nothing was damaged."""

    actions: list[RepairAction] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)  # (first, next) of records that are gone
    sound: bool = True

    @property
    def ok(self) -> bool:
        return self.sound

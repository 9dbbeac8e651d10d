"""What the protocol works on: the shared page, the files, the kernel's locks, and one step at a time.

Everything between two steps can be interrupted: by any other process, by SIGSTOP (a process that just takes
no step), and by SIGKILL. What a process reads under the append lock cannot change, so such reads are part of
the step that follows them; reads without the lock are steps of their own.

A place is (first sequence of the segment file, offset); a CRC is modelled by the content that it stands for.
`wrong` names the one known mistake that a run makes on purpose; scenarios.py has them all.
"""

from operator import attrgetter

CAPACITY = 2  # records in a body: as small as possible, so that blocks switch often
# The lock words. Who has the append lock may try for the write lock; else nobody takes one while holding another. Alone
# needs none.
APPEND, SYNC, WRITE, ALONE = 0, 1, 2, -1

PREPARES = {"roll", "own file", "own file, state"}  # the calls that prepare a segment file before they lock
CARRIES_STATE = {"state", "own file, state"}


class Violation(Exception):
    """A promise of design.md that does not hold in some reachable state."""


def put(items, index, value):
    return items[:index] + (value,) + items[index + 1 :]


class State:
    """Named fields over a tuple. Frozen, they are a hashable state again."""

    __slots__ = ()

    def __init_subclass__(cls):
        """One assignment of all fields: a loop over their names takes a third of the time of a check."""
        fields = getattr(cls, "FIELDS", ())
        if fields:
            scope = {}
            exec(f"def fill(self, values): {', '.join(f'self.{name}' for name in fields)}, = values", scope)
            cls.fill = scope["fill"]

    def __init__(self, values):
        self.fill(values)

    def freeze(self):
        return self.values(self)


class World(State):
    """All that survives a process: the mapped page, the files, the kernel's locks. Frozen, it is a state."""

    FIELDS = (
        "words",  # lock words: owner's slot + 1, or 0
        "locks",  # process that holds the OFD lock of each slot's byte, or None
        "generation",
        "slots",  # by parity: (place, first sequence, published word); place None: the header's CRC is wrong
        "bodies",  # by parity of the generation
        "closing",  # (first sequence, values) in the closing block's header
        "unwritten",  # the generation of the closing block, if it is the one before the open one; not a flag
        "closed",  # the generation that takes no more records, *not a flag*: a switch makes it meaningless
        "direct",  # the generation whose place may hold a block that nobody published; not a flag either
        "state",  # the generation of the last block that carried state; noted before it can be published
        "files",  # segment files, by first sequence
        "segment",  # ((place, (first sequence, values)), ...): whatever looks like a block
        "starts",  # ((segment file, the state at its beginning), ...)
        "spares",  # ((slot, n), the state at the beginning) of each file next.<slot>.<n>
        "writers",
        "reader",
        "kills",  # SIGKILLs left
        "failures",  # pwrites left that raise
        "disk",  # power loss: every content that a place may have after it
        "images",  # power loss: every (first sequence, word) that ever stood in a slot, by parity
        "cells",  # power loss: every value that a cell of a body ever had, by parity
        "entries",  # power loss: segment files that are there after it for certain, and those that may be
        "durable",  # end that a sync has acknowledged
    )
    __slots__ = (*FIELDS, "spec")
    values = staticmethod(attrgetter(*FIELDS))

    def __init__(self, spec, values):
        super().__init__(values)
        self.spec = spec

    def wrong(self, mistake):
        return self.spec.wrong == mistake

    def open_slot(self):
        return self.slots[self.generation & 1]

    def closing_slot(self):
        """Of the block that is published, takes no more records, and is not in its segment; None without one."""
        return self.slots[self.unwritten & 1] if self.unwritten == self.generation - 1 >= 0 else None

    def written_end(self):
        """The sequence behind the last block that is in a segment."""
        return (self.closing_slot() or self.open_slot())[1]

    def body(self, generation):
        return self.bodies[generation & 1]

    def set_slot(self, parity, slot):
        self.slots = put(self.slots, parity, slot)
        if self.spec.power:
            self.images = put(self.images, parity, self.images[parity] | {slot[1:]})

    def set_cell(self, index, value):
        parity = self.generation & 1
        self.bodies = put(self.bodies, parity, put(self.bodies[parity], index, value))
        if self.spec.power:
            cells = self.cells[parity]
            self.cells = put(self.cells, parity, put(cells, index, cells[index] | {value}))

    def write(self, place, block):
        """pwrite. SIGKILL may cut one short; that equals not written, for the header's CRC is wrong then."""
        name, offset = place
        end = offset + self.size(block[1])
        kept = [b for b in self.segment if not (b[0][0] == name and offset <= b[0][1] < end)]
        if self.spec.power:
            # Until an fdatasync the disk has what was there, or this, or a torn mixture that no CRC accepts.
            lost = {b[0] for b in self.segment} - {b[0] for b in kept} | {place}
            disk = dict(self.disk)
            for p in lost:
                disk[p] = disk.get(p, frozenset()) | {None}
            disk[place] |= {block}
            self.disk = tuple(sorted(disk.items(), key=lambda item: item[0]))
        self.segment = tuple(sorted([*kept, (place, block)]))

    def fdatasync(self, last):
        """Of every segment file up to this one."""
        if self.spec.power:
            disk = {place: versions for place, versions in self.disk if place[0] > last}
            disk.update((place, frozenset([block])) for place, block in self.segment if place[0] <= last)
            self.disk = tuple(sorted(disk.items(), key=lambda item: item[0]))

    def set_files(self, files):
        """A file whose name goes takes its blocks along. Only on the disk they may come back, until the
        directory is synced."""
        self.files = tuple(sorted(files))
        self.segment = tuple(b for b in self.segment if b[0][0] in files)
        self.starts = tuple(s for s in self.starts if s[0] in files)
        if self.spec.power:
            certain, possible = self.entries
            self.entries = certain & set(files), possible | set(files)

    def sync_directory(self):
        if self.spec.power:
            self.entries = frozenset(self.files), frozenset(self.files)
            self.disk = tuple(d for d in self.disk if d[0][0] in self.files)

    def size(self, values):
        return 2 if self.spec.lz4 else 1 + len(values)

    def find(self, place):
        for where, block in self.segment:
            if where == place:
                return block
        return None


class Writer(State):
    """A thread that writes: mostly the only one of its process."""

    FIELDS = (
        "pid",
        "pc",
        "slot",
        "op",
        "want",
        "then",
        "after",
        "suspect",
        "generation",  # lz4: of the block that it closed. Sync, settling: that it looked at
        "copy",  # what it is about to write; None: nothing, it rolls
        "looked",  # the generation at which it read the state for the file that it prepared, or a flush began
        "file",  # the switch goes to that file
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


class Reader(State):
    FIELDS = ("pc", "place", "first", "seen", "generation", "closing", "header", "word", "bytes")
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


STEPS = {}
HOLDING = {
    "append",
    "large",
    "note",
    "publish",
    "direct",
    "state",
    "flush",
    "write",
    "empty",
    "fill",
    "turn",
    "late",
}  # append's word
HOLDING |= {"roll", "own file", "own file, state", "rename", "undo", "undo entries"}
HOLDING |= {"repair", "repair entries", "complete"}


def step(label):
    def register(function):
        STEPS.setdefault(label, []).append(function)
        return function

    return register


def begin(m, p):
    program = m.spec.programs[p.pid]
    p.want, p.then, p.after, p.suspect, p.generation, p.copy = APPEND, "", "finish", 0, -1, ()
    p.looked, p.file, p.pc = -1, False, "done"
    if p.op < len(program):
        p.pc, p.then = "lock", program[p.op][0]
        if p.then == "sync":
            p.then, p.after = "flush", "sync"
        elif p.then in PREPARES:
            p.pc = "look"

"""The objects that the protocol works on: the shared page, the files, the kernel's locks, and one step at a time.

Any other process may interrupt a process between two steps. So may SIGSTOP (the process just takes no step) and SIGKILL. Values
that a process reads under the append lock cannot change, so such reads are part of the step that follows them. Reads without
the lock are steps of their own.

A place is (first sequence of the segment file, offset). A CRC is modelled by the content that it covers. `wrong` names the one
known mistake that a run makes on purpose; scenarios.py lists all of them.

Models: pyx/buffer/page.h.
"""

from operator import attrgetter

CAPACITY = 2  # records in a body: as small as possible, so that blocks rotate often
# The lock words. A thread that has the append lock may try for the write lock. Apart from that, no thread takes a lock while it
# holds another one. ALONE needs no lock.
APPEND, SYNC, WRITE, ALONE = 0, 1, 2, -1

PREPARES = {"roll", "own file", "own file, state"}  # calls that prepare a segment file before they take the append lock
CARRIES_STATE = {"state", "own file, state"}


class Violation(Exception):
    """A promise of the protocol that does not hold in some reachable state."""


def put(items, index, value):
    return items[:index] + (value,) + items[index + 1 :]


class State:
    """Gives names to the fields of a tuple. A frozen one is a hashable state again."""

    __slots__ = ()

    def __init_subclass__(cls):
        """Compiles one assignment of all fields: a loop over their names would take a third of a check's time."""
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
    """Everything that survives a process: the mapped page, the files, the kernel's locks. A frozen one is a state."""

    FIELDS = (
        "words",  # lock words: owner's writer slot + 1, or 0
        "locks",  # process that holds the OFD lock of each writer slot's byte, or None
        "generation",
        "slots",  # block slots, by parity: (place, first sequence, published word); place None: the header's CRC is wrong
        "bodies",  # by parity of the generation
        "immutable",  # (first sequence, values) in the immutable block's header
        "unwritten",  # the generation of the immutable block, if it is the one before the open one; not a flag
        "closed",  # the generation that takes no more records; *not a flag*: a rotation makes it meaningless
        "direct",  # the generation whose place may hold an unpublished block; not a flag either
        "state",  # the generation of the last block that carried state; marked before it can be published
        "files",  # first sequences of the segment files
        "segment",  # ((place, (first sequence, values)), ...): everything that looks like a block
        "starts",  # ((segment file, the state at its beginning), ...)
        "spares",  # ((slot, n), the state at the beginning) of each file next.<slot>.<n>
        "writers",
        "reader",
        "kills",  # SIGKILLs left
        "failures",  # pwrites left that raise
        "disk",  # every content that a place may have after a power loss
        "images",  # power loss: every (first sequence, word) that was ever in a block slot, by parity
        "cells",  # power loss: every value that a cell of a body ever had, by parity
        "entries",  # segment files that certainly exist after a power loss, and those that may
        "durable",  # end of the records that a sync has acknowledged
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

    def immutable_slot(self):
        """Returns the slot of the immutable block, or None: it is published, takes no more records, and is not in its segment."""
        return self.slots[self.unwritten & 1] if self.unwritten == self.generation - 1 >= 0 else None

    def written_end(self):
        """Returns the sequence after the last block that is in a segment."""
        return (self.immutable_slot() or self.open_slot())[1]

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
        """Writes a block with pwrite. A write that SIGKILL cuts short equals no write, since the header's CRC is then wrong."""
        name, offset = place
        end = offset + self.size(block[1])
        kept = [b for b in self.segment if not (b[0][0] == name and offset <= b[0][1] < end)]
        if self.spec.power:
            # Until an fdatasync the disk has the old content, or the new one, or a torn mixture that no CRC accepts.
            lost = {b[0] for b in self.segment} - {b[0] for b in kept} | {place}
            disk = dict(self.disk)
            for p in lost:
                disk[p] = disk.get(p, frozenset()) | {None}
            disk[place] |= {block}
            self.disk = tuple(sorted(disk.items(), key=lambda item: item[0]))
        self.segment = tuple(sorted([*kept, (place, block)]))

    def fdatasync(self, last):
        """Syncs every segment file up to this one."""
        if self.spec.power:
            disk = {place: versions for place, versions in self.disk if place[0] > last}
            disk.update((place, frozenset([block])) for place, block in self.segment if place[0] <= last)
            self.disk = tuple(sorted(disk.items(), key=lambda item: item[0]))

    def set_files(self, files):
        """Changes the set of segment files. A removed file takes its blocks along. Only on the disk they may come back,
        until the directory is synced."""
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
    """A thread that writes. Mostly it is the only one of its process."""

    FIELDS = (
        "pid",
        "pc",
        "slot",
        "op",
        "want",
        "then",
        "after",
        "suspect",
        "generation",  # with lz4, that of the block that it closed; in a sync or a drain, the one that it read
        "copy",  # block that it is about to write; None: no block, since it rolls
        "looked",  # generation at which it read the state for its prepared file, or at which a flush began
        "file",  # the rotation goes to the prepared file
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


class Reader(State):
    FIELDS = ("pc", "place", "first", "seen", "generation", "immutable", "header", "word", "bytes")
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


STEPS = {}
HOLDING = {
    "append",
    "large",
    "intend",
    "publish",
    "direct",
    "state",
    "flush",
    "write",
    "empty",
    "fill",
    "turn",
    "late",
}  # labels with the append lock held
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

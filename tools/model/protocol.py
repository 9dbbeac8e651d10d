"""The protocol of living processes: append, rotate, roll, sync, read; SIGKILL anywhere; a power loss as the end.

The steps themselves are in takeover.py, append.py, write_back.py, roll.py, sync.py and reader.py, with one function for each atomic operation
on the shared page or a file. This file starts the processes, kills them, and states the invariants of every state.
"""

from dataclasses import dataclass, field
from functools import cached_property, partial

import reader  # noqa: F401  (registers its steps)
import roll  # noqa: F401
import sync  # noqa: F401
import takeover  # noqa: F401
import write_back  # noqa: F401
from content import after_power_loss, content
from world import CAPACITY, CARRIES_STATE, HOLDING, STEPS, Reader, Violation, World, Writer, begin, put

OVER = {"done", "failed", "gone"}
KILLS, READER, WRITERS = (World.FIELDS.index(name) for name in ("kills", "reader", "writers"))


@dataclass(frozen=True)
class Protocol:
    name: str
    programs: tuple  # for each process its calls, such as ("append", value)
    kills: int = 1
    failures: int = 0  # number of writes that may raise; a process that gets the error stops there
    newcomers: int = 0  # this many processes, the last ones, start when a writer slot becomes free
    threads: tuple = ()  # pairs (pid, pid): the first is a thread in the process of the second
    reader: bool = False
    lz4: bool = False
    # the journal first rotates away from a full block, and writes it back once the append lock is released
    defers: bool = False
    power: bool = False
    wrong: str = ""
    quick: bool = False
    cache: dict = field(default_factory=dict, compare=False, repr=False)
    checked: set = field(default_factory=set, compare=False, repr=False)

    def process(self, pid):
        return dict(self.threads).get(pid, pid)

    @cached_property
    def carriers(self):
        """Values whose block carries state. The value also stands for the state."""
        calls = (call for program in self.programs for call in program)
        return frozenset(value for name, *values in calls if name in CARRIES_STATE for value in values)

    def start(self):
        first = len(self.programs) - self.newcomers
        fields = {
            "words": (0, 0, 0),
            "locks": (None,) * first,
            "generation": 0,
            "slots": (((0, 0), 0, ()),) * 2,
            "bodies": ((0,) * CAPACITY,) * 2,
            "immutable": (),
            "unwritten": -1,
            "closed": -1,
            "direct": -1,
            "state": -1,
            "files": (0,),
            "segment": (),
            "starts": ((0, 0),),
            "spares": (),
            "writers": tuple(new_writer(pid, "start") for pid in range(len(self.programs))),
            "reader": ("read generation", (0, 0), 0, 0, 0, False, (), (), ()) if self.reader else (),
            "kills": self.kills,
            "failures": self.failures,
            "disk": (),
            "images": (frozenset([(0, ())]),) * 2,
            "cells": ((frozenset([0]),) * CAPACITY,) * 2,
            "entries": (frozenset([0]),) * 2,
            "durable": 0,
        }
        m = World(self, [fields[name] for name in World.FIELDS])
        for pid in range(first):
            p = Writer(m.writers[pid])
            p.slot = self.process(pid)
            m.locks = put(m.locks, pid, p.slot)  # a thread does not use its own slot, which is therefore never free
            begin(m, p)
            m.writers = put(m.writers, pid, p.freeze())
        return m.freeze()

    def moves(self, state):
        """Yields each step, kill and release of locks that may come next."""
        m = World(self, state)
        perform = partial(self.perform, state, content(m), m.durable)
        for pid, writer in enumerate(state[WRITERS]):
            pc = writer[1]
            for action in STEPS.get(pc, ()):
                yield f"{pid}: {action.__name__}", True, partial(perform, step_of_a_writer, action, pid)
            if pc == "dead":
                yield f"kernel releases the locks of {pid}", True, partial(perform, release, None, pid)
            elif pc not in OVER and pc != "start" and state[KILLS]:
                yield f"{pid} is killed at {pc!r}", False, partial(perform, kill, None, pid)
        if self.reader:
            for action in STEPS[state[READER][0]]:
                name = f"reader: {action.__name__}"
                yield name, False, partial(perform, step_of_the_reader, action, -1)

    def perform(self, state, before, durable, how, action, pid):
        m = World(self, state)
        if how(m, action, pid) is False:
            return None
        after = m.freeze()
        check_transition(before, durable, m)
        return after

    def visit(self, state):
        if self.power:
            check_power_loss(World(self, state), self.checked)

    def stuck(self, state):
        return any(w[1] not in OVER and w[1] != "start" for w in state[WRITERS])


def new_writer(pid, pc):
    return pid, pc, -1, 0, 0, "", "", 0, -1, (), -1, False


def step_of_a_writer(m, action, pid):
    p = Writer(m.writers[pid])
    if action(m, p) is False:
        return False
    m.writers = put(m.writers, pid, p.freeze())
    return True


def step_of_the_reader(m, action, _):
    r = Reader(m.reader)
    action(m, r)
    m.reader = r.freeze()


def kill(m, _, pid):
    m.kills -= 1
    for other in range(len(m.writers)):
        if m.spec.process(other) == m.spec.process(pid):
            m.writers = put(m.writers, other, new_writer(other, "dead"))


def release(m, _, pid):
    """Frees the locks of a killed process, as a step of its own: the kernel does that milliseconds, or a second, after the
    kill."""
    m.locks = tuple(None if holder == pid else holder for holder in m.locks)
    m.writers = put(m.writers, pid, new_writer(pid, "gone"))


def check_transition(before, durable, m):
    after = content(m)
    if after[: len(before)] != before:
        raise Violation(f"published was {before}, now it is {after}")
    for pid, pc, _, op, *_ in m.writers:
        if pc == "failed" and not set(after).isdisjoint(m.spec.programs[pid][op][1:]):
            raise Violation(f"{m.spec.programs[pid][op]} has raised, and yet there is {after}")
    if m.durable < durable:
        raise Violation(f"the durable end goes back from {durable} to {m.durable}")
    holders = [w[0] for w in m.writers if w[1] in HOLDING or (w[1] == "unlock" and w[4] == 0)]
    if len(holders) > 1:
        raise Violation(f"{holders} hold the append lock together")
    if m.wrong("opening alone wants both slots intact") and all(w[1] in OVER for w in m.writers):
        if None in (m.slots[0][0], m.slots[1][0]):
            raise Violation("only processes died, yet recovery leaves a gap in the numbers")


def check_power_loss(m, checked):
    key = m.segment, m.files, m.slots, m.generation, m.bodies, m.immutable_slot(), m.disk, m.images, m.cells
    key += m.entries, m.durable
    if key in checked:
        return
    checked.add(key)
    published = content(m)
    for found in after_power_loss(m):
        both = min(len(found), len(published))
        if found[:both] != published[:both]:
            raise Violation(f"power loss: published was {published}, recovered is {found}")
        if len(found) < m.durable:
            raise Violation(f"power loss: {m.durable} records were synced, recovered is {found}")

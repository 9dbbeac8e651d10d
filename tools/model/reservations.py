"""Numbers are never reused: reservations, the closed end, and a power loss between any two steps.

This is a small model of its own. Appending is one step (protocol.py has its parts), and recovery is "the end that was found"
(recovery.py has its parts). `bounds` is the content in the page cache, and `disk` is what a power loss may leave of it. One
life of the journal is the time between two power losses.

Models: pyx/append/operations.pyx, pyx/format/dual_slot.pyx, pyx/write/attachment.pyx.
"""

from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from world import State, Violation, put

STRIDE = 2  # numbers in a reservation
START, OVER = ("start", 0, 0), {"done", "gone"}


class Reservations(State):
    FIELDS = (
        "valid",  # True if the page was made in this life
        "next",  # the page's next sequence: every number before it is published
        "limit",  # the page's reservation limit: appending stops there until the limit is raised
        "bounds",  # (reservation, closed end or None)
        "disk",  # every (reservation, closed end) that a power loss may leave
        "durable",  # end of the records that a sync has acknowledged
        "ever",  # every number before it was given to some record, in this life or an earlier one
        "opening",  # process that holds the opening lock
        "slots",  # processes that hold a writer slot
        "processes",  # (next label, operation, value) of each process
        "kills",
        "losses",
    )
    __slots__ = (*FIELDS, "model")
    values = staticmethod(attrgetter(*FIELDS))

    def __init__(self, model, values):
        super().__init__(values)
        self.model = model


STEPS = {}


def step(label):
    def register(function):
        STEPS[label] = function
        return function

    return register


@dataclass(frozen=True)
class ReservationModel:
    name: str
    programs: tuple
    kills: int = 1
    losses: int = 1
    wrong: str = ""
    quick: bool = True

    def start(self):
        """Returns a journal that was just created: one reservation, durable, and no number given out."""
        bounds = STRIDE, 0
        processes = (START,) * len(self.programs)
        return (
            True,
            0,
            0,
            bounds,
            frozenset([bounds]),
            0,
            0,
            None,
            frozenset(),
            processes,
            self.kills,
            self.losses,
        )

    def moves(self, state):
        m = Reservations(self, state)
        for pid, (pc, _, _) in enumerate(m.processes):
            if pc in STEPS:
                yield f"{pid}: {STEPS[pc].__name__}", True, partial(self.perform, state, STEPS[pc], pid)
            if m.kills and pc not in OVER and pc != "start":
                yield f"{pid} is killed at {pc!r}", False, partial(self.perform, state, kill, pid)
        if m.losses:
            for end in range(m.durable, m.next + 1):
                for bounds in sorted(m.disk, key=repr):
                    lose = partial(lose_power, end=end, bounds=bounds)
                    yield (
                        f"power loss: found {end}, {bounds}",
                        False,
                        partial(self.perform, state, lose, None),
                    )

    def perform(self, state, action, pid):
        m = Reservations(self, state)
        if action(m, pid) is False:
            return None
        return m.freeze()

    def visit(self, state):
        pass

    def stuck(self, state):
        return any(pc not in OVER and pc != "start" for pc, _, _ in Reservations(self, state).processes)


def go(m, pid, pc, value=0, done=0):
    m.processes = put(m.processes, pid, (pc, m.processes[pid][1] + done, value))


def next_call(m, pid, done=0):
    op = m.processes[pid][1] + done
    program = m.model.programs[pid]
    go(m, pid, program[op] if op < len(program) else "done", 0, done)


def kill(m, pid):
    m.kills -= 1
    leave(m, pid)
    go(m, pid, "gone")


def leave(m, pid):
    m.slots -= {pid}
    if m.opening == pid:
        m.opening = None


def lose_power(m, _, end, bounds):
    m.losses -= 1
    m.valid, m.opening, m.slots = False, None, frozenset()
    m.next = m.durable = end
    m.bounds, m.disk = bounds, frozenset([bounds])
    m.processes = tuple(p if p[0] == "start" else ("gone", 0, 0) for p in m.processes)


def write_bounds(m, reservation, *closed):
    """Writes `bounds` under its lock, which is held for this write only. Each field becomes the maximum, except for the
    closed end. There is no fdatasync yet."""
    m.bounds = max(m.bounds[0], reservation), closed[0] if closed else m.bounds[1]
    m.disk |= {m.bounds}


# --- Opening ---


@step("start")
def enter(m, pid):
    if m.opening is not None:
        return False
    m.opening = pid
    go(m, pid, "look")


@step("look")
def look(m, pid):
    """Opens alone. The numbers in the page, or the end found on the disk, say where numbering continues. A killed recovery
    or opening has at most made the reservation longer."""
    if m.slots:
        return go(m, pid, "take slot")
    reservation, closed = m.bounds
    first = m.next
    if not m.valid and closed != first and m.model.wrong != "numbering goes on at the end that was found":
        first = reservation
    if closed is None and m.valid and m.model.wrong == "opener that finds no closed end does not sync":
        return go(m, pid, "take slot")
    go(m, pid, "take away", first)


@step("take away")
def take_away(m, pid):
    """Removes the closed end, and makes the first reservation with the same write."""
    first = m.processes[pid][2]
    if m.valid and m.model.wrong == "the closed end is taken away, but not durably":
        write_bounds(m, 0, None)  # the page's limit is valid, so the sync seems needless
        return go(m, pid, "page", (first, m.limit))
    write_bounds(m, first + STRIDE, None)
    go(m, pid, "sync opening", (first, m.bounds[0]))


@step("sync opening")
def sync_opening(m, pid):
    """Syncs even if nothing changed: a process killed here may have written it and not synced it."""
    m.disk = frozenset([m.bounds])
    go(m, pid, "page", m.processes[pid][2])


@step("page")
def make_page(m, pid):
    first, reservation = m.processes[pid][2]
    m.limit = max(m.limit, reservation) if m.valid else reservation
    m.next, m.valid = first, True
    go(m, pid, "take slot")


@step("take slot")
def take_slot(m, pid):
    m.slots |= {pid}
    m.opening = None
    next_call(m, pid)


# --- Appending, and making the reservation longer ---


@step("append")
def append(m, pid):
    if m.next == m.limit:
        return go(m, pid, "reservation")
    if m.next < m.ever:
        raise Violation(f"number {m.next} is given out again: all before {m.ever} has been")
    m.next += 1
    m.ever = m.next
    next_call(m, pid, done=1)


@step("sync")
def sync(m, pid):
    m.durable = m.next
    next_call(m, pid, done=1)


@step("reservation")
def reservation(m, pid):
    """Notes the value before the fdatasync: values that others write meanwhile are theirs to sync."""
    if m.model.wrong == "an opener that finds the reservation long enough does not sync it" and m.bounds[0] > m.limit:
        return go(m, pid, "raise", m.bounds[0])
    if m.model.wrong == "bounds is read before its lock is taken":
        return go(m, pid, "write late", max(m.bounds[0], m.next + STRIDE))
    write_bounds(m, m.next + STRIDE)
    go(m, pid, "sync reservation", m.bounds[0])
    if m.model.wrong == "the limit is raised before the fdatasync":
        m.limit = max(m.limit, m.bounds[0])


@step("write late")
def write_late(m, pid):
    m.bounds = m.processes[pid][2], m.bounds[1]
    m.disk |= {m.bounds}
    go(m, pid, "sync reservation", m.bounds[0])


@step("sync reservation")
def sync_reservation(m, pid):
    m.disk = frozenset([m.bounds])
    go(m, pid, "raise", m.processes[pid][2])
    if m.model.wrong == "the limit is raised to what stands in bounds after the fdatasync":
        go(m, pid, "raise", -1)


@step("raise")
def raise_limit(m, pid):
    value = m.processes[pid][2]
    m.limit = max(m.limit, m.bounds[0] if value < 0 else value)
    next_call(m, pid)


# --- Closing ---


@step("close")
def close(m, pid):
    """Holds the opening lock from the look around until the writer slot is free."""
    if m.opening is not None:
        return False
    if m.slots == {pid}:
        if m.model.wrong != "the last close looks around without the opening lock":
            m.opening = pid
        return go(m, pid, "note end")
    leave(m, pid)
    go(m, pid, "done")


@step("note end")
def write_closed_end(m, pid):
    """Writes the closed end. The records up to there need not be durable: a recovery compares this end with the end that it
    finds."""
    write_bounds(m, 0, m.next)
    go(m, pid, "sync end")


@step("sync end")
def sync_end(m, pid):
    m.disk = frozenset([m.bounds])
    go(m, pid, "leave")
    if m.model.wrong == "close lets the opening lock go before its slot" and m.opening == pid:
        m.opening = None


@step("leave")
def leave_last(m, pid):
    leave(m, pid)
    go(m, pid, "done")


A, S, C = "append", "sync", "close"

SCENARIOS = [
    ReservationModel("reservations: no process closes", ((A, A, A), (A, A), (A, A)), losses=2, quick=False),
    ReservationModel("reservations: closed and opened", ((A, C), (A, A, C), (A, S, C), (A,)), losses=2, quick=False),
    ReservationModel("reservations: openings that are killed", ((A, C), (A, C), (A,), (A,)), kills=2, losses=2, quick=False),
    ReservationModel("reservations: closing and synced", ((A, S, C), (A, C), (A, A)), losses=2),
]


def wrong(mistake, *programs, **options):
    return ReservationModel("", programs, wrong=mistake, **options)


MISTAKES = [
    wrong("the limit is raised before the fdatasync", (A, A, A), (A,), (A,), kills=0),
    wrong("the limit is raised to what stands in bounds after the fdatasync", (A, A, A), (A, A, A), (A, A)),
    wrong("an opener that finds the reservation long enough does not sync it", (A, A, A), (A, A, A), (A,)),
    wrong("bounds is read before its lock is taken", (A, A, A), (A, A, A, A), (A, A), kills=0),
    wrong("numbering goes on at the end that was found", (A,), (A,), kills=0),
    wrong("the closed end is taken away, but not durably", (A, S, C), (A,), (A,), kills=0),
    wrong("opener that finds no closed end does not sync", (A, S, C), (A,), (A,), (A,)),
    wrong("the last close looks around without the opening lock", (S, A, S, C), (A,), (A,), kills=0),
    wrong("close lets the opening lock go before its slot", (A, S, C), (A,), (A,), kills=0),
]

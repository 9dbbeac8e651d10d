"""A fork beside threads that open and close the lock file: the descriptors that the child has, and its use of them.

This is a small model of its own. A lock belongs to the open file description. It is held until the last descriptor of that
description is closed, in any process, or until any of them unlocks it. Each file that is opened without the GIL is a step,
except under the mutex that a fork waits for.

Models: pyx/system/fork.h, pyx/system/lock.pyx.
"""

from operator import attrgetter

from small import OVER, Small, SmallModel, Steps
from world import Violation, put

PARENT, CHILD = "parent", "child"
TWO_STEPS = "what is opened is noted in a second step"  # the older code


class Forking(Small):
    FIELDS = (
        "descriptors",  # of each open descriptor: ((process, number), owner of that lock file)
        "noted",  # descriptor numbers that a child closes
        "locked",  # owners of the lock files whose descriptions have a lock
        "mutex",  # thread that holds the mutex, or None
        "has",  # descriptor number that each thread has open, or None
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def open_file(self, process, whose):
        """Opens at the lowest free number."""
        used = {number for (owner, number), _ in self.descriptors if owner == process}
        number = min(set(range(len(used) + 1)) - used)
        self.descriptors = tuple(sorted([*self.descriptors, ((process, number), whose)]))
        return number

    def close_file(self, process, number):
        self.descriptors = tuple(d for d in self.descriptors if d[0] != (process, number))
        self.locked &= {whose for _, whose in self.descriptors}


step = Steps()


class ForkingModel(SmallModel):
    """The last thread forks. Its child is one more thread, with the next number."""

    Fields, STEPS = Forking, step

    def start(self):
        threads = (*self.first_threads(), ("start", 0, ()))
        return (), frozenset(), frozenset(), None, (None,) * len(threads), threads, self.kills

    def child(self):
        return len(self.programs)

    def process(self, pid):
        return self.child() if pid == self.child() else 0

    def died(self, m, process):
        mine = PARENT if process == 0 else CHILD
        for (owner, number), _ in m.descriptors:
            if owner == mine:
                m.close_file(mine, number)

    def check(self, m):
        child = {whose for (process, _), whose in m.descriptors if process == CHILD}
        parent = {whose for (process, _), whose in m.descriptors if process == PARENT}
        if m.threads[self.child()][0] not in ("start", "in child") and child - {self.child()}:
            raise Violation(f"a child has the parent's lock files: {child}; what is locked stays so if that dies")
        for pid, number in enumerate(m.has):
            lives = m.threads[pid][0] not in OVER | {"close", "take off"}
            if number is not None and lives and pid not in (child if pid == self.child() else parent):
                raise Violation(f"the lock file of thread {pid} was closed by another thread")
            if number is not None and m.threads[pid][0] == "use" and pid not in m.locked:
                raise Violation(f"what thread {pid} has locked is free")


def take_mutex(m, pid):
    if m.mutex is not None:
        return False
    m.mutex = pid
    return True


# --- A thread that opens and closes ---


@step("open")
def open_and_note(m, pid):
    """Opens and enters the list under the mutex that a fork waits for: so these are one step."""
    if m.mutex is not None:
        return False
    number = m.open_file(CHILD if pid == m.model.child() else PARENT, pid)
    m.has = put(m.has, pid, number)
    if m.wrong(TWO_STEPS):
        return m.go(pid, "note")
    m.noted |= {number}
    m.go(pid, "lock")


@step("note")
def note(m, pid):
    if m.mutex is not None:
        return False
    m.noted |= {m.has[pid]}
    m.go(pid, "lock")


@step("lock")
def lock(m, pid):
    m.locked |= {pid}
    m.go(pid, "use")


@step("use")
def use(m, pid):
    m.go(pid, "close")


@step("close")
def close(m, pid):
    """Closes, and removes the number from the list too. This is one step for a fork, and for a thread that gets the number
    next."""
    if m.mutex is not None:
        return False
    if not m.wrong("what is closed is taken off the list first, in a step of its own"):
        m.close_file(PARENT, m.has[pid])
    if m.wrong("what is closed is taken off the list in a second step"):
        return m.go(pid, "take off")
    m.noted -= {m.has[pid]}
    if m.wrong("what is closed is taken off the list first, in a step of its own"):
        return m.go(pid, "take off")
    over(m, pid)


@step("take off")
def take_off(m, pid):
    if m.mutex is not None:
        return False
    m.noted -= {m.has[pid]}
    if m.wrong("what is closed is taken off the list first, in a step of its own"):
        m.close_file(PARENT, m.has[pid])
    over(m, pid)


def over(m, pid):
    m.has = put(m.has, pid, None)
    m.next_call(pid)


# --- The thread that forks, and its child ---


@step("fork")
def prepare_to_fork(m, pid):
    """Runs before the fork; threads that open or close wait."""
    if not take_mutex(m, pid):
        return False
    m.go(pid, "fork now")


@step("fork now")
def fork(m, pid):
    child = m.model.child()
    mine = [((CHILD, number), whose) for (process, number), whose in m.descriptors if process == PARENT]
    m.descriptors = tuple(sorted([*m.descriptors, *mine]))
    m.go(child, "in child", m.noted)
    if m.mutex == pid:
        m.mutex = None
    m.next_call(pid)


@step("in child")
def close_in_child(m, pid):
    """Closes the numbers before anything else runs in the child. It unlocks nothing."""
    for number in m.memory(pid):
        if m.wrong("a child unlocks what it has") and ((CHILD, number), 0) in m.descriptors:
            m.locked -= {0}
        m.close_file(CHILD, number)
    m.go(pid, "open in child")


@step("open in child")
def open_in_child(m, pid):
    """Opens a journal of the child's own, at the same numbers."""
    m.has = put(m.has, pid, m.open_file(CHILD, pid))
    m.locked |= {pid}
    m.go(pid, "forget")


@step("forget")
def forget(m, pid):
    """Drops objects of the parent too. The token tells them that they are in a child, and the tickets that other
    files have their numbers."""
    if m.wrong("an object of the parent closes its descriptor in a child"):
        m.close_file(CHILD, 0)
    m.go(pid, "used")


@step("used")
def used(m, pid):
    m.go(pid, "done")


OPEN, FORK = ("open",), ("fork",)

SCENARIOS = [
    ForkingModel("forking: beside two that open and close", (OPEN + OPEN, OPEN + OPEN, FORK)),
]


def wrong(mistake, *programs, **options):
    return ForkingModel("", programs, wrong=mistake, **{"kills": 0, **options})


MISTAKES = [
    wrong(TWO_STEPS, OPEN, FORK),
    wrong("what is closed is taken off the list in a second step", OPEN, OPEN, FORK),
    wrong("what is closed is taken off the list first, in a step of its own", OPEN, FORK),
    wrong("a child unlocks what it has", OPEN, FORK),
    wrong("an object of the parent closes its descriptor in a child", OPEN, FORK),
]

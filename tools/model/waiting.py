"""The locks that a call holds while it waits for another lock: all calls keep one order, and no wait is without an end.

This is a small model of its own. A call is the locks that it takes and frees, and any three calls of three processes come
together. One of the processes is stopped at any moment, for good. All the others end: their call is done, or it waits for a
lock of the stopped one until its lock_timeout has passed.

Models: pyx/append/operations.pyx, pyx/process/locks.pyx, pyx/system/lock.pyx.
"""

from functools import partial
from itertools import combinations_with_replacement
from operator import attrgetter

from small import OVER, Small, SmallModel, Steps
from world import Violation, put

# From the outermost on. A thread that waits for a lock holds neither that lock nor one that stands after it.
ORDER = ("opening", "table", "copies", "sync", "append", "write", "bounds")
LAST = ("append", "write", "bounds")  # a thread that has one of these waits for no lock
# "?": the lock is taken if it is free, without a wait. "|": a wait that may end with another way.
CALLS = {
    "append": ("+append", "-append"),
    "append, which closes a block": ("+append", "?write", "-append", "-write"),
    "append, after an immutable block": ("+append", "-append", "+write", "-write", "+append", "-append"),
    "append, whose reservation is at its end": ("+append", "-append", "+bounds", "-bounds", "+append", "-append"),
    "append, which meets limit_bytes": (
        "+append",
        "-append",
        "+table",
        "?copies",
        "+bounds",
        "-bounds",
        "-copies",
        "-table",
    ),
    "sync": ("|sync", "+append", "-append", "+write", "-write", "-sync", "?bounds", "-bounds"),
    "commit": ("?table", "?copies", "?bounds", "-bounds", "-copies", "-table"),
    "clean": ("+table", "?copies", "+bounds", "-bounds", "-copies", "-table"),
    "open": ("+opening", "+bounds", "-bounds", "-opening"),
    "open, with other options": ("+opening", "+append", "-append", "-opening"),
    "close": ("+opening", "|sync", "+append", "-append", "-sync", "+bounds", "-bounds", "-opening"),
}
WRONG_CALLS = {
    "a reservation is taken with the append lock held": {"append": ("+append", "+bounds", "-bounds", "-append")},
    "the write lock is waited for with the append lock held": {
        "append": ("+append", "+write", "-append", "-write"),
        "sync": ("|sync", "+write", "+append", "-append", "-write", "-sync"),
    },
    "a commit waits for a process that cleans": {"commit": ("+table", "+bounds", "-bounds", "-table")},
    "a sync waits for the holder of the sync lock": {"sync": ("!sync", "+append", "-append", "-sync")},
    "a reservation waits without a limit": {"append": ("+append", "-append", "!bounds", "-bounds")},
    "an opening waits without a limit": {"open": ("!opening", "+bounds", "-bounds", "-opening")},
}


class Waiting(Small):
    FIELDS = (
        "holders",  # owner of each lock, in the order of ORDER: a thread, or None
        "stopped",  # the thread that is stopped, or None
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def held(self, pid):
        return [lock for lock, holder in zip(ORDER, self.holders) if holder == pid]

    def holder(self, lock):
        return self.holders[ORDER.index(lock)]

    def set_holder(self, lock, holder):
        self.holders = put(self.holders, ORDER.index(lock), holder)

    def went_on(self, pid):
        call, at = self.memory(pid)
        self.go(pid, "in a call", (call, at + 1))


step = Steps()


class WaitingModel(SmallModel):
    Fields, STEPS = Waiting, step

    def start(self):
        return None

    def begin(self, calls):
        threads = tuple(("in a call", 0, (call, 0)) for call in calls)
        return (None,) * len(ORDER), None, threads, 0

    def calls(self):
        return {**CALLS, **WRONG_CALLS.get(self.wrong, {})}

    def moves(self, state):
        """Yields steps; the stopped thread takes none."""
        if state is None:
            for calls in combinations_with_replacement(CALLS, len(self.programs)):
                yield " and ".join(calls), True, partial(self.begin, calls)
            return
        stopped = Waiting(self, state).stopped
        for name, counts, perform in super().moves(state):
            if stopped is None or not name.startswith(f"{stopped}:"):
                yield name, counts, perform

    def others(self, m):
        for pid, (pc, _, _) in enumerate(m.threads):
            if m.stopped is None and pc == "in a call":
                yield f"{pid} is stopped", lambda m, _, pid=pid: setattr(m, "stopped", pid)

    def stuck(self, state):
        m = Waiting(self, state)
        return any(pc not in OVER and pid != m.stopped for pid, (pc, _, _) in enumerate(m.threads))


@step("in a call")
def take_or_free(m, pid):
    call, at = m.memory(pid)
    steps = m.model.calls()[call]
    if at == len(steps):
        return m.next_call(pid)
    how, lock = steps[at][0], steps[at][1:]
    if how == "-":
        if m.holder(lock) == pid:
            m.set_holder(lock, None)
        return m.went_on(pid)
    if how != "?":
        later = [held for held in m.held(pid) if held in LAST or ORDER.index(held) >= ORDER.index(lock)]
        if later:
            raise Violation(f"{call} waits for {lock} while it has {later}")
    if m.holder(lock) is None:
        m.set_holder(lock, pid)
        return m.went_on(pid)
    if how != "?":
        return False
    m.went_on(pid)


@step("in a call")
def lose_patience(m, pid):
    """The limit of the call has passed: it frees its locks and raises. Or it goes another way, beside the owner."""
    call, at = m.memory(pid)
    steps = m.model.calls()[call]
    if at == len(steps) or steps[at][0] not in "+|" or m.holder(steps[at][1:]) is None:
        return False
    if steps[at][0] == "|":
        return m.went_on(pid)
    if call == "commit":
        raise Violation(f"a commit fails, for another one has {steps[at][1:]}")
    for lock in m.held(pid):
        m.set_holder(lock, None)
    m.next_call(pid)


SCENARIOS = [
    WaitingModel("waiting: any two calls, and one of them is stopped", ((),) * 2),
    WaitingModel("waiting: any three calls, and one of them is stopped", ((),) * 3, quick=False),
]
MISTAKES = [WaitingModel("", ((),) * 2, wrong=mistake) for mistake in WRONG_CALLS]

"""A journal in one process, from its opening to its closing: users, calls, and the maintenance thread.

This is a small model of its own. The threads are those of one process. Everything that a thread does between two moments at
which it releases the GIL is one step. Another process may hold the opening lock meanwhile.

Models: pyx/process/process.pyx, pyx/write/attachment.pyx, pyx/write/maintenance.pyx.
"""

from operator import attrgetter

from small import OVER, Small, SmallModel, Steps
from world import Violation, put

OPENING, OPEN, CLOSING, CLOSED = "opening", "open", "closing", "closed"
NO_STATE = "calls begin while it is closing"  # the older design: it closes where it is seen to be open


class Living(Small):
    FIELDS = (
        "all",  # each attachment: (life, users, pins, is mapped, has its writer slot, thread that opens or closes it)
        "registry",  # the attachment that calls find, or None
        "gate",  # attachment that has the opening lock; -1: another process
        "maintenance",  # thread of each: "", "on", "stopping", "off"
        "has",  # attachment that each thread uses, or None
        "threads",  # threads of the program, and the maintenance thread of each attachment
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def get(self, at):
        return dict(zip(("life", "users", "pins", "mapped", "slot", "worker"), self.all[at]))

    def set(self, at, **changes):
        self.all = put(self.all, at, tuple({**self.get(at), **changes}.values()))

    def go_on(self, pid, pc):
        """Moves the thread to another label, with the same memory."""
        self.go(pid, pc, self.memory(pid))


step = Steps()


class LivingModel(SmallModel):
    Fields, STEPS = Living, step
    ATTACHMENTS = 3  # number of openings at most

    def start(self):
        spare = ("gone", 0, ("maintenance",))
        threads = self.first_threads() + (spare,) * self.ATTACHMENTS
        return (), None, -1, (), (None,) * len(threads), threads, 0

    def process(self, _):
        return 0

    def others(self, m):
        if m.gate == -1:
            yield "the other process lets the opening lock go", free_gate

    def check(self, m):
        if sum(m.get(at)["life"] == OPEN for at in range(len(m.all))) > 1:
            raise Violation("the process has the journal open twice")
        if any(at is not None and m.get(at)["life"] != OPEN for at in m.has):
            raise Violation("a thread uses what is closed")
        if all(pc in OVER for pc, _, _ in m.threads):
            for found in map(m.get, range(len(m.all))):
                if found["users"] == 0 and (found["life"] != CLOSED or found["mapped"] or found["slot"]):
                    raise Violation(f"no thread uses it any more, and it is not closed: {found}")


def free_gate(m, _):
    m.gate = None


def touch(m, at):
    """Checks a call, which reads the page without the GIL."""
    if not m.get(at)["mapped"]:
        raise Violation("a call reads the page, which is not mapped any more")


# --- Attaching ---


@step("attach")
def attach(m, pid):
    """Enters the registry before the journal is open, so that no thread opens it a second time."""
    at = m.registry
    if at is None:
        m.all = (*m.all, (OPENING, 0, 0, False, False, pid))
        m.maintenance = (*m.maintenance, "")
        if not m.wrong("it is in the registry once it is open"):
            m.registry = len(m.all) - 1
        return m.go(pid, "enter", len(m.all) - 1)
    found = m.get(at)
    if found["life"] == OPENING:
        return False  # waits
    if found["life"] == OPEN or m.wrong("an entry is used in whatever state it is"):
        m.set(at, users=found["users"] + 1)
        m.has = put(m.has, pid, at)
        return m.next_call(pid)
    return False


@step("enter")
def enter(m, pid):
    """Opens with the opening lock, which another process may hold for any time."""
    if m.gate is not None:
        return False
    at = m.memory(pid)
    m.registry = at
    m.set(at, life=OPEN, users=1, mapped=True, slot=True, worker=None)
    m.has = put(m.has, pid, at)
    m.next_call(pid)


@step("enter")
def fail_to_enter(m, pid):
    """The lock_timeout has passed. The threads that wait for it try for themselves."""
    if m.gate is None:
        return False
    at = m.memory(pid)
    m.set(at, life=CLOSED, worker=None)
    if m.registry == at:
        m.registry = None
    m.go(pid, "failed")


# --- Calls, and the maintenance thread ---


def may_call(m, pid, at):
    found = m.get(at)
    if m.wrong(NO_STATE):
        return found["life"] != CLOSED
    return found["life"] == OPEN or (found["life"] == CLOSING and found["worker"] == pid)


def pin(m, at, change=1):
    m.set(at, pins=m.get(at)["pins"] + change)


@step("call", "call of the first")
def begin_call(m, pid):
    """Begins a call. Other threads than its maker may use a Writer, and may close it beside a call."""
    at = m.has[0 if m.threads[pid][0] == "call of the first" else pid]
    if at is None or not may_call(m, pid, at):
        return m.next_call(pid)  # JournalClosed
    if not m.wrong("a call does not pin"):
        pin(m, at)
    m.go(pid, "in a call", at)


@step("in a call")
def do_call(m, pid):
    touch(m, m.memory(pid))
    start_maintenance(m, m.memory(pid))
    m.go_on(pid, "unpin")


def start_maintenance(m, at):
    if m.maintenance[at] == "":
        m.maintenance = put(m.maintenance, at, "on")
        m.threads = put(m.threads, len(m.model.programs) + at, ("maintenance", 0, at))


@step("unpin")
def unpin(m, pid):
    """Ends a call. The last call closes the attachment if its users have gone meanwhile."""
    at = m.memory(pid)
    if not m.wrong("a call does not pin") or pid >= len(m.model.programs):
        pin(m, at, -1)
    if m.wrong("the last call to end leaves it to others") or not close_if_last(m, pid, at):
        return_from(m, pid)


@step("maintenance")
def wake_up(m, pid):
    at = m.memory(pid)
    if m.maintenance[at] == "stopping":
        return end_maintenance(m, pid)
    m.go_on(pid, "keep up")


@step("keep up")
def maintain(m, pid):
    """Goes on, unless the thread was told to stop meanwhile."""
    at = m.memory(pid)
    if not may_call(m, pid, at):
        return end_maintenance(m, pid)
    pin(m, at)
    m.go_on(pid, "keeping up")


def end_maintenance(m, pid):
    m.maintenance = put(m.maintenance, m.memory(pid), "off")
    m.go(pid, "done")


@step("keeping up")
def do_maintain(m, pid):
    touch(m, m.memory(pid))
    m.go_on(pid, "unpin")


def return_from(m, pid):
    if pid < len(m.model.programs):
        return m.next_call(pid)
    m.go_on(pid, "maintenance")


# --- Detaching ---


@step("detach")
def detach(m, pid):
    """Detaches. The last user stops the thread and waits for it. A pin makes sure that the attachment is closed here."""
    at = leave(m, pid)
    if at is None:
        return m.next_call(pid)
    pin(m, at)
    m.go(pid, "stop", at)


@step("drop")
def drop(m, pid):
    """Detaches when the garbage collector calls, at any point: it waits for no thread."""
    at = leave(m, pid)
    if at is None or not close_if_last(m, pid, at):
        return m.next_call(pid)


def leave(m, pid):
    """Returns None if there are other users."""
    at = m.has[pid]
    if at is None:
        return None
    m.has = put(m.has, pid, None)
    m.set(at, users=m.get(at)["users"] - 1)
    if m.get(at)["users"]:
        return None
    if m.maintenance[at] == "on":
        m.maintenance = put(m.maintenance, at, "stopping")
    return at


@step("stop")
def stop_maintenance(m, pid):
    """Closes, unless another thread has attached meanwhile: then it stays open."""
    at = m.memory(pid)
    if m.maintenance[at] == "stopping":
        return False
    pin(m, at, -1)
    if not close_if_last(m, pid, at):
        m.next_call(pid)


def close_if_last(m, pid, at):
    """Returns whether no user is left and no call is under way. From this moment no call begins."""
    found = m.get(at)
    if found["users"] or found["life"] not in ((OPEN, CLOSING) if m.wrong(NO_STATE) else (OPEN,)):
        return False
    if found["pins"] and not m.wrong("the thread that gives it back closes it beside a call"):
        return False
    m.set(at, life=CLOSING, worker=pid)
    if m.registry == at and not m.wrong("an entry is used in whatever state it is"):
        m.registry = None
    m.go(pid, "close", at)
    return True


@step("close")
def close(m, pid):
    if m.gate is not None:
        return False
    m.gate = m.memory(pid)
    m.go_on(pid, "note end")


@step("close")
def give_up_closing(m, pid):
    """The lock_timeout has passed: the next process to open alone completes the work."""
    if m.gate is None:
        return False
    m.go_on(pid, "let go")


@step("note end")
def write_closed_end(m, pid):
    """Makes calls like any others, of the closing thread alone."""
    touch(m, m.memory(pid))
    m.gate = None
    m.go_on(pid, "let go")


@step("let go")
def let_go(m, pid):
    at = m.memory(pid)
    found = m.get(at)
    if found["life"] == CLOSED:
        raise Violation("it is closed twice: its descriptors may be another's by now")
    m.set(at, life=CLOSED, mapped=False, slot=False, worker=None)
    if m.registry == at:
        m.registry = None
    return_from(m, pid)


A, C, D, X, F = ("attach",), ("call",), ("detach",), ("drop",), ("call of the first",)

SCENARIOS = [
    LivingModel("living: dropped in one thread, used in another", (A + C + X + A + D, A + C + F + C + X)),
    LivingModel("living: closed beside calls", (A + C + D, F + F, A + F + X)),
    LivingModel("living: three threads", (A + C + D + A + X, A + C + X + F, A + C + F + D), quick=False),
]


def wrong(mistake, *programs, **options):
    return LivingModel("", programs, wrong=mistake, **options)


MISTAKES = [
    wrong(NO_STATE, A + C + X),
    wrong("a call does not pin", A + C + X, F),
    wrong("the thread that gives it back closes it beside a call", A + C + X, A + C + X),
    wrong("the last call to end leaves it to others", A + C + X),
    wrong("it is in the registry once it is open", A + C + X, A + C + X),
    wrong("an entry is used in whatever state it is", A + C + X, A + C + X),
]

"""Recovery after a power loss, in steps. They may be killed half way, the next process to open repeats them, and a reader
watches them that changes nothing. A second power loss may come between any two of them.

This is a small model of its own. Appending is one step. Each number has the value (number, life), and a life is the time
between two power losses. The first power loss has left any mixture of whole and torn blocks after the synced mark, and any
image of the body. In other scenarios only processes have died, and the process that opens was told another boot id. A write
back may have been killed, or have failed after its pwrite, and the open block has taken more records since.

Models: pyx/recover/recovery.pyx, pyx/recover/scan.pyx, pyx/write/opening.pyx.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product

from found import (
    BLOCKS,
    FIRST_LIFE,
    SHORTER,
    STRIDE,
    Recovery,
    check,
    lose_power,
    of_files,
    of_page,
    outcomes,
    scan,
    stored,
    with_bodies,
)
from world import Violation, put

OVER = {"done", "gone"}
VALID = ("valid", "valid elsewhere")

STEPS = {}


def step(label):
    def register(function):
        STEPS[label] = function
        return function

    return register


RIGHT = ("at work", "add", "cut", "sync segment", "new segment", "sync directory", "bounds", "sync bounds")
RIGHT += ("page", "valid", "slot")


def swapped(*pair):
    """Returns the right order, with one step moved before another."""
    early, late = pair
    order = [name for name in RIGHT if name != early]
    order.insert(order.index(late), early)
    return tuple(order)


ORDERS = {
    "recoverer takes its slot first": swapped("slot", "at work"),
    "recoverer takes its slot before the page is valid": swapped("slot", "add"),
    "the new segment begins before the old one is synced": tuple(n for n in RIGHT if n != "sync segment"),
    "the mark moves before the directory is synced": (
        *("at work", "add", "cut", "sync segment", "new segment", "bounds", "sync bounds"),
        *("sync directory", "page", "valid", "slot"),
    ),
    "the page is valid before the directory and the reservation are synced": (
        *("at work", "add", "cut", "sync segment", "new segment", "page", "valid", "slot"),
        *("sync directory", "bounds", "sync bounds"),
    ),
    "the page is valid before the reservation is synced": (
        *("at work", "add", "cut", "sync segment", "new segment", "sync directory", "bounds"),
        *("page", "valid", "slot", "sync bounds"),
    ),
    "the page is valid before it is filled": swapped("valid", "page"),
    "the page is filled before the body is in the segment": swapped("page", "add"),
    "the body is not added": tuple(name for name in RIGHT if name != "add"),
}
# These are not mistakes. Each of them holds too, and shows a step on which no promise depends.
OTHER_ORDERS = {
    "recovery: cut before the body is added": swapped("cut", "add"),
}


@dataclass(frozen=True)
class RecoveryModel:
    name: str
    programs: tuple
    kills: int = 1
    losses: int = 1
    reader: bool = True
    wrong: str = ""
    quick: bool = True
    elsewhere: frozenset = frozenset()  # processes that are told another boot id

    def start(self):
        return None

    def moves(self, state):
        if state is None:
            for whole in product((True, False), repeat=2):
                for body in range(1, 5):
                    yield (
                        f"power loss: whole {whole}, body of {body}",
                        True,
                        partial(self.power_loss, whole, body),
                    )
            yield "the page is lost, all else is there and little of it synced", True, self.page_lost
            for shorter, immutable in product((True, False), repeat=2):
                yield (
                    f"only processes died: shorter block {shorter}, immutable block {immutable}",
                    True,
                    partial(self.only_processes_died, shorter, immutable),
                )
            return
        m = Recovery(self, state)
        for pid, (pc, _, _) in enumerate(m.processes):
            if pc in STEPS:
                yield f"{pid}: {STEPS[pc].__name__}", True, partial(self.perform, state, STEPS[pc], pid)
            if m.kills and pc not in OVER and pc not in ("start", "dead"):
                yield f"{pid} is killed at {pc!r}", False, partial(self.perform, state, kill, pid)
        if self.reader:
            yield f"reader: {m.reader[0]}", False, partial(self.perform, state, read, None)
        if m.losses:
            for chosen in outcomes(m):
                yield (
                    f"power loss: {chosen}",
                    False,
                    partial(self.perform, state, partial(lose_power, chosen), None),
                )

    def power_loss(self, whole, body):
        """Starts with record 0 synced. The page in the file is of the old boot, in which record 3 was in the open block."""
        blocks = (BLOCKS[0], *(block if there else None for block, there in zip(BLOCKS[1:3], whole)))
        page = "old boot", (0, 3, BLOCKS[body : body + 1])
        files, disk = ((0, (0, blocks)),), ((0, frozenset([(0, blocks)])),)
        return self.opened(page, files, disk, (frozenset([0]),) * 2, frozenset())

    def page_lost(self):
        """Starts in a container with a boot id of its own, or after damage: the page is not believed, and the page cache is
        dirty."""
        first, second = (0, BLOCKS[:2]), (2, BLOCKS[2:3])
        disk = (
            frozenset([first, (0, BLOCKS[:1]), (0, (BLOCKS[0], None))]),
            frozenset([second, (2, ()), None]),
        )
        files, entries = ((0, first), (2, second)), (frozenset([0]), frozenset([0, 2]))
        return self.opened(("old boot", (2, 1, BLOCKS[3:])), files, tuple(zip((0, 2), disk)), entries, FIRST_LIFE)

    def only_processes_died(self, shorter, immutable):
        """Starts with a process that was told another boot id. A block of one record stands in the place of a longer body,
        or no block does."""
        bodies = (FIRST_LIFE[1:3], FIRST_LIFE[3:]) if immutable else (FIRST_LIFE[1:],)
        content = 0, BLOCKS[: 1 + shorter]
        disk = frozenset([content, (0, BLOCKS[:1]), (0, (BLOCKS[0], None))])
        page = "old boot", (0, 1, bodies)
        return self.opened(page, ((0, content),), ((0, disk),), (frozenset([0]),) * 2, FIRST_LIFE)

    def opened(self, page, files, disk, entries, seen):
        bounds, start = (0, STRIDE), (("start", 0, ()),) * len(self.programs)
        locks = None, frozenset()
        reader = ("look for slots", False, ()) if self.reader else ()
        records = frozenset(FIRST_LIFE), frozenset(seen), frozenset(FIRST_LIFE[:1])
        return (*page, files, disk, entries, bounds, frozenset([bounds]), *locks, start, reader, *records,
                1, self.kills, self.losses)  # fmt: skip

    def perform(self, state, action, pid):
        m = Recovery(self, state)
        if action(m, pid) is False:
            return None
        return m.freeze()

    def visit(self, state):
        """Checks that a process that opened now would find every record that was seen in this life, and every record that
        was synced in any life."""
        if state is None:
            return
        m = Recovery(self, state)
        if m.status in VALID:
            check(m, of_page(m))
        if m.status not in VALID or (self.elsewhere and not m.slots):
            check(m, of_files(m))

    def stuck(self, state):
        return any(pc not in OVER and pc != "start" for pc, _, _ in Recovery(self, state).processes)


def kill(m, pid):
    """The kernel frees the locks of a dead process one by one. In the worst order the writer slot comes last."""
    m.kills -= 1
    go(m, pid, "dead" if pid in m.slots else "gone", ())
    if m.opening == pid:
        m.opening = None


@step("dead")
def release_slot(m, pid):
    m.slots -= {pid}
    go(m, pid, "gone")


def go(m, pid, pc, *found, done=0):
    _, op, old = m.processes[pid]
    m.processes = put(m.processes, pid, (pc, op + done, found[0] if found else old))


def next_step(m, pid, after):
    """Moves on to the next step of a recovery; when all are done, to the program."""
    order = {**ORDERS, **OTHER_ORDERS}.get(m.model.wrong or m.model.name, RIGHT)
    later = order[order.index(after) + 1 :]
    go(m, pid, later[0] if later else "let in")


def next_call(m, pid, done=0):
    program, op = m.model.programs[pid], m.processes[pid][1] + done
    go(m, pid, program[op] if op < len(program) else "done", (), done=done)


# --- Opening ---


@step("start")
def enter(m, pid):
    if m.opening is not None:
        return False
    m.opening = pid
    go(m, pid, "look")


@step("look")
def look(m, pid):
    """Opens the journal. While any writer slot is held, the page is true. For a process that is alone, a page of this boot
    means that only processes have died."""
    if m.slots or m.status == VALID[pid in m.model.elsewhere]:
        return go(m, pid, "join")
    order = {**ORDERS, **OTHER_ORDERS}.get(m.model.wrong or m.model.name, RIGHT)
    go(m, pid, order[0])


@step("join")
def join(m, pid):
    if m.status not in VALID:
        raise Violation(f"a slot is held, and the page that should be the truth is {m.status!r}")
    m.slots |= {pid}
    go(m, pid, "let in")


@step("let in")
def let_in(m, pid):
    m.opening = None
    next_call(m, pid)


# --- Recovery, under the opening lock ---


def plan(m):
    """Scans. No other process changes the files, so the result is the same at every step, except for the additions of this
    recovery."""
    segment, _, _, end = found = scan(m)
    return segment, *stored(m, m.open[2], found), end


@step("at work")
def say_at_work(m, pid):
    m.status = "at work"
    next_step(m, pid, "at work")


@step("add")
def add_body(m, pid):
    """Writes one body. A longer body is written over its block: if that is killed in between, no whole block is there."""
    segment, index, bodies, _ = plan(m)
    if not bodies:
        return next_step(m, pid, "add")
    stated, blocks = dict(m.files)[segment]
    torn = (None,) if m.processes[pid][2] != "torn" else bodies[:1]
    m.set_file(segment, (stated, blocks[:index] + torn + blocks[index + 1 :]))
    go(m, pid, "add", "torn" if torn == (None,) else ())


@step("cut")
def cut(m, pid):
    """Moves everything after the end to quarantine, and also the files after it."""
    segment, index, *_ = plan(m)
    stated, blocks = dict(m.files)[segment]
    m.set_file(segment, (stated, blocks[:index]))
    m.files = tuple(f for f in m.files if f[0] <= segment)
    m.entries = m.entries[0] & set(dict(m.files)), m.entries[1]
    next_step(m, pid, "cut")


@step("sync segment")
def sync_segment(m, pid):
    """Syncs everything from the synced mark on, not only the files that were cut: if there was no power loss, the page cache
    is dirty."""
    newest = plan(m)[0]
    for name, _ in m.files:
        if m.bounds[0] <= name <= newest and (name == newest or m.model.wrong != "only the segment that was cut is synced"):
            m.sync_file(name)
    next_step(m, pid, "sync segment")


@step("new segment")
def new_segment(m, pid):
    """Prepares and syncs the new segment in a file of another name, and then renames it."""
    *_, end = plan(m)
    name = max(end, m.bounds[1])
    certain = m.model.wrong != "the new segment is not synced before it gets its name"
    if name not in dict(m.files):  # otherwise a killed recovery has made it already, and no process has appended
        m.set_file(name, (end, ()), certain)
    next_step(m, pid, "new segment")


@step("sync directory")
def sync_directory(m, pid):
    m.sync_directory()
    m.disk = tuple(d for d in m.disk if d[0] in dict(m.files))
    next_step(m, pid, "sync directory")


@step("bounds")
def set_bounds(m, pid):
    newest = m.files[-1][0]
    m.set_bounds(newest, newest + STRIDE)
    next_step(m, pid, "bounds")


@step("sync bounds")
def sync_bounds(m, pid):
    m.bounds_disk = frozenset([m.bounds])
    next_step(m, pid, "sync bounds")


@step("page")
def fill_page(m, pid):
    """Stores generation, slots and words in several stores. No process looks at them while the page says that a recovery is
    at work."""
    m.open = m.files[-1][0], len(m.files[-1][1][1]), ((),)
    next_step(m, pid, "page")


@step("valid")
def page_is_valid(m, pid):
    m.status = VALID[pid in m.model.elsewhere]
    next_step(m, pid, "valid")


@step("slot")
def take_slot(m, pid):
    m.slots |= {pid}
    next_step(m, pid, "slot")


# --- Then it appends and syncs ---


@step("append")
def append(m, pid):
    """Appends one record as a block of its own. An older block is written back first."""
    if sum(m.open[2], ()):
        write_back(m)
    publish(m)
    next_call(m, pid, done=1)


@step("more")
def append_more(m, pid):
    """Appends one record to the open block as it is."""
    publish(m)
    next_call(m, pid, done=1)


@step("leave")
def leave_block(m, pid):
    """Writes the block back, and fails after the pwrite: the block stays open."""
    segment, index, (body,) = m.open
    stated, blocks = dict(m.files)[segment]
    if body:
        m.set_file(segment, (stated, blocks[:index] + (body,)))
    next_call(m, pid, done=1)


def publish(m):
    segment, index, (body,) = m.open
    number = segment + sum(map(len, dict(m.files)[segment][1][:index])) + len(body)
    if number in {n for n, _ in m.given}:
        raise Violation(f"number {number} is given out again")
    m.open = segment, index, ((*body, (number, m.life)),)
    m.given |= {(number, m.life)}
    m.seen |= {(number, m.life)}


def write_back(m):
    segment, index, bodies = m.open
    stated, blocks = dict(m.files)[segment]
    m.set_file(segment, (stated, blocks[:index] + bodies))
    m.open = segment, index + len(bodies), ((),)


@step("sync")
def sync(m, pid):
    """Syncs every segment from the synced mark on, and the directory if one of them is after the mark."""
    if sum(m.open[2], ()):
        write_back(m)
    mark, newest = m.bounds[0], m.open[0]
    for name, _ in m.files:
        if name >= mark:
            m.sync_file(name)
    if newest > mark:
        m.sync_directory()
    m.durable = frozenset(of_page(m))
    next_call(m, pid, done=1)


# --- A reader ---


def read(m, _):
    """Reads. It trusts the page while a writer slot is held, or if the page is valid. Otherwise it computes the end from the
    files."""
    pc, held, found = m.reader
    if pc == "look for slots":
        m.reader = "look at the page", bool(m.slots), ()
    elif pc == "look at the page":
        trusts = m.status == "valid" or (held and m.status != "at work")  # "valid elsewhere" needs a writer slot that is held
        m.reader = ("trust it", False, m.status) if trusts else ("scan", False, ())
    elif pc == "trust it":
        if m.status == found:
            take(m, of_page(m))
        else:  # no writer slot was held, and a process of another boot id recovers: the generation has changed
            m.reader = "look for slots", False, ()
    elif pc == "scan":
        m.reader = "body", False, (scan(m), m.files)
    elif pc == "body":
        scanned, files = found
        now, m.files = m.files, files  # the reader keeps the last block as it was there
        records = with_bodies(m, m.open[2], scanned)
        m.files = now
        take(m, records)


def take(m, found):
    check(m, (*found, *(m.seen - set(found)), *(m.durable - set(found))))
    m.seen |= set(found)
    m.reader = "look for slots", False, ()


NOT_SYNCED = (
    "only the segment that was cut is synced",
    "the new segment is not synced before it gets its name",
)
A, S = "append", "sync"
SHORT = ("append", "leave", "more")

SCENARIOS = [
    RecoveryModel("recovery: killed anywhere, repeated", ((A,), (A, S)), losses=0, quick=False),
    RecoveryModel("recovery: killed anywhere, repeated, killed again", ((A,), (A, S), (A,)), 2, 0, quick=False),
    RecoveryModel("recovery: a second power loss", ((A, S), (A, S), (A,)), reader=False, quick=False),
    RecoveryModel("recovery: power losses and kills, a reader", ((A,), (A, S), (A,)), kills=2, quick=False),
    RecoveryModel("recovery: three power losses", ((A, S), (A,), (A,)), losses=2, reader=False, quick=False),
    RecoveryModel("recovery: another boot id", (SHORT, (A, S)), 2, 0, elsewhere=frozenset({1}), quick=False),
    RecoveryModel(
        "recovery: another boot id, three openers",
        (SHORT, SHORT, (A,)),
        2,
        0,
        quick=False,
        elsewhere=frozenset({1}),
    ),
    RecoveryModel(
        "recovery: another boot id, and a power loss",
        (SHORT, SHORT),
        reader=False,
        elsewhere=frozenset({1}),
        quick=False,
    ),
    *(RecoveryModel(name, ((A,), (A, S)), quick=False) for name in OTHER_ORDERS),
]
MISTAKES = [
    *(RecoveryModel("", ((A,), (A,), (A,)), wrong=name, reader="slot" in name) for name in ORDERS),
    *(RecoveryModel("", ((A,), (A, S), (A,)), wrong=name, reader=False) for name in NOT_SYNCED),
    RecoveryModel("", ((A,), (A, S)), wrong=SHORTER),
    RecoveryModel("", (SHORT, (A,)), wrong=SHORTER, losses=0, elsewhere=frozenset({1})),
]

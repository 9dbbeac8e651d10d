"""Recovery after a power loss: steps that may be killed half way, are repeated by the next to open, and are watched by
a reader that changes nothing. A second power loss may come between any two of them.

A small model of its own: every block has one record, appending is one step, and each number has the value (number,
life), where a life is all between two power losses. The first power loss has left any mixture of whole and torn
blocks behind the mark, and any image of the body.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter

from world import State, Violation, put

STRIDE = 10  # numbers in a lease
FIRST_LIFE = tuple((number, 0) for number in range(4))  # 0 is synced, 3 was in the open block
OVER = {"done", "gone"}


class Recovery(State):
    FIELDS = (
        "status",  # of the page: "old boot" | "at work" | "valid"
        "open",  # of the page: (segment, blocks before the open one, its records)
        "files",  # ((segment, (the end its header states of its predecessor, blocks)), ...) in the page cache
        "disk",  # ((segment, every such content that may be there after a power loss), ...)
        "entries",  # segments that are in the directory after it for certain, and those that may be
        "bounds",  # (mark, lease)
        "bounds_disk",  # every one that may be there after it
        "opening",  # who holds the opening lock
        "slots",  # who holds a slot
        "processes",  # (what comes next, op, what it found) of each
        "reader",  # (what comes next, a slot is held, what it found)
        "given",  # every (number, life) that was ever published
        "seen",  # those that this life's readers have got, or its writers published
        "durable",  # those that a sync has acknowledged
        "life",
        "kills",
        "losses",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def set_file(self, name, content, certain=False):
        files, disk = dict(self.files), dict(self.disk)
        disk[name] = disk.get(name, frozenset([None])) | {content}
        files[name] = content
        if certain:
            disk[name] = frozenset([content])
        self.files, self.disk = tuple(sorted(files.items())), tuple(sorted(disk.items()))
        self.entries = self.entries[0], self.entries[1] | {name}

    def sync_file(self, name):
        self.set_file(name, dict(self.files)[name], certain=True)

    def sync_directory(self):
        self.entries = (frozenset(dict(self.files)),) * 2

    def set_bounds(self, *bounds):
        self.bounds = tuple(map(max, self.bounds, bounds))
        self.bounds_disk |= {self.bounds}


# --- What the files say ------------------------------------------------------------------------------------------


def scan(m, until=None):
    """The valid prefix: (segment, blocks in it, records, the next number). At or before the mark nothing may be wrong.
    A header that does not agree with what lies before it ends the prefix like a torn block."""
    mark, end, records, last = m.bounds[0], 0, (), (0, 0)
    if mark not in dict(m.files):
        raise Violation(f"damage: the mark is at {mark}, where no segment is")
    for name, content in m.files:
        sound = content is not None and content[0] == end
        if not sound and name <= mark:
            raise Violation(f"damage at the mark {mark}: segment {name} does not begin where {end} ends: {content}")
        if not sound:
            break
        end, last = name, (name, 0)
        for index, block in enumerate(content[1]):
            if (name, index) == until or not block or block[0] != end:
                break
            records, end, last = (*records, block), end + 1, (name, index + 1)
    return *last, records, end


def of_files(m):
    """What whoever finds no valid page computes: the prefix, and the body if it begins exactly there."""
    _, _, records, end = scan(m)
    body = m.open[2]
    return records + body if body and body[0][0] == end else records


def of_page(m):
    segment, index, body = m.open
    *last, records, end = scan(m, until=(segment, index))
    if tuple(last) != (segment, index) or (body and body[0][0] != end):
        raise Violation(f"the page says that the open block is at {segment, index}, and blocks end at {last}")
    return records + body


# --- The model ---------------------------------------------------------------------------------------------------

STEPS = {}


def step(label):
    def register(function):
        STEPS[label] = function
        return function

    return register


RIGHT = ("at work", "add", "cut", "sync segment", "new segment", "sync directory", "bounds", "sync bounds")
RIGHT += ("page", "valid", "slot")


def swapped(*pair):
    """The right order, but for one step that is made right before another."""
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
    "the page is valid before the directory and the lease are synced": (
        *("at work", "add", "cut", "sync segment", "new segment", "page", "valid", "slot"),
        *("sync directory", "bounds", "sync bounds"),
    ),
    "the page is valid before the lease is synced": (
        *("at work", "add", "cut", "sync segment", "new segment", "sync directory", "bounds"),
        *("page", "valid", "slot", "sync bounds"),
    ),
    "the page is valid before it is filled": swapped("valid", "page"),
    "the page is filled before the body is in the segment": swapped("page", "add"),
    "the body is not added": tuple(name for name in RIGHT if name != "add"),
}
# Not mistakes: each of these holds too, and says which steps the promise does not hang on.
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

    def start(self):
        return None

    def moves(self, state):
        if state is None:
            for whole in product((True, False), repeat=2):
                for body in range(1, 5):
                    yield f"power loss: whole {whole}, body of {body}", True, partial(self.power_loss, whole, body)
            yield "the page is lost, all else is there and little of it synced", True, self.page_lost
            return
        m = Recovery(state)
        for pid, (pc, _, _) in enumerate(m.processes):
            if pc in STEPS:
                yield f"{pid}: {STEPS[pc].__name__}", True, partial(self.perform, state, STEPS[pc], pid)
            if m.kills and pc not in OVER and pc not in ("start", "dead"):
                yield f"{pid} is killed at {pc!r}", False, partial(self.perform, state, kill, pid)
        if self.reader:
            yield f"reader: {m.reader[0]}", False, partial(self.perform, state, read, None)
        if m.losses:
            for chosen in outcomes(m):
                yield f"power loss: {chosen}", False, partial(self.perform, state, partial(lose_power, chosen), None)

    def power_loss(self, whole, body):
        """0 was synced; the page in the file is of the old boot, where 3 was in the open block."""
        blocks = (FIRST_LIFE[0], *(block if there else None for block, there in zip(FIRST_LIFE[1:3], whole)))
        page = "old boot", (0, 3, FIRST_LIFE[body : body + 1])
        files, disk = ((0, (0, blocks)),), ((0, frozenset([(0, blocks)])),)
        return self.opened(page, files, disk, (frozenset([0]),) * 2, frozenset())

    def page_lost(self):
        """A container with a boot id of its own, or damage: the page is not believed, and the page cache is dirty."""
        first, second = (0, FIRST_LIFE[:2]), (2, FIRST_LIFE[2:3])
        disk = frozenset([first, (0, FIRST_LIFE[:1]), (0, (FIRST_LIFE[0], None))]), frozenset([second, (2, ()), None])
        files, entries = ((0, first), (2, second)), (frozenset([0]), frozenset([0, 2]))
        return self.opened(("old boot", (2, 1, FIRST_LIFE[3:])), files, tuple(zip((0, 2), disk)), entries, FIRST_LIFE)

    def opened(self, page, files, disk, entries, seen):
        bounds, start = (0, STRIDE), (("start", 0, ()),) * len(self.programs)
        reader = ("look for slots", False, ()) if self.reader else ()
        records = frozenset(FIRST_LIFE), frozenset(seen), frozenset(FIRST_LIFE[:1])
        return (*page, files, disk, entries, bounds, frozenset([bounds]), None, frozenset(), start, reader, *records,
                1, self.kills, self.losses)  # fmt: skip

    def perform(self, state, action, pid):
        m = Recovery(state)
        if action(self, m, pid) is False:
            return None
        return m.freeze()

    def visit(self, state):
        """Whoever opened now would find all that was seen in this life, and all that was synced in any."""
        if state is None:
            return
        m = Recovery(state)
        found = of_page(m) if m.status == "valid" else of_files(m)
        check(m, found)

    def stuck(self, state):
        return any(pc not in OVER and pc != "start" for pc, _, _ in Recovery(state).processes)


def check(m, found):
    if not set(found) <= m.given:
        raise Violation(f"found is {found}, but published was {sorted(m.given)}")
    if not m.durable <= set(found):
        raise Violation(f"synced was {sorted(m.durable)}, found is {found}")
    if not m.seen <= set(found):
        raise Violation(f"without a power loss {sorted(m.seen - set(found))} has gone")


def kill(model, m, pid):
    """The kernel frees its locks one by one: the worst order is that of the slot last."""
    m.kills -= 1
    go(m, pid, "dead" if pid in m.slots else "gone", ())
    if m.opening == pid:
        m.opening = None


@step("dead")
def release_slot(model, m, pid):
    m.slots -= {pid}
    go(m, pid, "gone")


def outcomes(m):
    """What may be there after a power loss: names, their contents, bounds, and the body as it is or not at all."""
    certain, possible = m.entries
    loose, disk = sorted(possible - certain), dict(m.disk)
    for kept in product((True, False), repeat=len(loose)):
        names = sorted(certain | {name for name, there in zip(loose, kept) if there})
        for contents in product(*(sorted(disk[name], key=repr) for name in names)):
            for bounds in sorted(m.bounds_disk):
                for body in {m.open[2], ()}:
                    yield tuple(zip(names, contents)), bounds, body


def lose_power(chosen, model, m, _):
    files, bounds, body = chosen
    m.losses -= 1
    m.life += 1
    m.status, m.open = "old boot", (*m.open[:2], body)
    m.files, m.disk = files, tuple((name, frozenset([content])) for name, content in files)
    m.entries = (frozenset(dict(files)),) * 2
    m.bounds, m.bounds_disk, m.seen = bounds, frozenset([bounds]), frozenset()
    m.opening, m.slots = None, frozenset()
    m.processes = tuple(p if p[0] == "start" else ("gone", 0, ()) for p in m.processes)
    m.reader = ("look for slots", False, ()) if model.reader else ()


def go(m, pid, pc, *found, done=0):
    _, op, old = m.processes[pid]
    m.processes = put(m.processes, pid, (pc, op + done, found[0] if found else old))


def next_step(model, m, pid, after):
    """The step that follows in a recovery; when all are done, the program."""
    order = {**ORDERS, **OTHER_ORDERS}.get(model.wrong or model.name, RIGHT)
    later = order[order.index(after) + 1 :]
    go(m, pid, later[0] if later else "let in")


def next_call(model, m, pid, done=0):
    program, op = model.programs[pid], m.processes[pid][1] + done
    go(m, pid, program[op] if op < len(program) else "done", (), done=done)


# --- Opening -----------------------------------------------------------------------------------------------------


@step("start")
def enter(model, m, pid):
    if m.opening is not None:
        return False
    m.opening = pid
    go(m, pid, "look")


@step("look")
def look(model, m, pid):
    """While any slot is held the page is the truth; alone, a page of this boot says that only processes died."""
    if m.slots or m.status == "valid":
        return go(m, pid, "join")
    order = {**ORDERS, **OTHER_ORDERS}.get(model.wrong or model.name, RIGHT)
    go(m, pid, order[0])


@step("join")
def join(model, m, pid):
    if m.status != "valid":
        raise Violation(f"a slot is held, and the page that should be the truth is {m.status!r}")
    m.slots |= {pid}
    go(m, pid, "let in")


@step("let in")
def let_in(model, m, pid):
    m.opening = None
    next_call(model, m, pid)


# --- Recovery, under the opening lock ----------------------------------------------------------------------------


def plan(m):
    """What a scan says; nobody but us changes the files, so that it is the same at every step, but for what we add."""
    segment, index, _, end = scan(m)
    return segment, index, end


@step("at work")
def say_at_work(model, m, pid):
    m.status = "at work"
    next_step(model, m, pid, "at work")


@step("add")
def add_body(model, m, pid):
    segment, index, end = plan(m)
    body = m.open[2]
    if body and body[0][0] == end:
        stated, blocks = dict(m.files)[segment]
        m.set_file(segment, (stated, blocks[:index] + body + blocks[index + 1 :]))
    next_step(model, m, pid, "add")


@step("cut")
def cut(model, m, pid):
    """What follows the end has gone to quarantine; files behind it too."""
    segment, index, _ = plan(m)
    stated, blocks = dict(m.files)[segment]
    m.set_file(segment, (stated, blocks[:index]))
    m.files = tuple(f for f in m.files if f[0] <= segment)
    m.entries = m.entries[0] & set(dict(m.files)), m.entries[1]
    next_step(model, m, pid, "cut")


@step("sync segment")
def sync_segment(model, m, pid):
    """All from the mark on, not only what was cut: if it was no power loss, the page cache is dirty."""
    newest = plan(m)[0]
    for name, _ in m.files:
        if m.bounds[0] <= name <= newest and (name == newest or model.wrong != "only the segment that was cut is synced"):
            m.sync_file(name)
    next_step(model, m, pid, "sync segment")


@step("new segment")
def new_segment(model, m, pid):
    """Prepared and synced in a file of another name, then renamed."""
    *_, end = plan(m)
    name = max(end, m.bounds[1])
    certain = model.wrong != "the new segment is not synced before it gets its name"
    if name not in dict(m.files):  # else a recovery that was killed has made it already, and nobody appended
        m.set_file(name, (end, ()), certain)
    next_step(model, m, pid, "new segment")


@step("sync directory")
def sync_directory(model, m, pid):
    m.sync_directory()
    m.disk = tuple(d for d in m.disk if d[0] in dict(m.files))
    next_step(model, m, pid, "sync directory")


@step("bounds")
def set_bounds(model, m, pid):
    newest = m.files[-1][0]
    m.set_bounds(newest, newest + STRIDE)
    next_step(model, m, pid, "bounds")


@step("sync bounds")
def sync_bounds(model, m, pid):
    m.bounds_disk = frozenset([m.bounds])
    next_step(model, m, pid, "sync bounds")


@step("page")
def fill_page(model, m, pid):
    """Generation, slots and words in several stores: nobody looks at them while the page says that we are at work."""
    m.open = m.files[-1][0], len(m.files[-1][1][1]), ()
    next_step(model, m, pid, "page")


@step("valid")
def page_is_valid(model, m, pid):
    m.status = "valid"
    next_step(model, m, pid, "valid")


@step("slot")
def take_slot(model, m, pid):
    m.slots |= {pid}
    next_step(model, m, pid, "slot")


# --- Then it appends and syncs -----------------------------------------------------------------------------------


@step("append")
def append(model, m, pid):
    """One record, into the open block. In this model a block has one: an older one is written out first."""
    segment, index, body = m.open
    if body:
        write_out(m)
        segment, index, body = m.open
    number = segment + index
    if number in {n for n, _ in m.given}:
        raise Violation(f"number {number} is given out again")
    m.open = segment, index, ((number, m.life),)
    m.given |= {(number, m.life)}
    m.seen |= {(number, m.life)}
    next_call(model, m, pid, done=1)


def write_out(m):
    segment, index, body = m.open
    stated, blocks = dict(m.files)[segment]
    m.set_file(segment, (stated, blocks[:index] + body))
    m.open = segment, index + 1, ()


@step("sync")
def sync(model, m, pid):
    """Every segment from the mark on; the directory where one of them is behind it."""
    if m.open[2]:
        write_out(m)
    mark, newest = m.bounds[0], m.open[0]
    for name, _ in m.files:
        if name >= mark:
            m.sync_file(name)
    if newest > mark:
        m.sync_directory()
    m.durable = frozenset(of_page(m))
    next_call(model, m, pid, done=1)


# --- A reader ----------------------------------------------------------------------------------------------------


def read(model, m, _):
    """It trusts the page while a slot is held, or if it is valid; else it computes the end from the files."""
    pc, held, found = m.reader
    if pc == "look for slots":
        m.reader = "look at the page", bool(m.slots), ()
    elif pc == "look at the page":
        trusts = m.status == "valid" or (held and m.status != "at work")
        m.reader = "trust it" if trusts else "scan", False, ()
    elif pc == "trust it":
        take(m, of_page(m))
    elif pc == "scan":
        _, _, records, end = scan(m)
        m.reader = "body", False, (records, end)
    elif pc == "body":
        records, end = found
        body = m.open[2]
        take(m, records + body if body and body[0][0] == end else records)


def take(m, found):
    check(m, (*found, *(m.seen - set(found)), *(m.durable - set(found))))
    m.seen |= set(found)
    m.reader = "look for slots", False, ()


NOT_SYNCED = "only the segment that was cut is synced", "the new segment is not synced before it gets its name"
A, S = "append", "sync"

SCENARIOS = [
    RecoveryModel("recovery: killed anywhere, repeated", ((A,), (A, S), (A,)), kills=2, losses=0),
    RecoveryModel("recovery: a second power loss", ((A, S), (A, S), (A,)), reader=False),
    RecoveryModel("recovery: power losses and kills, a reader", ((A,), (A, S), (A,)), kills=2, quick=False),
    RecoveryModel("recovery: three power losses", ((A, S), (A,), (A,)), losses=2, reader=False),
    *(RecoveryModel(name, ((A,), (A, S), (A,)), quick=False) for name in OTHER_ORDERS),
]
MISTAKES = [
    *(RecoveryModel("", ((A,), (A,), (A,)), wrong=name, reader="slot" in name) for name in ORDERS),
    *(RecoveryModel("", ((A,), (A, S), (A,)), wrong=name, reader=False) for name in NOT_SYNCED),
]

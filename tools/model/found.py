"""What a power loss leaves of a journal, and what a process finds there. recovery.py has the steps.

Models: pyx/recover/abandoned_buffer.pyx.
"""

from itertools import product
from operator import attrgetter

from world import State, Violation

STRIDE = 10  # numbers in a reservation
SHORTER = "the longer body does not count"
FIRST_LIFE = tuple((number, 0) for number in range(4))  # record 0 is synced, record 3 was in the open block
BLOCKS = tuple((record,) for record in FIRST_LIFE)  # the same, each as a block


class Recovery(State):
    FIELDS = (
        # status of the page: "old boot" | "at work" | "valid" | "valid elsewhere": its maker was told another boot id
        "status",
        # content of the page: (segment, blocks before the first body, the bodies: of the immutable block, of the open one)
        "open",
        "files",  # ((segment, (the end its header states of its predecessor, blocks)), ...) in the page cache; torn: None
        "disk",  # ((segment, every such content that a power loss may leave), ...)
        "entries",  # segments whose names certainly survive a power loss, and those whose names may
        "bounds",  # (mark, reservation)
        "bounds_disk",  # every (mark, reservation) that a power loss may leave
        "opening",  # process that holds the opening lock
        "slots",  # processes that hold a writer slot
        "processes",  # (next label, operation, what it found) of each process
        "reader",  # (next label, a writer slot is held, what it found)
        "given",  # every (number, life) that was ever published
        "seen",  # those that readers of this life have got, or writers of this life have published
        "durable",  # those that a sync has acknowledged
        "life",
        "kills",
        "losses",
    )
    __slots__ = (*FIELDS, "model")
    values = staticmethod(attrgetter(*FIELDS))

    def __init__(self, model, values):
        super().__init__(values)
        self.model = model

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


# --- What the files say ---


def scan(m, until=None):
    """Returns the valid prefix: (segment, blocks in it, records, the next number). At or before the synced mark nothing may
    be wrong. A header that does not agree with the blocks before it ends the prefix like a torn block."""
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
            if (name, index) == until or not block or block[0][0] != end:
                break
            records, end, last = records + block, end + len(block), (name, index + 1)
    return *last, records, end


def stored(m, bodies, found):
    """Returns what the buffer adds to the result of a scan: (blocks before it in that segment, bodies). The bodies begin at
    the end. Or they begin where the last block does, if that block has the first records of a longer body."""
    segment, index, _, end = found
    for k, body in enumerate(bodies):
        if body and body[0][0] == end:
            return index, followed(bodies[k:])
    last = dict(m.files)[segment][1][index - 1] if index else None
    for k, body in enumerate(bodies):
        if last and len(body) > len(last) and body[: len(last)] == last and m.model.wrong != SHORTER:
            return index - 1, followed(bodies[k:])
    return index, ()


def followed(bodies):
    """Returns the first body, and both if the other one begins where the first one ends."""
    follows = len(bodies) > 1 and bodies[1] and bodies[1][0][0] == bodies[0][-1][0] + 1
    return bodies if follows else bodies[:1]


def of_files(m):
    """Returns the content without a valid page: the prefix, and the records that the buffer adds to it."""
    return with_bodies(m, m.open[2], scan(m))


def with_bodies(m, bodies, found):
    segment, index, records, _ = found
    begin, added = stored(m, bodies, found)
    if begin < index:
        records = records[: -len(dict(m.files)[segment][1][begin])]
    return sum(added, records)


def of_page(m):
    segment, index, bodies = m.open
    *last, records, end = scan(m, until=(segment, index))
    if tuple(last) != (segment, index) or (sum(bodies, ()) and sum(bodies, ())[0][0] != end):
        raise Violation(f"the page says that the open block is at {segment, index}, and blocks end at {last}")
    return sum(bodies, records)


def check(m, found):
    if not set(found) <= m.given:
        raise Violation(f"found is {found}, but published was {sorted(m.given)}")
    if not m.durable <= set(found):
        raise Violation(f"synced was {sorted(m.durable)}, found is {found}")
    if not m.seen <= set(found):
        raise Violation(f"without a power loss {sorted(m.seen - set(found))} has gone")


# --- A power loss ---


def outcomes(m):
    """Yields what may be there after a power loss: names, their contents, bounds, and each body as it is, as it was, or not
    at all."""
    certain, possible = m.entries
    loose, disk = sorted(possible - certain), dict(m.disk)
    for kept in product((True, False), repeat=len(loose)):
        names = sorted(certain | {name for name, there in zip(loose, kept) if there})
        for contents in product(*(sorted(disk[name], key=repr) for name in names)):
            for bounds in sorted(m.bounds_disk):
                for bodies in product(*({body, body[:1], ()} for body in m.open[2])):
                    yield tuple(zip(names, contents)), bounds, bodies


def lose_power(chosen, m, _):
    files, bounds, bodies = chosen
    m.losses -= 1
    m.life += 1
    m.status, m.open = "old boot", (*m.open[:2], bodies)
    m.files, m.disk = files, tuple((name, frozenset([content])) for name, content in files)
    m.entries = (frozenset(dict(files)),) * 2
    m.bounds, m.bounds_disk, m.seen = bounds, frozenset([bounds]), frozenset()
    m.opening, m.slots = None, frozenset()
    m.processes = tuple(p if p[0] == "start" else ("gone", 0, ()) for p in m.processes)
    m.reader = ("look for slots", False, ()) if m.model.reader else ()

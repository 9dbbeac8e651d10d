"""What a power loss leaves of a journal, and what whoever looks at it finds there. recovery.py has the
steps.
"""

from itertools import product
from operator import attrgetter

from world import State, Violation

STRIDE = 10  # numbers in a lease
FIRST_LIFE = tuple((number, 0) for number in range(4))  # 0 is synced, 3 was in the open block


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
    """The valid prefix: (segment, blocks in it, records, the next number). At or before the mark nothing may
    be wrong. A header that does not agree with what lies before it ends the prefix like a torn block."""
    mark, end, records, last = m.bounds[0], 0, (), (0, 0)
    if mark not in dict(m.files):
        raise Violation(f"damage: the mark is at {mark}, where no segment is")
    for name, content in m.files:
        sound = content is not None and content[0] == end
        if not sound and name <= mark:
            raise Violation(
                f"damage at the mark {mark}: segment {name} does not begin where {end} ends: {content}"
            )
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


def check(m, found):
    if not set(found) <= m.given:
        raise Violation(f"found is {found}, but published was {sorted(m.given)}")
    if not m.durable <= set(found):
        raise Violation(f"synced was {sorted(m.durable)}, found is {found}")
    if not m.seen <= set(found):
        raise Violation(f"without a power loss {sorted(m.seen - set(found))} has gone")


# --- A power loss ---


def outcomes(m):
    """What may be there after a power loss: names, their contents, bounds, and the body as it is or not at
    all."""
    certain, possible = m.entries
    loose, disk = sorted(possible - certain), dict(m.disk)
    for kept in product((True, False), repeat=len(loose)):
        names = sorted(certain | {name for name, there in zip(loose, kept) if there})
        for contents in product(*(sorted(disk[name], key=repr) for name in names)):
            for bounds in sorted(m.bounds_disk):
                for body in {m.open[2], ()}:
                    yield tuple(zip(names, contents)), bounds, body


def lose_power(chosen, m, _):
    files, bounds, body = chosen
    m.losses -= 1
    m.life += 1
    m.status, m.open = "old boot", (*m.open[:2], body)
    m.files, m.disk = files, tuple((name, frozenset([content])) for name, content in files)
    m.entries = (frozenset(dict(files)),) * 2
    m.bounds, m.bounds_disk, m.seen = bounds, frozenset([bounds]), frozenset()
    m.opening, m.slots = None, frozenset()
    m.processes = tuple(p if p[0] == "start" else ("gone", 0, ()) for p in m.processes)
    m.reader = ("look for slots", False, ()) if m.model.reader else ()

"""The derived fields of the page, store by store: how far the open segment is allocated, how many bytes the sealed segments
hold, and the hour of the open segment. Also a takeover that fails.

All of it happens under the append lock. So only SIGKILL can come in between, and then the process that takes over. A record is
(its number, the hour in which it was appended). A segment is named by its first number, and may hold records of one hour only.
A block of n records takes 1 + n bytes; there is no header.

Models: pyx/append/roll.pyx, pyx/buffer/room.h, pyx/process/takeover.pyx.
"""

from operator import attrgetter
from typing import ClassVar

from small import OVER, Small, SmallModel, Steps
from world import CAPACITY, Violation

steps = Steps()
CALLS = ("append", "direct", "roll", "own file", "count")


class Page(Small):
    FIELDS = (
        "lock",  # thread that has the append lock, dead or alive
        "generation",
        "place",  # place of the open block: (segment, offset)
        "word",  # records of the open block
        "reserved",  # derived, like the following fields up to `period`
        "sealed",
        "rolling",
        "next_sealed",
        "period",  # the hour; None: no period has begun
        "direct",
        "unrepaired",
        "stopped",  # set only by a mistake: no process goes on before all have closed
        "files",  # ((segment, its end, ((offset, records), ...)), ...)
        "hour",
        "hours",  # hours that may still pass
        "failures",  # number of system calls of a takeover that may fail
        "published",
        "counted",  # the value that `sealed` should have
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def limit(self):
        """Returns the end that the open block may reach."""
        return self.place[1] + 1 + CAPACITY

    def file(self, segment):
        return next(((end, blocks) for name, end, blocks in self.files if name == segment), (0, ()))

    def set_file(self, segment, end, blocks):
        others = [file for file in self.files if file[0] != segment]
        self.files = tuple(sorted([*others, (segment, end, blocks)]))

    def write(self, segment, offset, records):
        """Writes a block, over the remains of others."""
        end, blocks = self.file(segment)
        after = offset + 1 + len(records)
        kept = tuple(b for b in blocks if b[0] + 1 + len(b[1]) <= offset or b[0] >= after)
        self.set_file(segment, max(end, after), tuple(sorted((*kept, (offset, records)))))

    def records_in(self, segment):
        blocks = self.file(segment)[1]
        mine = tuple(record for offset, records in blocks if (segment, offset) < self.place for record in records)
        return mine + (self.word if self.place[0] == segment else ())

    def has_records(self):
        return bool(self.records_in(self.place[0]))

    def record(self, _, hour):
        """Returns the next record of this thread."""
        return len(self.published), hour


# --- The lock ---


@steps(*CALLS)
def take(m, pid):
    """Takes the lock, from a dead owner too. A takeover that is not complete begins anew."""
    dead = m.lock is not None and m.threads[m.lock][0] == "gone"
    if m.stopped or (m.lock is not None and not dead):
        return False
    call, m.lock = m.threads[pid][0], pid
    m.go(pid, "repair sealed" if dead or m.unrepaired else "begin", (call, m.hour))
    return None


def let_go(m, pid):
    m.lock = None
    m.next_call(pid)


# --- The takeover ---


@steps("repair sealed")
def repair_sealed(m, pid):
    """Repairs the sealed bytes. A roll came as far as its rotation if its intent is of the generation before."""
    if m.rolling == m.generation - 1:
        m.sealed = m.next_sealed
    m.go(pid, "repair rolling", m.memory(pid))


@steps("repair rolling")
def repair_rolling(m, pid):
    if not m.wrong("a takeover leaves the intent of a roll that did not rotate"):
        m.rolling = -1
    m.go(pid, "repair reserved", m.memory(pid))


@steps("repair reserved")
def repair_reserved(m, pid):
    """Repairs the allocated end: a block is allocated before its first record."""
    m.reserved = m.limit() if m.word and not m.wrong(FORGETS) and not m.wrong(ZEROES) else m.place[1]
    m.go(pid, "repair files", m.memory(pid))


@steps("repair files")
def repair_files(m, pid):
    kept = tuple(file for file in m.files if file[0] <= m.place[0])
    m.files = kept
    m.go(pid, "repair direct", m.memory(pid))


@steps("repair files", "repair direct")
def fail_to_repair(m, pid):
    """The call raises. The next holder of the lock does the whole takeover again."""
    if not m.fails():
        return False
    m.unrepaired = not m.wrong("a takeover that fails lets the others append")
    m.stopped = m.wrong("a takeover that fails stops every process")
    let_go(m, pid)
    return None


@steps("repair direct")
def repair_direct(m, pid):
    """Publishes a whole block at the place, by the rotation that was missing."""
    segment, offset = m.place
    block = dict(m.file(segment)[1]).get(offset)
    if m.direct == m.generation and not m.word and block:
        m.go(pid, "raise", (*m.memory(pid), "repaired", (segment, offset + 1 + len(block)), block, False))
    else:
        m.go(pid, "repaired", m.memory(pid))


@steps("repaired")
def repaired(m, pid):
    m.unrepaired = False
    m.go(pid, "begin", m.memory(pid)[:2])


# --- What the calls do ---


@steps("begin")
def begin(m, pid):
    call, hour = m.memory(pid)
    over = m.period != hour and (m.period is not None or not m.has_records())
    if m.period is None and m.has_records():  # only by a mistake
        m.period, over = hour, False
    full = len(m.word) == CAPACITY
    if m.word and (call not in ("append", "count") or (call == "append" and (over or full))):
        m.go(pid, "close", (call, hour))
    elif call == "count":
        m.go(pid, "clean", (call, hour))
    elif call != "roll" and over and not m.has_records():
        m.period = hour
    elif (call in ("roll", "own file") or over) and m.has_records():
        m.go(pid, "name", (call, hour))
    elif call == "roll":
        let_go(m, pid)
    elif call == "append":
        m.go(pid, "publish" if m.word or m.limit() <= m.reserved else "reserve", (call, hour))
    else:
        m.go(pid, "write direct", (call, hour))


@steps("reserve")
def reserve(m, pid):
    """Allocates by zeros, as on a file system that knows no other way. They are written only beyond the file's end."""
    segment, (end, blocks) = m.place[0], m.file(m.place[0])
    if m.wrong(ZEROES):
        blocks = tuple(b for b in blocks if b[0] + 1 + len(b[1]) <= m.reserved)
    m.set_file(segment, max(end, m.limit()), blocks)
    m.reserved = max(m.reserved, m.limit())
    m.go(pid, "publish", m.memory(pid))


@steps("publish")
def publish(m, pid):
    record = m.record(pid, m.memory(pid)[1])
    m.word, m.published = (*m.word, record), (*m.published, record)
    let_go(m, pid)


@steps("close")
def close(m, pid):
    """Writes the open block to its place, and opens the next one."""
    segment, offset = m.place
    m.write(segment, offset, m.word)
    m.go(pid, "raise", (*m.memory(pid), "begin", (segment, offset + 1 + len(m.word)), (), False))


@steps("write direct")
def write_direct(m, pid):
    """Reserves, notes and writes a direct block; the rotation publishes it."""
    segment, offset = m.place
    record = m.record(pid, m.memory(pid)[1])
    m.reserved, m.direct = max(m.reserved, offset + 2), m.generation
    m.write(segment, offset, (record,))
    m.go(pid, "raise", (*m.memory(pid), "unlock", (segment, offset + 2), (record,), False))


@steps("clean")
def clean(m, pid):
    """Counts the sealed segments after retention has removed them. The intent of the last roll is removed first."""
    m.files = tuple(file for file in m.files if file[0] >= m.place[0])
    if not m.wrong("a count leaves the intent of the last roll"):
        m.rolling = -1
    m.go(pid, "counted", m.memory(pid))


@steps("counted")
def store_count(m, pid):
    m.sealed = m.counted = 0
    let_go(m, pid)


# --- Rotation, and the roll ---


@steps("raise")
def raise_reserved(m, pid):
    """Empties the word before the slot is the open one."""
    if not m.wrong("a rotation leaves the allocated end behind") and not m.wrong(ZEROES):
        m.reserved = max(m.reserved, m.memory(pid)[3][1])
    m.go(pid, "turn", m.memory(pid))


@steps("turn")
def turn(m, pid):
    call, hour, then, place, records, rolls = m.memory(pid)
    if rolls:
        m.counted += m.place[1]
    m.generation, m.place, m.word = m.generation + 1, place, ()
    m.published += records
    m.go(pid, then, (call, hour) if not rolls else (call, hour, records))


@steps("name")
def name_file(m, pid):
    call, hour = m.memory(pid)
    first = len(m.published)
    if first in [file[0] for file in m.files]:
        raise Violation(f"{first} is in the way of a roll")
    records = (m.record(pid, hour),) if call == "own file" else ()
    m.set_file(first, 1 + CAPACITY, ())
    if records:
        m.write(first, 0, records)
    m.go(pid, "clear rolling", (call, hour, records))


@steps("clear rolling")
def clear_rolling(m, pid):
    """Removes the intent first: while its bytes change there is none."""
    _, hour, records = m.memory(pid)
    if m.wrong("a roll forgets the period before its rotation"):
        m.period = None
    if m.wrong("a roll with records begins the period before its rotation") and records:
        m.period = hour
    if m.wrong("a roll counts its segment before its rotation"):
        m.sealed += m.place[1]
    elif not m.wrong("a roll changes the bytes of an intent that counts"):
        m.rolling = -1
    m.go(pid, "store next sealed", m.memory(pid))


@steps("store next sealed")
def store_next_sealed(m, pid):
    m.next_sealed = m.sealed + m.place[1]
    m.go(pid, "intend roll", m.memory(pid))


@steps("intend roll")
def intend_roll(m, pid):
    call, hour, records = m.memory(pid)
    if not m.wrong("a roll counts its segment before its rotation"):
        m.rolling = m.generation
    place = len(m.published), 1 + len(records) if records else 0
    m.go(pid, "raise", (call, hour, "rolled", place, records, True))


@steps("rolled")
def begin_period(m, pid):
    _, hour, records = m.memory(pid)
    if records:
        m.period = hour
    m.go(pid, "seal", m.memory(pid))


@steps("seal")
def seal(m, pid):
    if not m.wrong("a roll counts its segment before its rotation"):
        m.sealed = m.next_sealed
    m.go(pid, "reserve exactly", m.memory(pid))


@steps("reserve exactly")
def reserve_exactly(m, pid):
    call, hour, _ = m.memory(pid)
    m.reserved = max(1 + CAPACITY, m.place[1])
    if call in ("append", "direct"):
        m.go(pid, "begin", (call, hour))
    else:
        let_go(m, pid)


@steps("unlock")
def unlock(m, pid):
    let_go(m, pid)


def pass_hour(m, _):
    if not m.hours:
        return False
    m.hours, m.hour = m.hours - 1, m.hour + 1
    return None


class Derived(SmallModel):
    Fields: ClassVar[type] = Page
    STEPS: ClassVar[Steps] = steps
    hours = 1
    failures = 1

    def start(self):
        first = (None, 1, (0, 0), (), 0, 0, -1, 0, None, -1, False, False, ((0, 0, ()),), 0)
        threads = self.first_threads()
        return (*first, self.hours, self.failures, (), 0, threads, self.kills)

    def others(self, _):
        return (("an hour is over", pass_hour),)

    def is_alive(self, m, pid):
        return m.lock == pid

    def check(self, m):
        if m.reserved < (m.limit() if m.word else m.place[1]) and not m.wrong(ZEROES):
            raise Violation(f"allocated to {m.reserved}, and the open block {m.word} begins at {m.place}")
        for segment, _, _ in m.files:
            if segment <= m.place[0] and len({record[1] for record in m.records_in(segment)}) > 1:
                raise Violation(f"segment {segment} has records of two hours: {m.records_in(segment)}")
        oldest = min(file[0] for file in m.files)
        found = tuple(r for file in m.files if file[0] <= m.place[0] for r in m.records_in(file[0]))
        if found != m.published[oldest:]:
            raise Violation(f"published was {m.published[oldest:]}, found is {found}")
        if m.lock is None and not m.unrepaired and m.sealed != m.counted:
            raise Violation(f"the sealed segments hold {m.counted}, the page says {m.sealed}")

    def stuck(self, state):
        return any(pc not in OVER for pc, _, _ in self.Fields(self, state).threads)


FORGETS = "a takeover forgets that the open block is allocated"
ZEROES = "zeros are written where a takeover forgets what is allocated"
A, D, R, O, C = CALLS  # noqa: E741

SCENARIOS = [
    Derived("derived: appends, rolls, counts", ((A, A, R, C), (A,))),
    Derived("derived: direct blocks, files of their own", ((A, O, R), (D, A))),
    Derived("derived: the taker is killed too", ((A, R), (O,), (A,)), kills=2),
    Derived(
        "derived: many calls, the taker is killed too",
        ((A, A, A, R), (A, R, A, C), (A, A)),
        kills=2,
        quick=False,
    ),
]


def wrong(mistake, *programs, **options):
    return Derived("", programs, wrong=mistake, **options)


MISTAKES = [
    wrong(FORGETS, (A, A), (A,)),
    wrong(ZEROES, (A, A), (A, A, A, A)),
    wrong("a rotation leaves the allocated end behind", (D,), (A,)),
    wrong("a roll counts its segment before its rotation", (A, R), (A,)),
    wrong("a takeover leaves the intent of a roll that did not rotate", (A, R), (D,), (A,), kills=2),
    wrong("a roll changes the bytes of an intent that counts", (A, O, R), (A,)),
    wrong("a count leaves the intent of the last roll", (A, R, C, A), (A,)),
    wrong("a roll forgets the period before its rotation", (A, R), (A,)),
    wrong("a roll with records begins the period before its rotation", (A, O), (A,)),
    wrong("a takeover that fails lets the others append", (A, R), (A,), (A, R)),
    wrong("a takeover that fails stops every process", (A,), (A,), (A,)),
]

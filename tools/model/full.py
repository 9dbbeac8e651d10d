"""A full disk: there is no room for a reservation, a block, the next segment, an index or `bounds`, or room for a part only.
The call raises and leaves nothing behind, and the page is never ahead of the files.

The page, its calls and the takeover are those of derived.py, except for the steps that are registered here in their place. Any
system call may fail, and at any time, as on a disk that returns errors. A call also has steps without the append lock: it
prepares a segment file, reserves numbers, and writes the index of the segment that it has rolled away from. A record is (its
number, the hour in which it was appended, the call). The header of a segment file stands at HEADER.

Models: pyx/append/direct_block.pyx, pyx/append/operations.pyx, pyx/append/prepared_segments.pyx, pyx/format/dual_slot.pyx.
"""

from dataclasses import dataclass
from functools import wraps
from operator import attrgetter
from typing import ClassVar

import derived
from derived import Derived, Page
from small import Steps
from world import CAPACITY, Violation, put

SEGMENT = 2 * (1 + CAPACITY)  # bytes that are reserved for a segment, if there is room
HEADER = -1
STRIDE = 3  # numbers in a reservation
REPLACED = (
    "reserve",
    "publish",
    "write direct",
    "name",
    "reserve exactly",
    "repair reserved",
)  # steps of derived.py
UNLOCKED = ("prepare", "lock again", "reservation", "first copy", "second copy", "reservation is durable", "index")

steps = Steps({label: [*functions] for label, functions in derived.steps.items() if label not in REPLACED})


def failure(*labels):
    """Registers a step that uses one of the failures that are left."""

    def register(function):
        @steps(*labels)
        @wraps(function)
        def fail(m, pid):
            return function(m, pid) if m.fails() else False

        return function

    return register


class FullPage(Page):
    FIELDS = (
        *Page.FIELDS,
        "prepared",  # ((thread, how far its next segment is reserved, whether the header is whole), ...)
        "unsealed",  # threads whose call has rolled, and still has to write the index of the segment before
        "reservation",  # numbers below it may be given out, as the page says
        "bounds",  # (generation, reservation) of each of the two copies in the file; None: torn
        "bounds_lock",  # thread that writes them; the kernel frees this lock of a dead one
        "raised",  # calls that have failed
    )
    __slots__ = FIELDS[len(Page.FIELDS) :]
    values = staticmethod(attrgetter(*FIELDS))

    def call(self, pid):
        return pid, self.threads[pid][1]

    def record(self, pid, hour):
        return (*super().record(pid, hour), self.call(pid))

    def end(self):
        """Returns the length of the open segment's file."""
        return self.file(self.place[0])[0]

    def file_of(self, pid):
        return next((file for file in self.prepared if file[0] == pid), None)

    def prepare(self, pid, *file):
        self.prepared = (*self.without(pid), (pid, *file))

    def without(self, pid):
        return tuple(file for file in self.prepared if file[0] != pid)

    def next_call(self, pid):
        if not self.wrong("a call that fails leaves the file that it has prepared"):
            self.prepared = self.without(pid)
        if pid in self.unsealed:
            self.unsealed -= {pid}
            self.go(pid, "index")
        else:
            super().next_call(pid)

    def fail(self, pid):
        """The call raises, and releases its lock."""
        self.raised |= {self.call(pid)}
        self.unsealed -= {pid}
        if self.lock == pid:
            self.lock = None
        self.next_call(pid)

    def newest(self):
        """Returns the index of the copy of `bounds` that counts; None if both are torn."""
        return max((0, 1), key=lambda at: (self.bounds[at] or (0, 0), -at)) if any(self.bounds) else None


# --- Room in the open segment ---


def needed(m, pid):
    """Returns the end of this call's block: of the buffer's, or of one record by itself."""
    return m.limit() if m.memory(pid)[0] == "append" else m.place[1] + 2


def reach(m, end):
    """Makes the file longer, never shorter. Zeros begin at its end: the page may say less, after a partial reservation or a
    takeover."""
    segment, (found, blocks) = m.place[0], m.file(m.place[0])
    begin = m.reserved if m.wrong("zeros are written from the reserved end on") else found
    if begin < found < end:
        raise Violation(f"zeros are written from {begin}, and the file reaches to {found}")
    m.set_file(segment, max(found, end), blocks)


def reserved(m, pid, end):
    m.reserved = end
    m.go(pid, "begin", m.memory(pid))


@steps("reserve")
def reserve_segment(m, pid):
    end = max(needed(m, pid), SEGMENT)
    reach(m, end)
    reserved(m, pid, end)


@failure("reserve")
def reserve_no_segment(m, pid):
    if m.wrong("the reserved end is raised before there is room"):
        m.reserved = max(needed(m, pid), SEGMENT)
    m.go(pid, "reserve less", m.memory(pid))


@failure("reserve")
def reserve_a_part(m, pid):
    """Fails after a part, as fallocate does, or zeros. The file keeps that part."""
    if m.end() + 1 >= max(needed(m, pid), SEGMENT):
        return False
    reserve_no_segment(m, pid)
    reach(m, m.end() + 1)


@steps("reserve less")
def reserve_what_is_needed(m, pid):
    end = needed(m, pid)
    reach(m, end)
    if m.wrong("the room that a call needs is taken for a whole segment"):
        end = max(end, SEGMENT)
    reserved(m, pid, end)


@steps("reserve less")
def find_no_room(m, pid):
    if m.end() >= needed(m, pid):
        return False
    m.fail(pid)
    return None


@steps("repair reserved")
def repair_reserved(m, pid):
    """Repairs the allocated end. The page may still describe the segment before."""
    found = m.reserved
    derived.repair_reserved(m, pid)
    if m.wrong("a takeover believes how far the page says that it is reserved"):
        m.reserved = max(found, m.reserved)


# --- Blocks ---


def tear(m, offset, records):
    """The write is cut short: the old bytes are gone, and this block is not there."""
    segment = m.place[0]
    m.write(segment, offset, records)
    end, blocks = m.file(segment)
    m.set_file(segment, end, tuple(block for block in blocks if block[0] != offset))


@steps("publish")
def publish(m, pid):
    if not is_reserved(m):
        return reserve_first(m, pid)
    return derived.publish(m, pid)


@failure("close")
def cut_close_short(m, pid):
    """The block stays open, and the next one that closes it writes it again."""
    tear(m, m.place[1], m.word)
    if m.wrong("a block that was cut short is taken for written"):
        end = m.place[1] + 1 + len(m.word)
        m.go(pid, "raise", (*m.memory(pid), "begin", (m.place[0], end), (), False))
    else:
        m.fail(pid)


@failure("close")
def fail_once_closed(m, pid):
    """The write fails, although all of the block is there."""
    m.write(*m.place, m.word)
    m.fail(pid)


@steps("write direct")
def write_direct(m, pid):
    """Publishes a direct block, also if the write failed and the block is whole: its numbers could not be given out again."""
    if not is_reserved(m):
        return reserve_first(m, pid)
    if needed(m, pid) > m.reserved:
        return m.go(pid, "reserve", m.memory(pid))
    return derived.write_direct(m, pid)


@failure("write direct")
def cut_direct_short(m, pid):
    if not is_reserved(m) or needed(m, pid) > m.reserved:
        return False
    record = m.record(pid, m.memory(pid)[1])
    m.direct = m.generation
    tear(m, m.place[1], (record,))
    if m.wrong("the page moves past a direct block before it is written"):
        m.published += (record,)
        m.generation, m.place = m.generation + 1, (m.place[0], needed(m, pid))
    m.direct = -1
    m.fail(pid)


# --- The next segment ---


@steps("name")
def complete(m, pid):
    """Completes the headers: the file was prepared without the lock, but its headers could not be."""
    call, hour = m.memory(pid)
    if not m.file_of(pid):
        m.lock = None
        m.go(pid, "prepare", (call,))
    elif call == "own file" and not is_reserved(m):
        reserve_first(m, pid)
    else:
        m.prepare(pid, m.file_of(pid)[1], True)
        if m.wrong("a roll counts its segment before the file has its name"):
            m.sealed += m.place[1]
        m.go(pid, "rename", (call, hour))


@failure("name")
def cut_header_short(m, pid):
    if not m.file_of(pid):
        return False
    if m.wrong("a header that was cut short is taken for whole"):
        m.go(pid, "rename", m.memory(pid))
    else:
        fail_to_roll(m, pid)


@steps("rename")
def rename(m, pid):
    call, hour = m.memory(pid)
    records = (m.record(pid, hour),) if call == "own file" else ()
    give_name(m, pid, records)
    m.go(pid, "clear rolling", (call, hour, records))


def give_name(m, pid, records):
    first, (_, end, whole) = len(m.published), m.file_of(pid)
    if first in [file[0] for file in m.files]:
        raise Violation(f"{first} is in the way of a roll")
    m.set_file(first, end, ((HEADER, ()),) if whole else ())
    if records:
        m.write(first, 0, records)
    m.prepared = m.without(pid)


@failure("rename")
def fail_to_rename(m, pid):
    """There is no room for the name."""
    if m.wrong("a roll that fails leaves the page in the next segment"):
        m.generation, m.place, m.counted = m.generation + 1, (len(m.published), 0), m.sealed + m.place[1]
        m.sealed = m.counted
    if m.wrong("a rename that fails has given the name all the same"):
        give_name(m, pid, ())
    fail_to_roll(m, pid)


def fail_to_roll(m, pid):
    if m.wrong("a roll that fails has begun the period all the same"):
        m.period = m.memory(pid)[1]
    m.fail(pid)


@steps("reserve exactly")
def reserve_exactly(m, pid):
    """Stores the allocated end of the prepared file. Until now the page describes the file before, and may say more."""
    m.unsealed |= {pid}
    derived.reserve_exactly(m, pid)
    m.reserved = m.end()
    if m.wrong("a next segment that could not be reserved is taken for whole"):
        m.reserved = SEGMENT


@steps("prepare")
def prepare(m, pid):
    m.prepare(pid, SEGMENT, False)
    m.go(pid, "lock again", m.memory(pid))


@failure("prepare")
def prepare_less(m, pid):
    """There is no room for a whole segment."""
    m.prepare(pid, 2 if m.memory(pid)[0] == "own file" else 0, False)
    m.go(pid, "lock again", m.memory(pid))


@failure("prepare")
def fail_to_prepare(m, pid):
    """The file cannot be made or reserved, or there is no room for its block."""
    m.prepare(pid, 0, False)
    m.fail(pid)


@steps("lock again")
def lock_again(m, pid):
    m.go(pid, *m.memory(pid))
    return derived.take(m, pid)


@steps("index")
def write_index(m, pid):
    m.next_call(pid)


@failure("index")
def fail_to_write_index(m, pid):
    """The index cannot be written. Other processes work without it. The records of the call are published, so the call has
    not failed."""
    if m.wrong("a call fails for an index that cannot be written"):
        m.raised |= {m.call(pid)}
    m.next_call(pid)


# --- Numbers ---


def is_reserved(m):
    return len(m.published) < m.reservation


def reserve_first(m, pid):
    m.lock = None
    m.go(pid, "reservation", m.memory(pid)[:1])


@steps("reservation")
def lock_bounds(m, pid):
    if m.bounds_lock is not None:
        return False
    m.bounds_lock = pid
    found = m.newest()
    generation, reservation = m.bounds[found]
    reservation = max(reservation, len(m.published) + STRIDE)
    if m.wrong("the page reserves numbers before they are written"):
        m.reservation = reservation
    first = 0 if m.wrong("the first copy of bounds is always written first") else 1 - found
    m.go(pid, "first copy", (*m.memory(pid), (generation + 1, reservation), first))
    return None


@steps("first copy", "second copy")
def write_copy(m, pid):
    """Writes the copy first that was not read: a write that is cut short leaves the other one."""
    call, copy, at = m.memory(pid)
    m.bounds = put(m.bounds, at, copy)
    then = "second copy" if m.threads[pid][0] == "first copy" else "reservation is durable"
    m.go(pid, then, (call, copy, 1 - at))


@failure("first copy", "second copy")
def cut_copy_short(m, pid):
    call, copy, at = m.memory(pid)
    m.bounds = put(m.bounds, at, None)
    if m.threads[pid][0] == "first copy" and m.wrong("a copy of bounds is written though the other one failed"):
        m.go(pid, "second copy", (call, copy, 1 - at))
        return
    m.bounds_lock = None
    m.fail(pid)


@steps("reservation is durable")
def raise_reservation(m, pid):
    call, (_, reservation), _ = m.memory(pid)
    m.bounds_lock, m.reservation = None, max(m.reservation, reservation)
    m.go(pid, "lock again", (call,))


@dataclass(frozen=True)
class Full(Derived):
    Fields: ClassVar[type] = FullPage
    STEPS: ClassVar[Steps] = steps
    failures: int = 1
    first_reservation: int = 99

    def start(self):
        bounds = ((1, self.first_reservation),) * 2
        m = self.Fields(self, (*super().start(), (), frozenset(), self.first_reservation, bounds, None, frozenset()))
        m.set_file(0, 0, ((HEADER, ()),))
        return m.freeze()

    def is_alive(self, m, pid):
        return m.lock == pid or m.threads[pid][0] in UNLOCKED

    def died(self, m, process):
        if m.bounds_lock == process:
            m.bounds_lock = None

    def check(self, m):
        super().check(m)
        if m.word and m.end() < m.limit():
            raise Violation(f"the open block has records, may come to {m.limit()}, and there is room to {m.end()}")
        if m.lock is None and not m.unrepaired:
            self.check_page(m)
        for record in m.published:
            if record[2] in m.raised:
                raise Violation(f"the call {record[2]} has raised, and yet there is {record}")
        for pid, *_ in m.prepared:
            if m.threads[pid][0] not in (*UNLOCKED, "gone") and m.lock != pid:
                raise Violation(f"the file that {pid} prepared is left")
        if m.newest() is None or m.bounds[m.newest()][1] < m.reservation:
            raise Violation(f"the page reserves up to {m.reservation}, bounds say {m.bounds}")

    def check_page(self, m):
        """Checks what holds whenever no process has the lock."""
        if m.reserved > m.end():
            raise Violation(f"reserved to {m.reserved}, and the file reaches to {m.end()}")
        if max(file[0] for file in m.files) > m.place[0]:
            raise Violation(f"a file of {m.files} lies after the open segment {m.place[0]}")
        if HEADER not in dict(m.file(m.place[0])[1]):
            raise Violation(f"the open segment {m.place[0]} has no header")


A, D, R, O, _ = derived.CALLS  # noqa: E741

SCENARIOS = [
    Full("full: appends, a roll", ((A, A, A), (A, R)), quick=False),
    Full("full: appends, rolls", ((A, A, A), (A, R, A)), failures=2, quick=False),
    Full("full: direct blocks", ((A, D), (D, A))),
    Full("full: direct blocks, twice", ((A, D), (D, A, D)), failures=2, quick=False),
    Full("full: files of their own", ((A, O), (O, D)), quick=False),
    Full("full: files of their own, appends", ((A, O, A), (O, D)), failures=2, quick=False),
    Full("full: rolls, the taker is killed too", ((A, R), (O,), (A,)), kills=2, quick=False),
    Full("full: reservations", ((A, A), (D,)), failures=2, first_reservation=1),
    Full("full: reservations of three", ((A,), (D,), (A,)), first_reservation=1, quick=False),
]


def wrong(mistake, *programs, **options):
    return Full("", programs, wrong=mistake, **options)


MISTAKES = [
    wrong("zeros are written from the reserved end on", (A,), (A,)),
    wrong("the reserved end is raised before there is room", (A,), (A,)),
    wrong("the room that a call needs is taken for a whole segment", (A,), (A,)),
    wrong("a takeover believes how far the page says that it is reserved", (A, R), (A,)),
    wrong("a block that was cut short is taken for written", (A, A, A)),
    wrong("the page moves past a direct block before it is written", (D,), (A,)),
    wrong("a next segment that could not be reserved is taken for whole", (A, R), (A,)),
    wrong("a header that was cut short is taken for whole", (A, R)),
    wrong("a roll that fails leaves the page in the next segment", (A, R), (A,)),
    wrong("a roll counts its segment before the file has its name", (A, R)),
    wrong("a rename that fails has given the name all the same", (A, R)),
    wrong("a roll that fails has begun the period all the same", (A, A, A)),
    wrong("a call that fails leaves the file that it has prepared", (A, R)),
    wrong("a call fails for an index that cannot be written", (A, O)),
    wrong("the page reserves numbers before they are written", (A, A), first_reservation=1),
    wrong("the first copy of bounds is always written first", (A, A), (A,), failures=2, first_reservation=1),
    wrong("a copy of bounds is written though the other one failed", (A, A), failures=2, first_reservation=1),
]

"""Retention beside readers: segments are removed from the oldest on, retention is killed at any point, and a power loss brings
files back.

This is a small model of its own: a sealed segment has one record, the open one has none, and a roll is one step. Between the
second segment and the third lie numbers that were never given out.
"""

from dataclasses import dataclass
from operator import attrgetter

from small import OVER, Small, SmallModel, Steps
from world import Violation

SEGMENTS = 3  # number of segments at first
READING = {"seek", "list", "open", "read", "next", "lost"}


class Cleaning(Small):
    FIELDS = (
        "end",  # number of segments, including removed ones; the last one is open
        "files",  # segments that have a name
        "synced",  # segments that are durable with their name
        "first",  # first retained segment, as `bounds` says
        "firsts",  # every value that a power loss may leave there
        "position",  # sequence of the subscriber's next record
        "positions",  # every value that a power loss may leave there
        "table",  # process that has the lock of the table
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


step = Steps()


@dataclass(frozen=True)
class CleaningModel(SmallModel):
    keeps: bool = True  # retention keeps segments for the subscriber; else only the last sealed one stays
    begins: int = 0  # the sequence that readers seek first

    Fields, STEPS = Cleaning, step

    def start(self):
        some, zero = frozenset(range(SEGMENTS)), frozenset([0])
        return SEGMENTS, some, zero, 0, zero, 0, zero, None, self.first_threads(), self.kills

    def died(self, m, process):
        if m.table == process:
            m.table = None

    def check(self, m):
        """Checks that a power loss at this moment does no harm."""
        if self.keeps and max(m.firsts) > segment_of(min(m.position, *m.positions)):
            raise Violation(f"a record that the subscriber wants is gone: {m.positions}, from {m.firsts} on")
        missing = set(range(min(m.firsts), m.end)) - m.files
        if missing:
            raise Violation(f"segments {missing} are gone, and bounds may say that they are kept")
        if max(m.firsts) not in m.synced:
            raise Violation(f"segment {max(m.firsts)} holds the state of those before, and may be gone")

    def stuck(self, state):
        threads = Cleaning(self, state).threads
        return any(pc not in OVER | READING for pc, _, _ in threads)


def number(segment):
    """Returns the sequence of the segment's record."""
    return segment if segment < 2 else segment + 1


def end_of(segment):
    return number(segment) + 1


def segment_of(sequence):
    """Returns the segment that has the first record at or after the sequence."""
    return sequence if sequence < 2 else max(sequence - 1, 2)


# --- Writing, and moving the position ---


@step("roll")
def roll(m, pid):
    m.files |= {m.end}
    m.end += 1
    m.next_call(pid)


@step("commit")
def commit(m, pid):
    """Moves the position past the next record, without the table's lock, since it moves forward."""
    segment = segment_of(m.position)
    if segment < m.end - 1:
        m.position = end_of(segment)
        m.positions |= {m.position}
    m.next_call(pid)


@step("go back")
def look_how_far_back(m, pid):
    if m.table is not None and not m.wrong("a position goes back without the lock of the table"):
        return False
    if not m.wrong("a position goes back without the lock of the table"):
        m.table = m.model.process(pid)
    m.go(pid, "move back", min(m.position, number(m.first)))


@step("move back")
def move_back(m, pid):
    m.position = m.memory(pid)
    m.positions |= {m.position}
    unlock(m, pid)


def unlock(m, pid):
    if m.table == m.model.process(pid):
        m.table = None
    m.next_call(pid)


# --- Cleaning ---


@step("clean")
def look(m, pid):
    """Begins to clean, under the lock of the table. A process that was killed half way has left files, which are counted
    once more."""
    if m.table is not None:
        return False
    m.table = m.model.process(pid)
    target = m.end - 2
    if m.model.keeps:
        target = min(segment_of(m.position), m.end - 1)
    if min(m.files) >= target:
        return unlock(m, pid)
    m.go(pid, "sync positions", target)


@step("sync positions")
def sync_positions(m, pid):
    if not m.wrong("the positions are not synced before what they have passed goes"):
        m.positions = frozenset([m.position])
    m.go(pid, "sync kept", m.memory(pid))


@step("sync kept")
def sync_kept(m, pid):
    """Makes the first retained segment durable, and its name: the state stands at the beginning of each segment."""
    if not m.wrong("the first one kept is not synced"):
        m.synced |= {m.memory(pid)}
    m.go(pid, "unlink" if m.wrong("files are removed before bounds says so") else "bounds", m.memory(pid))


@step("bounds")
def write_bounds(m, pid):
    m.first = max(m.first, m.memory(pid))
    m.firsts |= {m.first}
    unsynced = m.wrong("files are removed before bounds is durable")
    m.go(pid, "unlink" if unsynced else "sync bounds", m.memory(pid))


@step("sync bounds")
def sync_bounds(m, pid):
    m.firsts = frozenset([m.first])
    m.go(pid, "unlink", m.memory(pid))


@step("unlink")
def unlink(m, pid):
    """Removes one segment after the other. A power loss may bring one back, which does no harm: `bounds` says that it is
    gone."""
    target = m.memory(pid)
    if min(m.files) >= target:
        return unlock(m, pid)
    m.files -= {min(m.files)}


# --- Reading ---


def kept(m, sequence):
    """Returns the sequence; or the first retained one if only a gap lies between; or None if a record has been removed."""
    first = number(m.first)
    if sequence >= first:
        return sequence
    return first if end_of(m.first - 1) <= sequence else None


def lose(m, pid, sequence):
    """Raises PositionLost. The program goes on with the first retained record."""
    if segment_of(sequence) >= m.first:
        raise Violation(f"PositionLost at {sequence}, whose record is kept: the first one is {m.first}")
    m.go(pid, "seek", number(m.first))


@step("seek")
def seek(m, pid):
    wanted = m.memory(pid) or m.model.begins
    sequence = kept(m, wanted)
    if sequence is None:
        return lose(m, pid, wanted)
    m.go(pid, "list", sequence)


@step("list")
def list_segments(m, pid):
    m.go(pid, "open", (m.memory(pid), m.files))


@step("open")
def open_segment(m, pid):
    sequence, names = m.memory(pid)
    at = max((name for name in names if number(name) <= sequence), default=min(names))
    if at not in m.files:
        return m.go(pid, "seek", sequence)  # removed since it was listed
    if number(at) > sequence:
        # It may have been removed before the directory was listed.
        again = kept(m, sequence)
        if again is None:
            return lose(m, pid, sequence)
        if not m.wrong("a reader enters the first segment with the number of a gap before it"):
            sequence = again
    elif sequence >= end_of(at) and at < m.end - 1:
        following = min(name for name in names if name > at)
        if following not in m.files:
            return m.go(pid, "seek", sequence)
        at, sequence = following, number(following)
    m.go(pid, "read", (at, sequence))


@step("read")
def read(m, pid):
    """Reads the file that it has open, removed or not."""
    segment, sequence = m.memory(pid)
    if segment == m.end - 1:
        return False
    if sequence == end_of(segment):
        return m.go(pid, "next", (segment, sequence, tuple(sorted(n for n in m.files if n > segment))))
    if sequence != number(segment):
        raise Violation(f"the reader takes segment {segment} for damaged: it wants {sequence}")
    m.go(pid, "read", (segment, end_of(segment)))


@step("next")
def open_next(m, pid):
    """Opens the first of the listed names that is still there."""
    segment, sequence, names = m.memory(pid)
    if not names:
        if m.wrong("a reader that finds all of what it has listed gone does not look at bounds"):
            raise Violation(f"the reader takes the journal for damaged: nothing follows segment {segment}")
        return raise_if_lost(m, pid, segment, sequence)
    if names[0] not in m.files:
        return m.go(pid, "next", (segment, sequence, names[1:]))
    if names[0] == segment + 1:
        return m.go(pid, "read", (names[0], number(names[0])))
    if m.wrong("a reader goes on in the next segment that is there"):
        raise Violation(f"the reader skips from segment {segment} to {names[0]}")
    raise_if_lost(m, pid, segment, sequence)


def raise_if_lost(m, pid, segment, sequence):
    if number(m.first) <= sequence:
        raise Violation(f"the reader takes the journal for damaged after segment {segment}")
    lose(m, pid, sequence)


READ, CLEAN, ROLL, COMMIT, BACK = ("seek",), ("clean",), ("roll",), ("commit",), ("go back",)

SCENARIOS = [
    CleaningModel("cleaning: a reader", (READ, CLEAN + CLEAN, ROLL + ROLL, CLEAN), keeps=False),
    CleaningModel("cleaning: a reader from a gap on", (READ, CLEAN + CLEAN, ROLL + ROLL, CLEAN), keeps=False, begins=2),
    CleaningModel(
        "cleaning: a subscriber and a position that goes back",
        (COMMIT + COMMIT + BACK + COMMIT, CLEAN + CLEAN, ROLL + ROLL, CLEAN),
        kills=2,
    ),
    CleaningModel(
        "cleaning: two readers and a subscriber",
        (READ, COMMIT + COMMIT + BACK + COMMIT, CLEAN + CLEAN, ROLL + ROLL, CLEAN),
        kills=2,
        quick=False,
    ),
]


def wrong(mistake, *programs, **options):
    return CleaningModel("", programs, wrong=mistake, **{"kills": 0, **options})


NOTHING_LEFT = "a reader that finds all of what it has listed gone does not look at bounds"
IN_A_GAP = "a reader enters the first segment with the number of a gap before it"

MISTAKES = [
    wrong("files are removed before bounds says so", CLEAN, COMMIT),
    wrong("files are removed before bounds is durable", CLEAN, COMMIT),
    wrong("the positions are not synced before what they have passed goes", CLEAN, COMMIT),
    wrong("the first one kept is not synced", CLEAN, COMMIT),
    wrong("a position goes back without the lock of the table", CLEAN, COMMIT + BACK),
    wrong("a reader goes on in the next segment that is there", READ, CLEAN, ROLL + ROLL, keeps=False),
    wrong(NOTHING_LEFT, READ, CLEAN + CLEAN, ROLL + ROLL + ROLL, keeps=False),
    wrong(IN_A_GAP, READ, CLEAN + CLEAN, ROLL + ROLL, keeps=False, begins=2),
]

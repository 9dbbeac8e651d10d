"""A file of records becomes a segment as it is. It is completed for one generation, and renamed under the lock if that
generation is still open.

This is a small model of its own. An append is one step and one block, and a roll is one step too. The file is written by its
owner. The owner may give it to several processes, and again to another one if the first was killed. An inode is an index into
`files`, and the first inode is that file.

Models: pyx/write/ingest.pyx.
"""

from operator import attrgetter

from small import Small, SmallModel, Steps
from world import Violation, put

INGESTED = "ingested"  # the one record of the file


class Ingesting(Small):
    FIELDS = (
        "generation",
        "published",
        "open",  # first sequence of the open segment
        "owner",  # thread that has the append lock, living or dead
        "files",  # of each file: (sequence that its header names, its records)
        "names",  # (first sequence, inode) of the segments
        "maybe",  # the same, and the names that a power loss may bring back
        "links",  # processes that have linked the file under a name of their own
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def count_names(self):
        """Returns the number of names of the file: its owner's, those of attempts under way, and those of segments."""
        return 1 + len(self.links) + sum(inode == 0 for _, inode in self.names)


step = Steps()


class IngestingModel(SmallModel):
    Fields, STEPS = Ingesting, step

    def start(self):
        """Starts with a record in the segment 0."""
        files = (None, (INGESTED,)), (0, ("first",))
        name = frozenset([(0, 1)])
        return 0, ("first",), 0, None, files, name, name, frozenset(), self.first_threads(), self.kills

    def check(self, m):
        """Checks that a reader finds the published records by the names, up to the end that the page states."""
        starts = sorted(name for name in m.names if name[0] <= m.open)
        for (start, inode), (end, _) in zip(starts, [*starts[1:], (len(m.published), None)]):
            named, records = m.files[inode]
            if named != start or records != m.published[start:end]:
                raise Violation(f"segment {start} holds {records} from {named} on; published is {m.published}")
        if m.published.count(INGESTED) > 1:
            raise Violation(f"the file is ingested twice: {m.published}")
        for start, inode in m.maybe - m.names:
            if start < len(m.published) and m.files[inode][0] == start:
                raise Violation(f"power loss: the file of a killed call is back at {start}, of {m.published}")


@step("repair")
def repair(m, pid):
    """Removes a file that has the name of the next segment and is not open."""
    if not m.wrong("a takeover leaves the file of a killed call"):
        m.names = frozenset(name for name in m.names if name[0] <= m.open)
    m.go(pid, "repair name", m.memory(pid))


@step("repair name")
def sync_repaired(m, pid):
    if not m.wrong("a takeover does not sync the directory after that"):
        m.maybe = m.names
    m.go(pid, *m.memory(pid))


def unlock(m, pid):
    m.owner = None
    m.next_call(pid)


# --- Other processes that append and roll ---


@step("append")
def lock_to_append(m, pid):
    return m.take_lock(pid, "write")


@step("write")
def write(m, pid):
    """Appends to the open segment, in whichever file has its name."""
    value = f"{pid}.{m.threads[pid][1]}"
    inode = dict(m.names)[m.open]
    start, records = m.files[inode]
    m.files = put(m.files, inode, (start, (*records[: len(m.published) - m.open], value)))
    m.published = (*m.published, value)
    m.generation += 1
    unlock(m, pid)


@step("roll")
def lock_to_roll(m, pid):
    return m.take_lock(pid, "turn")


@step("turn")
def turn(m, pid):
    start = len(m.published)
    if start != m.open:
        if start in dict(m.names):
            raise Violation(f"{start} is in the way of a roll")
        m.files = (*m.files, (start, ()))
        give_name(m, (start, len(m.files) - 1))
        m.open, m.generation = start, m.generation + 1
    unlock(m, pid)


def give_name(m, name):
    m.names |= {name}
    m.maybe |= {name}


# --- Ingesting ---


@step("ingest")
def look_at_place(m, pid):
    """Looks without the lock. If the open segment has no record, the name is taken: then the owner appends the records."""
    start = len(m.published)
    if start == m.open:
        return m.next_call(pid)
    if m.wrong("the links are looked at before its own is made") and m.count_names() != 1:
        return m.next_call(pid)
    m.go(pid, "link", (m.generation, start))


@step("link")
def link(m, pid):
    m.links |= {pid}
    m.go(pid, "look at links", m.memory(pid))


@step("look at links")
def look_at_links(m, pid):
    """Checks the number of names: the owner's and this one. A file with a third name is a segment, or will become one."""
    looks = not m.wrong("the links are looked at before its own is made")
    if looks and m.count_names() != 2 and not m.wrong("the links are not looked at"):
        return give_up(m, pid)
    m.go(pid, "complete", m.memory(pid))


def give_up(m, pid):
    m.links -= {pid}
    if m.owner == pid:
        m.owner = None
    m.next_call(pid)


@step("complete")
def complete(m, pid):
    """Writes the headers, and syncs the file."""
    _, start = m.memory(pid)
    m.files = put(m.files, 0, (start, m.files[0][1]))
    m.go(pid, "lock to ingest", m.memory(pid))


@step("lock to ingest")
def lock_to_ingest(m, pid):
    return m.take_lock(pid, "rename", m.memory(pid))


@step("rename")
def rename(m, pid):
    generation, start = m.memory(pid)
    if m.generation != generation and not m.wrong("the generation is not looked at again under the lock"):
        return give_up(m, pid)
    if start in dict(m.names):
        raise Violation(f"{start} is in the way of a file that is ingested")
    m.links -= {pid}
    give_name(m, (start, 0))
    m.go(pid, "rotate", start)


@step("rotate")
def rotate(m, pid):
    m.open, m.generation = m.memory(pid), m.generation + 1
    m.published = (*m.published, INGESTED)
    unlock(m, pid)


INGEST, APPEND, ROLL = ("ingest",), ("append",), ("roll",)

SCENARIOS = [
    IngestingModel("ingesting: beside appends and a roll", (INGEST + INGEST, APPEND + ROLL + APPEND, INGEST), kills=2),
    IngestingModel("ingesting: three times", (INGEST + APPEND, INGEST + ROLL, APPEND + INGEST), kills=2, quick=False),
]


def wrong(mistake, *programs, **options):
    return IngestingModel("", programs, wrong=mistake, **options)


MISTAKES = [
    wrong("the generation is not looked at again under the lock", INGEST, APPEND, kills=0),
    wrong("the links are not looked at", INGEST, INGEST, kills=0),
    wrong("the links are looked at before its own is made", INGEST, INGEST, APPEND, kills=0),
    wrong("a takeover leaves the file of a killed call", INGEST, APPEND + ROLL),
    wrong("a takeover does not sync the directory after that", INGEST, APPEND),
]

"""Another file takes the name of a segment that holds only state. The model shows which process writes to which file, what a
sync makes durable, and a power loss at any moment.

This is a small model of its own. State is a number that goes up. A file is the list of states that its blocks make, and its
first block has the first of them. A page states where the blocks end, but not in which file: only the name says that. An inode
is an index into `files`.

Models: pyx/append/roll.pyx, pyx/write/segment_sync.pyx.
"""

from operator import attrgetter

from small import Small, SmallModel, Steps
from world import Violation, put


class Replacing(Small):
    FIELDS = (
        "owner",  # thread that has the append lock, living or dead
        "generation",
        "end",  # end of the blocks in the open segment's file
        "incarnation",  # odd while another file takes the name
        "new",  # (its inode, the end of its blocks)
        "files",  # states of each file, as they are in the page cache
        "synced",  # number of blocks of each file that are certainly on the disk
        "name",  # inode of the file that has the name
        "names",  # inodes of the files that may have the name after a power loss
        "published",  # newest state that a reader can have seen
        "durable",  # newest state that a sync has acknowledged
        "descriptors",  # (inode, incarnation) of the descriptor of each process, or None
        "known",  # incarnation whose name each process has synced
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


step = Steps()


class ReplacingModel(SmallModel):
    Fields, STEPS = Replacing, step

    def start(self):
        """Starts with a segment that has the state 0 in its first block, and is synced. Every process has it open."""
        nobody, open_file = None, (0, 0)
        many = len(self.programs)
        return (
            nobody, 0, 1, 0, (None, 0), ((0,),), (1,), 0, frozenset([0]), 0, 0,
            (open_file,) * many, (0,) * many, self.first_threads(), self.kills,
        )  # fmt: skip

    def died(self, m, process):
        m.descriptors = put(m.descriptors, process, None)

    def check(self, m):
        found = state_found(m)
        if found != m.published:
            raise Violation(f"the next to open finds the state {found}; published is {m.published}")
        for inode in m.names:
            survives = m.files[inode][m.synced[inode] - 1] if m.synced[inode] else -1
            if survives < m.durable:
                raise Violation(f"power loss: the state {m.durable} was synced, {survives} is found")


def state_found(m):
    """Returns the newest state that page and name imply."""
    end = m.new[1] if m.incarnation % 2 and m.name == m.new[0] else m.end
    blocks = m.files[m.name]
    return blocks[end - 1] if end <= len(blocks) else None


def descriptor(m, pid):
    """Returns a descriptor of the open segment's file, under the lock. It is opened by name, and another file may have the
    name by then."""
    process = m.model.process(pid)
    if m.descriptors[process][1] != m.incarnation and not m.wrong("a writer keeps the file that it has open"):
        m.descriptors = put(m.descriptors, process, (m.name, m.incarnation))
    return m.descriptors[process][0]


# --- Taking over ---


@step("repair")
def finish(m, pid):
    if m.incarnation % 2 == 0:
        then, memory = m.memory(pid)
        m.go(pid, then, memory)
        return
    if m.name == m.new[0] and not m.wrong("a takeover does not look whose the name is"):
        m.end = m.new[1]
        m.generation += 1
    m.go(pid, "repair, even", m.memory(pid))


@step("repair, even")
def finish_even(m, pid):
    m.incarnation += 1
    then, memory = m.memory(pid)
    m.go(pid, then, memory)


# --- Storing a state ---


@step("store")
def lock_to_store(m, pid):
    return m.take_lock(pid, "write")


@step("write")
def write(m, pid):
    inode = descriptor(m, pid)
    blocks = m.files[inode]
    # Beyond the end of a shorter file there would be a gap, which no reader can pass.
    m.files = put(m.files, inode, (*blocks[: m.end], m.published + 1))
    m.synced = put(m.synced, inode, min(m.synced[inode], m.end))
    m.go(pid, "rotate")


@step("rotate")
def rotate(m, pid):
    m.end += 1
    m.generation += 1
    m.published += 1
    m.owner = None
    m.next_call(pid)


# --- Replacing the file ---


@step("replace")
def read_page(m, pid):
    """Looks without the lock: generation and incarnation, then place and file, then the first two once more."""
    if m.incarnation % 2:
        return m.take_lock(pid, "look again")
    m.go(pid, "read file", (m.generation, m.incarnation, m.end))
    return None


@step("look again")
def look_again(m, pid):
    m.owner = None
    m.go(pid, "replace")


@step("read file")
def read_file(m, pid):
    generation, incarnation, end = m.memory(pid)
    m.go(pid, "prepare", (generation, incarnation, end, m.name))


@step("prepare")
def prepare(m, pid):
    """Prepares a file with the state of that generation. It is complete and synced before it gets the name."""
    generation, incarnation, end, inode = m.memory(pid)
    if (m.generation, m.incarnation) != (generation, incarnation):
        m.go(pid, "replace")
        return
    m.files = (*m.files, (m.files[inode][end - 1],))
    m.synced = (*m.synced, 0 if m.wrong("the new file is not synced before it has the name") else 1)
    m.go(pid, "lock to replace", (generation, len(m.files) - 1))


@step("lock to replace")
def lock_to_replace(m, pid):
    return m.take_lock(pid, "intend", m.memory(pid))


@step("intend")
def intend(m, pid):
    generation, inode = m.memory(pid)
    if m.generation != generation and not m.wrong("a replacer does not look at the state again"):
        m.owner = None
        m.go(pid, "replace")
        return
    m.new = inode, 1
    m.incarnation += 2 if m.wrong("the incarnation grows once, before the rename") else 1
    m.go(pid, "rename", inode)


@step("rename")
def rename(m, pid):
    m.name = m.memory(pid)
    m.names |= {m.name}
    m.go(pid, "rotate to it", m.name)


@step("rotate to it")
def rotate_to_it(m, pid):
    m.end = 1
    m.generation += 1
    m.go(pid, "even", m.memory(pid))


@step("even")
def even(m, pid):
    m.incarnation += m.incarnation % 2
    m.go(pid, "take over", m.memory(pid))


@step("take over")
def take_over(m, pid):
    m.descriptors = put(m.descriptors, m.model.process(pid), (m.memory(pid), m.incarnation))
    m.owner = None
    m.next_call(pid)


# --- Syncing ---


@step("sync")
def read_place(m, pid):
    """Reads the state that the sync will promise, without the lock."""
    m.go(pid, "borrow", (m.published, m.incarnation))


@step("borrow")
def borrow(m, pid):
    promised, early = m.memory(pid)
    inode, incarnation = m.descriptors[m.model.process(pid)]
    if incarnation != m.incarnation and not m.wrong("a sync takes the file that it has open"):
        inode = m.name
    m.go(pid, "fdatasync", (promised, early, inode))


@step("fdatasync")
def fdatasync(m, pid):
    promised, early, inode = m.memory(pid)
    m.synced = put(m.synced, inode, len(m.files[inode]))
    m.go(pid, "look", (promised, early))


@step("look")
def look_at_incarnation(m, pid):
    promised, early = m.memory(pid)
    incarnation = early if m.wrong("a sync looks at the incarnation before its fdatasync") else m.incarnation
    same = incarnation == m.known[m.model.process(pid)]
    if same or m.wrong("a sync does not sync the name of another file"):
        m.go(pid, "promise", promised)
    else:
        m.go(pid, "sync directory", (promised, incarnation))


@step("sync directory")
def sync_directory(m, pid):
    promised, incarnation = m.memory(pid)
    m.names = frozenset([m.name])
    if incarnation % 2 == 0 or m.wrong("a sync remembers an odd incarnation"):
        m.known = put(m.known, m.model.process(pid), incarnation)
    m.go(pid, "promise", promised)


@step("promise")
def promise(m, pid):
    m.durable = max(m.durable, m.memory(pid))
    m.next_call(pid)


STORE, REPLACE, SYNC = ("store",), ("replace",), ("sync",)

SCENARIOS = [
    ReplacingModel("replacing: stores, syncs", (STORE + REPLACE + STORE, STORE + SYNC + SYNC, STORE), kills=2),
    ReplacingModel(
        "replacing: two at once",
        (STORE + REPLACE + SYNC, STORE + REPLACE + STORE, SYNC),
        kills=2,
        quick=False,
    ),
    ReplacingModel(
        "replacing: two threads of one process",
        (STORE + REPLACE + STORE, SYNC + SYNC, REPLACE + SYNC),
        processes=((1, 0),),
        quick=False,
    ),
    ReplacingModel("replacing: twice, and syncs", (STORE + REPLACE + REPLACE, SYNC + STORE + SYNC + SYNC)),
]


def wrong(mistake, *programs, **options):
    return ReplacingModel("", programs, wrong=mistake, **{"kills": 0, **options})


MISTAKES = [
    wrong("a writer keeps the file that it has open", STORE + REPLACE, STORE),
    wrong("a replacer does not look at the state again", REPLACE, STORE),
    wrong("a takeover does not look whose the name is", STORE + REPLACE, STORE, kills=1),
    wrong("the new file is not synced before it has the name", STORE + SYNC + REPLACE),
    wrong("a sync takes the file that it has open", STORE + REPLACE + STORE, SYNC),
    wrong("a sync does not sync the name of another file", STORE + REPLACE + STORE, SYNC),
    wrong(
        "a sync looks at the incarnation before its fdatasync",
        STORE + REPLACE + STORE,
        SYNC,
        processes=((1, 0),),
    ),
    wrong("the incarnation grows once, before the rename", STORE + REPLACE + STORE, SYNC + SYNC),
    wrong("a sync remembers an odd incarnation", STORE + REPLACE + STORE, SYNC + SYNC, kills=1),
]

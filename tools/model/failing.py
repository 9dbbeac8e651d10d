"""An fdatasync that fails: the kernel tells one descriptor, its process may die before it tells the others, and another process
opens the journal.

This is a small model of its own: one file, and appending is one step and one block. The kernel tells of a failed write-back
once for each open file description that was open then, and marks the pages clean. The pages may still be readable, or not. A
descriptor that is opened later is told only if no other one was told before. A block is in one of these conditions: d: dirty,
in the page cache only; c: on the disk; l: lost, still readable, and never on the disk; g: gone, lost and no longer readable.

Models: pyx/process/descriptors.pyx, pyx/write/opening.pyx, pyx/write/segment_sync.pyx.
"""

from functools import partial
from operator import attrgetter

from small import OVER, Small, SmallModel, Steps
from world import Violation, put

SHARED = -1  # in place of a new descriptor
FIRST = "the first of two syncs to end takes the note of both away"  # the older design
TOLD = "a thread that was told lets the descriptor go before it tells"
BEFORE_A_GONE_ONE = "where a block is gone the ones before it are left as they are"


class Failing(Small):
    FIELDS = (
        "blocks",  # blocks of the file that has the name
        "replaced",  # blocks of a file to which a power loss may give the name back, or None
        "durable",  # number of the blocks that a sync has acknowledged
        "error",  # sync_error in the page
        "begun",  # number of syncs so far
        "ended",  # number of syncs that have stored their result
        "first",  # note of the older design: the number of a sync that has begun; 0 without one
        "word",  # thread that has the sync lock, living or dead
        "attached",  # processes that have the journal open
        "failed",  # (failed write-backs, whether any descriptor was told of the last one)
        # kept descriptor of each process, or None: (failures it was told of, blocks it is not reliable for, sync at which it
        # was opened)
        "kept",
        "using",  # threads in an fdatasync of their process's kept descriptor
        "threads",
        "kills",
        "failures",  # number of write-backs that may still fail
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))


step = Steps()


class FailingModel(SmallModel):
    Fields, STEPS = Failing, step
    FAILURES = 1

    def start(self):
        many = len(self.programs)
        attached = frozenset(self.process(pid) for pid in range(many) if self.programs[pid][0] != "start")
        return (
            (), None, 0, False, 0, 0, 0, None, attached, (0, True), (None,) * many, frozenset(),
            self.first_threads(), self.kills, self.FAILURES,
        )  # fmt: skip

    def others(self, m):
        if "d" in m.blocks:
            yield "the kernel writes back", write_back
            if m.failures:
                yield "the kernel fails to write back", fail_to_write_back
        for at, block in enumerate(m.blocks):
            if block == "l":
                yield f"the kernel drops block {at}, which it could not write", partial(drop, at=at)

    def died(self, m, process):
        m.attached -= {process}
        m.kept = put(m.kept, process, None)
        m.using = frozenset(pid for pid in m.using if self.process(pid) != process)

    def check(self, m):
        for blocks in (m.blocks, *([] if m.replaced is None else [m.replaced])):
            if set(blocks[: m.durable]) - {"c"} or len(blocks) < m.durable:
                raise Violation(f"{m.durable} blocks were synced, and the disk has of them {blocks}")


# --- The kernel ---


def write_back(m, _=None):
    m.blocks = tuple("c" if block == "d" else block for block in m.blocks)


def fail_to_write_back(m, _=None):
    m.failures -= 1
    m.blocks = tuple("l" if block == "d" else block for block in m.blocks)
    m.failed = m.failed[0] + 1, False


def drop(m, _, at):
    m.blocks = put(m.blocks, at, "g")


def open_file(m, others):
    """Opens a descriptor: (failures it was told of, blocks it is not reliable for, sync at which it was opened). `others`: a
    sync is under way, or has died in its fdatasync. So a failure may have been told to it that it has not stored."""
    count, told = m.failed
    doubtful = len(m.blocks) if others else 0
    return count if told else count - 1, doubtful, m.begun if m.wrong(FIRST) else 0


# --- Appending ---


@step("append")
def append(m, pid):
    """Appends. The descriptor is opened once, and kept."""
    if m.error:
        return give_up(m, pid)
    process = m.model.process(pid)
    if m.kept[process] is None:
        m.kept = put(m.kept, process, open_file(m, m.begun != m.ended))
    m.blocks = (*m.blocks, "d")
    m.next_call(pid)


# --- Syncing ---


@step("sync")
def call_sync(m, pid):
    m.go(pid, "word", len(m.blocks))


@step("word")
def wait_for_word(m, pid):
    """Begins a sync, unless another one has synced the block by now. If the owner of the lock lives but may be stopped, the
    thread syncs beside it, without the lock."""
    if m.durable >= m.memory(pid):
        return m.next_call(pid)
    if m.error:
        return give_up(m, pid)
    if m.word is None or m.threads[m.word][0] in OVER:
        m.word = pid
    m.go(pid, "begin")


@step("begin")
def begin(m, pid):
    """Reads the end that it will promise first."""
    if m.error:
        return raise_in_sync(m, pid)
    m.begun += 1
    if m.first == 0 and m.wrong(FIRST):
        m.first = m.begun
    m.go(pid, "borrow", (len(m.blocks), m.begun))


@step("borrow")
def borrow(m, pid):
    """Chooses a descriptor. The kernel tells the kept one once, in any thread. So one thread at a time uses it, and each of
    the others opens a new one."""
    end, number = m.memory(pid)
    process = m.model.process(pid)
    kept = m.kept[process]
    alone = not any(m.model.process(other) == process for other in m.using)
    if m.wrong("threads share what the kernel tells a descriptor"):
        alone = True
    if kept and alone:
        m.using |= {pid}
        m.go(pid, "write again", (end, number, kept, SHARED))
    else:
        mine = open_file(m, m.begun - 1 != m.ended)
        m.go(pid, "write again", (end, number, mine, mine[0]))


@step("write again")
def rewrite_unsynced_blocks(m, pid):
    """Writes blocks once more through a new descriptor: blocks that were there before it was opened may have been lost
    before."""
    end, number, (_, doubtful, opened), mine = m.memory(pid)
    if m.wrong(FIRST):
        doubtful = end if m.first not in (0, number) and opened >= m.first else 0
    if m.wrong("a descriptor is believed, however young it is"):
        doubtful = 0
    again = slice(m.durable, max(doubtful, m.durable))
    if "g" in m.blocks[again]:
        return m.go(pid, "tell", (end, number))  # a failure like any other
    if "l" in m.blocks[again]:
        m.blocks = tuple("d" if again.start <= at < again.stop and block == "l" else block for at, block in enumerate(m.blocks))
    m.go(pid, "fdatasync", (end, number, mine))


@step("fdatasync")
def fdatasync(m, pid):
    write_back(m)
    m.go(pid, "told", m.memory(pid))


@step("fdatasync")
def fail_in_fdatasync(m, pid):
    if not m.failures or "d" not in m.blocks:
        return False
    fail_to_write_back(m)
    m.go(pid, "told", m.memory(pid))


@step("told")
def be_told(m, pid):
    """All threads that wait for the same pages come here one after the other, each with its descriptor."""
    end, number, mine = m.memory(pid)
    process = m.model.process(pid)
    heard = m.kept[process][0] if mine == SHARED else mine
    failed = heard != m.failed[0]
    if failed:
        m.failed = m.failed[0], True
        if mine == SHARED:
            m.kept = put(m.kept, process, (m.failed[0], *m.kept[process][1:]))
    if not failed or m.wrong(TOLD):
        m.using -= {pid}
    if failed and m.wrong("an fdatasync that failed is made once more"):
        return m.go(pid, "fdatasync", (end, number, m.failed[0]))
    m.go(pid, "tell" if failed else "promise", (end, number))


@step("tell")
def tell_of_failure(m, pid):
    """Stores the failure in the page, before anything else. It stays until all have closed."""
    m.error = True
    m.go(pid, "end failed")


@step("end failed")
def end_failed(m, pid):
    m.ended += 1
    raise_in_sync(m, pid)


def raise_in_sync(m, pid):
    m.using -= {pid}
    if m.word == pid:
        m.word = None
    give_up(m, pid)


def give_up(m, pid):
    """The call raises, and the program closes. Its process ends with its last thread."""
    m.go(pid, "failed")
    leave(m, pid)


def leave(m, pid):
    process, threads = m.model.process(pid), enumerate(m.threads)
    if all(t == pid or pc in OVER for t, (pc, _, _) in threads if m.model.process(t) == process):
        m.model.died(m, process)


@step("promise")
def promise(m, pid):
    """Looks for a failure that was told to another descriptor before this one was opened: it is in the page by now."""
    if m.error and not m.wrong("a sync does not look at sync_error again"):
        return m.go(pid, "end failed")
    end, number = m.memory(pid)
    if m.wrong("a sync promises the end that it finds after its fdatasync"):
        end = len(m.blocks)
    m.durable = max(m.durable, end)
    m.go(pid, "end", number)


@step("end")
def end_sync(m, pid):
    """Counts the sync as ended. A thread that dies before this leaves the two numbers different, for ever."""
    m.ended += 1
    if m.word == pid or m.first == m.memory(pid):
        m.first = 0
    if m.word == pid:
        m.word = None
    m.next_call(pid)


# --- Closing and opening ---


@step("close")
def close(m, pid):
    leave(m, pid)
    if m.wrong("sync_error goes with the first that closes"):
        m.error = False
    m.next_call(pid)


@step("start")
def start(m, pid):
    """Opens alone. The opening lock excludes all others, so only a kill can interrupt the steps that follow."""
    if any(pc.startswith("alone") for pc, _, _ in m.threads):
        return False
    m.go(pid, "alone: look")


@step("alone: look")
def look_around(m, pid):
    if m.attached or not m.error:
        return attach(m, pid)
    m.word = None
    if m.wrong("the next to open believes what it can read"):
        return clear(m, pid)
    m.go(pid, "alone: copy")


@step("alone: copy")
def copy(m, pid):
    """Copies the blocks after the synced mark into a new file, up to the first one that cannot be read. The blocks after
    that one were not promised to any caller, and are lost."""
    readable = m.blocks
    if "g" in m.blocks:
        readable = m.blocks[: m.blocks.index("g")]
        if m.wrong(BEFORE_A_GONE_ONE):
            m.blocks, m.durable = readable, len(readable)  # like a recovery after a power loss
            return m.go(pid, "alone: clear")
    m.go(pid, "alone: sync copy", ("d",) * len(readable))


@step("alone: sync copy")
def sync_copy(m, pid):
    copied = m.memory(pid)
    if not m.wrong("the copy gets the name before it is synced"):
        copied = ("c",) * len(copied)
    m.go(pid, "alone: rename", copied)


@step("alone: sync copy")
def fail_to_sync_copy(m, pid):
    """Opening raises, and everything is as it was."""
    if not m.fails():
        return False
    m.go(pid, "failed")


@step("alone: rename")
def rename(m, pid):
    m.replaced, m.blocks, m.failed = m.blocks, m.memory(pid), (0, True)
    if m.wrong("the copy gets the name before it is synced"):
        m.durable = len(m.blocks)  # its fdatasync has been forgotten
    m.go(pid, "alone: clear" if m.wrong("the copy's name is not synced") else "alone: sync name")


@step("alone: sync name")
def sync_name(m, pid):
    m.replaced = None
    m.go(pid, "alone: clear")


@step("alone: clear")
def clear(m, pid):
    m.error, m.ended, m.first = False, m.begun, 0
    attach(m, pid)


def attach(m, pid):
    m.attached |= {m.model.process(pid)}
    m.next_call(pid)


A, S, C = ("append",), ("sync",), ("close",)
LATER = ("start",)

SCENARIOS = [
    FailingModel("failing: a process, and one that comes later", (A + S + A, LATER + S)),
    FailingModel("failing: two threads of one process", (A + S, S + C), processes=((1, 0),)),
    FailingModel("failing: two processes and one that comes later", (A + S, A + S, LATER + S), quick=False),
    FailingModel(
        "failing: threads, and one that comes later",
        (A + S, S, LATER + A + S),
        processes=((1, 0),),
        quick=False,
    ),
    FailingModel(
        "failing: all close, and open again",
        (A + S + C, LATER + A + S + C, LATER + S),
        kills=2,
        quick=False,
    ),
]


def wrong(mistake, *programs, **options):
    return FailingModel("", programs, wrong=mistake, **options)


MISTAKES = [
    wrong("an fdatasync that failed is made once more", A + S, kills=0),
    wrong("threads share what the kernel tells a descriptor", A + S, S, kills=0, processes=((1, 0),)),
    wrong(TOLD, A + S, S, kills=0, processes=((1, 0),)),
    wrong("a sync does not look at sync_error again", A + S, LATER + S, kills=0),
    wrong("a descriptor is believed, however young it is", A + S, LATER + S),
    wrong(FIRST, A + S, S, kills=0),
    wrong("a sync promises the end that it finds after its fdatasync", A + S, A, kills=0),
    wrong("sync_error goes with the first that closes", A + S, C + LATER + S, kills=0),
    wrong("the next to open believes what it can read", A + S, LATER + A + S, kills=0),
    wrong(BEFORE_A_GONE_ONE, A + S, A + S, LATER, kills=0),
    wrong("the copy gets the name before it is synced", A + S, LATER, kills=0),
    wrong("the copy's name is not synced", A + S, LATER + A + S, kills=0),
]

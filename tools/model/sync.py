"""Syncs, after the block is flushed and the append lock is released: group commit under a lock of its own.

Models: pyx/write/group_commit.pyx.
"""

from takeover import finish
from world import ALONE, APPEND, SYNC, Violation, step


@step("lock")
def synced_already(m, p):
    """Another thread has synced while this one waited for the lock: that is the group commit."""
    if p.want != SYNC or m.durable < p.copy:
        return False
    finish(m, p)


@step("lock")
def sync_alone(m, p):
    """After 1 s the thread syncs alone, since the holder of the sync lock may be stopped."""
    if p.want != SYNC or not m.words[SYNC]:
        return False
    if m.wrong("sync lock is taken while append is held"):
        return False  # otherwise that deadlock would only become a wait of a second
    p.want, p.pc = ALONE, "sync generation"


@step("sync generation")
def read_generation_for_sync(m, p):
    if m.wrong("sync lock is taken while append is held") and m.words[APPEND]:
        return False  # otherwise it would read the end under the append lock
    p.generation, p.pc = m.generation, "sync intent" if m.spec.defers else "sync slot"


@step("sync intent")
def read_intent_for_sync(m, p):
    """Reads the intent after the generation. If there is an immutable block, the written blocks end where it will lie."""
    if m.unwritten == p.generation - 1 >= 0 and not m.wrong("sync promises the open block's place"):
        p.generation -= 1
    p.pc = "sync slot"


@step("sync slot")
def read_slot_for_sync(m, p):
    p.copy, p.pc = m.slots[p.generation & 1][:2], "sync generation again"
    if m.spec.defers and not m.wrong("sync does not look at the intent again"):
        p.pc = "sync intent again"


@step("sync intent again")
def read_intent_again_for_sync(m, p):
    """Reads the intent again: an immutable block's slot is reused as soon as the block is written, before the generation shows
    it."""
    p.pc = "fdatasync" if m.unwritten == p.generation else "sync generation again"


@step("sync generation again")
def read_generation_again_for_sync(m, p):
    """Reads the generation again. The end that the sync will promise is read before the fdatasync, and lies before the open
    block."""
    moved = m.generation != p.generation and not m.wrong("sync does not look at the generation again")
    if m.wrong("sync does not look at the intent again"):
        moved = m.generation - p.generation > 1 or p.copy[0] is None
    if not moved and p.copy[0] is None:
        raise Violation("the sync takes a half-filled slot for damage")
    p.generation, p.pc = -1, "fdatasync"
    if moved:
        p.copy, p.pc = (), "sync generation"


@step("fdatasync")
def fdatasync(m, p):
    last = p.copy[0][0]
    m.fdatasync(last)
    new = {name for name in m.files if name <= last} - m.entries[0]
    if new and not m.wrong("sync does not sync the directory of a new segment"):
        m.sync_directory()
    p.pc = "mark"


@step("mark")
def mark_durable(m, p):
    """Stores the maximum, with or without the lock: another thread that syncs alone may have come further."""
    end = p.copy[1]
    if m.wrong("sync promises the end that it finds after the fdatasync"):
        end = m.open_slot()[1]
    m.durable = end if m.wrong("holder of the sync lock just stores the durable end") else max(m.durable, end)
    p.after, p.copy = "finish", ()
    if p.want == SYNC:
        p.pc = "unlock"
    else:
        finish(m, p)

"""A segment file that is prepared before the lock is taken: for a roll, and for a very large block.

Under the lock only three things happen: the headers are completed, the file is renamed without replacing another one, and the
journal rotates. A roll takes another segment only if the open one has a record. If it has none, a large block is written as a
direct one.

Models: pyx/append/roll.pyx, pyx/append/prepared_segments.pyx, pyx/append/live_state.pyx.
"""

from append import close, direct, mark_state
from content import content, state_at
from world import APPEND, Violation, put, step
from write_back import leave_to_drain, must_drain


def name_of_spare(m, p):
    """Returns the name next.<slot>.<n>; n tells the threads of a process apart."""
    return p.slot, int(m.spec.process(p.pid) != p.pid)


def drop_spare(m, p):
    name = name_of_spare(m, p)
    m.spares = tuple(s for s in m.spares if s[0] != name)


@step("look")
def look_at_generation(m, p):
    """Reads the generation first, then the state. So a block with state that comes in between is read twice, and never
    missed."""
    p.looked, p.pc = m.generation, "prepare"
    if m.wrong("roller reads the state before the generation"):
        p.copy = state_at(m, content(m)[: m.open_slot()[1]])


@step("prepare")
def prepare(m, p):
    """Allocates the file, and writes the state as read now at its beginning, and a large block too. The block depends on no
    sequence."""
    name, state = name_of_spare(m, p), state_at(m, content(m)[: m.open_slot()[1]])
    if m.wrong("roller reads the state before the generation"):
        state, p.looked = p.copy, m.generation
    if name in dict(m.spares):
        raise Violation(f"next.{name[0]}.{name[1]} is there already, and its process is dead")
    m.spares = tuple(sorted([*m.spares, (name, state)]))
    p.copy, p.pc = (), "lock"


@step("roll")
@step("own file")
@step("own file, state")
def look_again(m, p):
    """Looks again under the lock. If the open block has records, it is written first, with a rotation of its own."""
    if must_drain(m) and not m.wrong("a roll after a block that is not written"):
        return leave_to_drain(m, p)
    (name, _), first, word = m.open_slot()
    if word:
        return close(m, p)
    values = m.spec.programs[p.pid][p.op][1:]
    if name == first:
        drop_spare(m, p)
        if values:
            return direct(m, p)
        p.pc = "unlock"
        return None
    # The intent may be about a block that failed. Then it has the open block's generation, and hides an older one that counts.
    # So it is never ignored. But while the generation has not moved, no state can have come.
    came = p.looked <= m.state and p.looked < m.generation
    if m.wrong("roller looks at the intent only, though the generation has not moved"):
        came = p.looked <= m.state
    if m.wrong("roller ignores the intent of the open generation"):
        came = p.looked <= m.state < m.generation
    if came and not m.wrong("roller does not look at the intent of state again"):
        if p.looked == m.generation:
            raise Violation("the roll reads the same state again, for ever")
        drop_spare(m, p)  # the beginning of the file is written again, which makes no difference for other processes
        m.words = put(m.words, APPEND, 0)
        p.generation, p.pc = -1, "look"
        return None
    p.copy, p.then, p.pc = values or None, "unlock", "rename"


@step("rename")
def rename(m, p):
    """Completes the headers, and then gives the file its name. The name must be free: a takeover has removed the file of a
    dead process."""
    first, mine = m.open_slot()[1], dict(m.spares).get(name_of_spare(m, p))
    if mine is None:
        raise Violation("another process has removed the file that a living process prepared")
    if first in m.files and not m.wrong("roller renames over what is there"):
        raise Violation(f"{first} is in the way of a roll")
    drop_spare(m, p)
    m.set_files({*m.files, first})
    m.starts = tuple(sorted([*m.starts, (first, mine)]))
    mark_state(m, p)
    if p.copy:
        m.write((first, 0), (first, p.copy))
    p.file, p.pc = True, "empty"


@step("rename")
def fail_before_rename(m, p):
    if not m.failures:
        return False
    m.failures -= 1
    drop_spare(m, p)
    p.copy, p.after, p.pc = (), "failed", "unlock"


@step("empty")
def fail_after_rename(m, p):
    if not (m.failures and p.file):
        return False
    m.failures -= 1
    p.copy, p.file, p.after, p.pc = (), False, "failed", "undo"
    if m.wrong("a roll that fails leaves its file"):
        p.pc = "unlock"


@step("undo")
def undo(m, p):
    """Removes the file. It must not come back after a power loss, with numbers that others get once the lock is free."""
    m.set_files({name for name in m.files if name <= m.open_slot()[0][0]})
    p.pc = "undo entries" if m.spec.power and not m.wrong("a roll that fails does not sync the directory") else "unlock"


@step("undo entries")
def sync_undone_directory(m, p):
    m.sync_directory()
    p.pc = "unlock"

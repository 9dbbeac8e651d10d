"""The window of a shared subscriber: workers take, finish, delay and die, and others go on with what they leave.

This is a small model of its own. Each store into the mapped file is a step, and a worker may be killed between any two. The entries
and `next` are true; `ready` stands for all that is derived from them. A lease may end at any moment, and a delay too. A worker that
begins with `open` does so once no other one lives. It creates the window anew if the position in the subscriber's file was moved back
since the window was used. One that begins with `register` comes while others live, and takes the first free slot, such as that of a
dead one: the slot's byte says that a worker lives, and not which one.

Models: pyx/work/entries.h, pyx/work/window.h, pyx/work/window.pyx, pyx/work/task.pyx, pyx/work/tasks.pyx.
"""

from operator import attrgetter

from small import OVER, Small, SmallModel, Steps
from world import Violation, put

EARLY_NEXT = "a record is passed before it has its entry"
NO_STAMP = "a finish does not look at the stamp"
NO_REBUILD = "the lock's new owner does not rebuild"
NO_PROOF = "a worker is buried without its byte"
BEYOND = "an entry counts that was not passed yet"
UNKNOWN = "a stored position that is not known counts as one that was moved back"
NO_RELEASE = "the lock stays with a slot that another worker has now"
NO_BURIAL = "a worker keeps what the last one of its slot had"

FREE, DELAYED = "free", "delayed"


class Working(Small):
    FIELDS = (
        "owner",  # slot that has the lock, or None
        "unrepaired",
        "slots",  # of each thread, or None before it has one
        "next",  # records before it were passed
        "entries",  # of each record: None, or (slot that has it, FREE or DELAYED, stamp)
        "ready",  # derived: records that are free again, in the order in which they are handed out
        "stamp",
        "file",  # the committed position in the subscriber's file
        "stored",  # the same as the window has it: less where a worker died between the two, None after a rebuild
        "holds",  # what each thread was handed: (record, stamp), or None
        "finished",  # records whose finish has returned
        "told",  # threads that were told LeaseLost
        "threads",
        "kills",
    )
    __slots__ = FIELDS
    values = staticmethod(attrgetter(*FIELDS))

    def set_entry(self, record, entry):
        self.entries = put(self.entries, record, entry)

    def is_gone(self, pid):
        return self.threads[pid][0] == "gone"

    def is_dead(self, slot):
        """Returns whether nobody has the slot's byte."""
        return all(self.slots[pid] != slot or self.is_gone(pid) for pid in range(len(self.threads)))

    def held_by(self, slot):
        return [record for record, entry in enumerate(self.entries) if entry and entry[0] == slot and record < self.next]

    def takeable(self):
        """Yields the records that may be handed out now. Time may have ended any delay and any lease."""
        yield from self.ready[:1]
        for record, entry in enumerate(self.entries):
            if entry and record < self.next and not self.ready:
                owner, state, _ = entry
                if (owner is None and state == DELAYED) or (owner is not None and self.model.leases):
                    yield record

    def has_work(self):
        is_new = self.next < self.model.records
        is_dead = any(self.is_dead(slot) and self.held_by(slot) for slot in range(len(self.threads)))
        return is_new or is_dead or any(True for _ in self.takeable()) or (self.owner is not None and self.is_dead(self.owner))

    def rebuild(self):
        """Computes what is derived. An entry of a record that was not passed is dropped."""
        for record, entry in enumerate(self.entries):
            if entry and record >= self.next and not self.wrong(BEYOND):
                self.set_entry(record, None)
        self.ready = tuple(
            record for record, entry in enumerate(self.entries) if entry and entry[0] is None and entry[1] == FREE
        )

        self.stored, self.unrepaired = None, False

    def oldest(self):
        return min((record for record in range(self.next) if self.entries[record]), default=self.next)

    def unlock_and(self, pid, pc, memory=()):
        self.owner = None
        self.go(pid, pc, memory)


step = Steps()


class WorkingModel(SmallModel):
    Fields, STEPS = Working, step
    records, leases = 2, False

    def start(self):
        count = len(self.programs)
        threads = self.first_threads()
        slots = tuple(None if threads[pid][0] == "register" else pid for pid in range(count))
        return None, False, slots, 0, (None,) * self.records, (), 0, 0, 0, (None,) * count, (), (), threads, self.kills

    def is_alive(self, *_):
        return True

    def check(self, m):
        for record in m.finished:
            entry = m.entries[record]
            if entry and record < m.next:
                raise Violation(f"record {record} was finished, and comes again")
        if m.owner is None or m.is_dead(m.owner):
            for record in range(m.next):
                ending = any(pc == "finishing" and memory == (record,) for pc, _, memory in m.threads)
                gone = not m.entries[record] and record not in m.finished and record not in self.maybe(m)
                if gone and not ending:
                    raise Violation(f"record {record} is lost")
        holders = [held[0] for pid, held in enumerate(m.holds) if held and not m.is_gone(pid)]
        if not self.leases and len(holders) != len(set(holders)):
            raise Violation(f"two living workers have the same record: {holders}")

    def maybe(self, m):
        """Records that a killed worker may have finished: it held them, and their entries are gone."""
        return {held[0] for pid, held in enumerate(m.holds) if held and m.is_gone(pid)}

    def stuck(self, state):
        m = Working(self, state)
        return any(pc not in OVER for pc, _, _ in m.threads)


class LeasedModel(WorkingModel):
    leases = True


@step("open")
def open_alone(m, pid):
    if any(pc not in OVER and pc != "open" for other, (pc, _, _) in enumerate(m.threads) if other != pid):
        return False
    stored, m.owner = m.stored, None
    m.rebuild()
    if m.wrong(UNKNOWN) if stored is None else stored > m.file:
        m.next, m.entries, m.ready = m.file, (None,) * m.model.records, ()
    m.go(pid, "read position")
    return None


@step("read position")
def read_position(m, pid):
    m.stored = m.file
    m.next_call(pid)


@step("register")
def take_byte(m, pid):
    m.slots = put(m.slots, pid, next(slot for slot in range(len(m.threads)) if m.is_dead(slot)))
    m.go(pid, "join" if m.wrong(NO_RELEASE) else "release")


@step("release")
def release_lock(m, pid):
    """The last worker of the slot has died with the lock, which nobody else can take now: the slot's byte is held."""
    if m.owner != m.slots[pid]:
        m.go(pid, "join")
    elif not m.unrepaired:
        m.unrepaired = True
    else:
        m.owner = None


@step("join, locked")
def bury_own(m, pid):
    """Frees what the last worker of the slot has left."""
    left = m.held_by(m.slots[pid])
    if left and not m.wrong(NO_BURIAL):
        m.set_entry(left[0], (None, FREE, m.entries[left[0]][2]))
        m.go(pid, "queue", (left[0], "join, locked"))
    else:
        m.unlock_and(pid, "join")
        m.next_call(pid)


@step("take", "finish", "delay", "join")
def lock(m, pid):
    call = m.threads[pid][0]
    if call == "take" and not m.has_work():
        if all(entry is None for entry in m.entries) and m.next == m.model.records:
            m.go(pid, "done")
            return None
        return False  # it sleeps
    if call in ("finish", "delay") and m.holds[pid] is None:
        return m.next_call(pid)
    if m.owner is not None:
        if not m.is_dead(m.owner):
            return False
        m.unrepaired = True
    m.owner = m.slots[pid]
    m.go(pid, "rebuild" if m.unrepaired and not m.wrong(NO_REBUILD) else f"{call}, locked", (call,))
    return None


@step("rebuild")
def rebuild(m, pid):
    m.rebuild()
    m.go(pid, f"{m.memory(pid)[0]}, locked", m.memory(pid))


@step("take, locked")
def bury(m, pid):
    """Frees what a dead worker has. To hold its byte proves that it is dead."""
    for slot in range(len(m.threads)):
        if slot != m.slots[pid] and m.held_by(slot) and (m.is_dead(slot) or m.wrong(NO_PROOF)):
            record = m.held_by(slot)[0]
            m.set_entry(record, (None, FREE, m.entries[record][2]))
            m.go(pid, "queue", (record, "take, locked"))
            return None
    return False


@step("queue")
def queue(m, pid):
    record, then = m.memory(pid)
    m.ready = (*m.ready, record)
    if then.endswith(", locked"):
        m.go(pid, then, (then.removesuffix(", locked"),))
    else:
        m.unlock_and(pid, then)
        m.next_call(pid)


@step("take, locked")
def pop(m, pid):
    """Chooses what is handed out again; the derived part comes first."""
    record = next(m.takeable(), None)
    if record is None:
        return False
    m.ready = tuple(other for other in m.ready if other != record)
    m.go(pid, "give", (record, False))
    return None


@step("take, locked")
def create_entry(m, pid):
    if any(True for _ in m.takeable()) or m.next == m.model.records:
        return False
    record = m.next
    if m.wrong(EARLY_NEXT):
        m.next += 1
        m.go(pid, "create", (record,))
        return None
    if m.entries[record]:
        raise Violation(f"record {record} has two entries")
    m.set_entry(record, (None, FREE, 0))
    m.go(pid, "give", (record, True))
    return None


@step("create")
def create_late(m, pid):
    (record,) = m.memory(pid)
    m.set_entry(record, (None, FREE, 0))
    m.go(pid, "give", (record, False))


@step("give")
def give(m, pid):
    record, is_new = m.memory(pid)
    m.stamp += 1
    m.set_entry(record, (m.slots[pid], FREE, m.stamp))
    m.go(pid, "pass" if is_new else "taken", (record,))


@step("pass")
def store_next(m, pid):
    (record,) = m.memory(pid)
    m.next = record + 1
    m.go(pid, "taken", (record,))


@step("taken")
def return_task(m, pid):
    (record,) = m.memory(pid)
    m.holds = put(m.holds, pid, (record, m.entries[record][2]))
    m.unlock_and(pid, "taken")
    m.next_call(pid)


@step("take, locked")
def find_nothing(m, pid):
    if any(True for _ in m.takeable()) or m.next < m.model.records:
        return False
    if any(m.held_by(other) and m.is_dead(other) for other in range(len(m.threads))):
        return False
    m.unlock_and(pid, "take")
    return None


@step("finish, locked", "delay, locked")
def look_at_entry(m, pid):
    record, stamp = m.holds[pid]
    call = m.threads[pid][0]
    entry = m.entries[record]
    is_held = entry is not None and entry[0] == m.slots[pid] and entry[2] == stamp
    if m.wrong(NO_STAMP) and entry is not None:
        is_held = True
    if not is_held:
        m.told = (*m.told, pid)
        m.holds = put(m.holds, pid, None)
        m.unlock_and(pid, "lost")
        m.next_call(pid)
    elif call == "finish, locked":
        if entry[0] != m.slots[pid]:
            raise Violation(f"{pid} finishes record {record}, which {entry[0]} has now")
        m.go(pid, "finishing", (record,))
    else:
        m.set_entry(record, (m.slots[pid], DELAYED, stamp))
        m.go(pid, "delaying", (record,))


@step("finishing")
def store_finish(m, pid):
    (record,) = m.memory(pid)
    m.set_entry(record, None)
    m.ready = tuple(other for other in m.ready if other != record)
    m.go(pid, "finished", (record,))


@step("finished")
def write_position(m, pid):
    m.file = m.oldest()
    m.go(pid, "written", m.memory(pid))


@step("written")
def return_finish(m, pid):
    (record,) = m.memory(pid)
    m.stored = m.file
    m.finished = tuple(sorted({*m.finished, record}))
    m.holds = put(m.holds, pid, None)
    m.unlock_and(pid, "finished")
    m.next_call(pid)


@step("delaying")
def store_delay(m, pid):
    (record,) = m.memory(pid)
    m.set_entry(record, (None, DELAYED, m.entries[record][2]))
    m.holds = put(m.holds, pid, None)
    m.unlock_and(pid, "delayed")
    m.next_call(pid)


TAKE_AND_FINISH, DELAY_ONCE = ("take", "finish"), ("take", "delay")
KILLED_TWO = (TAKE_AND_FINISH, TAKE_AND_FINISH * 2)
REUSED = (TAKE_AND_FINISH, TAKE_AND_FINISH, ("register", *TAKE_AND_FINISH * 2))
SCENARIOS = [
    WorkingModel("working: three workers, two killed", (TAKE_AND_FINISH * 2,) * 3, kills=2),
    WorkingModel("working: delays, one killed", (DELAY_ONCE + TAKE_AND_FINISH * 2, TAKE_AND_FINISH * 2), kills=1),
    LeasedModel("working: leases, one killed", (TAKE_AND_FINISH * 2,) * 3, kills=1),
    WorkingModel("working: two killed, another opens", (*KILLED_TWO, ("open", *TAKE_AND_FINISH * 2)), kills=2),
    WorkingModel("working: two killed, one reuses a slot", REUSED, kills=2),
    WorkingModel("working: two killed, two reuse slots", (*REUSED, REUSED[-1]), kills=2, quick=False),
]
MISTAKES = [
    *(
        WorkingModel("", (TAKE_AND_FINISH * 2,) * 3, kills=2, wrong=mistake)
        for mistake in (EARLY_NEXT, NO_REBUILD, NO_PROOF, BEYOND)
    ),
    LeasedModel("", (TAKE_AND_FINISH * 2,) * 3, wrong=NO_STAMP),
    WorkingModel("", (*KILLED_TWO, ("open", *TAKE_AND_FINISH * 2)), kills=2, wrong=UNKNOWN),
    *(WorkingModel("", REUSED, kills=1, wrong=mistake) for mistake in (NO_RELEASE, NO_BURIAL)),
]

"""The window of a shared subscriber: workers take, finish, delay and die, and others go on with what they leave.

This is a small model of its own. Each store into the mapped file is a step, and a worker may be killed between any two. The entries
and `next` are true; `ready` stands for all that is derived from them. A lease may end at any moment, and a delay too. A worker that
begins with `open` does so once no other one lives. It creates the window anew if the position in the subscriber's file was moved back
since the window was used. One that begins with `register` comes while others live, and takes the first free slot, such as that of a
dead one: the slot's byte says that a worker lives, and not which one.

A death is a failure of what the worker had begun; if it had begun nothing, of what it was handed first; of nothing if it had left by
itself. `due` counts for each record the failures that it has to have. The store that frees a record counts its failure too. A worker
that drops a record marks it without the lock, and whichever worker takes next gives it back.

Models: pyx/work/entries.h, pyx/work/window.h, pyx/work/window.pyx, pyx/work/task.pyx, pyx/work/tasks.pyx.
"""

from small import OVER, SmallModel, Steps
from window import BEYOND, DELAYED, DROPPED, FREE, OLD_MARK, Working
from world import Violation, put

EARLY_NEXT = "a record is passed before it has its entry"
NO_STAMP = "a finish does not look at the stamp"
NO_REBUILD = "the lock's new owner does not rebuild"
NO_PROOF = "a worker is buried without its byte"
UNKNOWN = "a stored position that is not known counts as one that was moved back"
NO_RELEASE = "the lock stays with a slot that another worker has now"
NO_BURIAL = "a worker keeps what the last one of its slot had"
TWO_STORES = "a failure is counted before the record is freed"
BEGUN_FIRST = "what was in work is freed before the rest"
NO_MARK = "the record to blame is freed without a mark that says so"
NEVER_LEFT = "a worker that ends by itself does not say so"


step = Steps()


class WorkingModel(SmallModel):
    Fields, STEPS = Working, step
    records, leases = 2, False

    def start(self):
        count = len(self.programs)
        threads = self.first_threads()
        slots = tuple(None if threads[pid][0] == "register" else pid for pid in range(count))
        none, zeros = (None,) * self.records, (0,) * self.records
        return None, False, slots, 0, none, zeros, (), 0, 0, 0, ((),) * count, (), zeros, (), (), threads, self.kills

    def is_alive(self, *_):
        return True

    def died(self, m, process):
        has_joined = self.programs[process][m.threads[process][1]] != "register"
        if m.slots[process] is not None and has_joined:
            for record in m.fails_with(m.slots[process])[0]:
                m.due = put(m.due, record, m.due[record] + 1)

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
            if not self.leases:  # one that is over may be taken from a dead worker before anybody buries that
                self.check_failures(m)
        holders = [
            record
            for pid, held in enumerate(m.holds)
            if not m.is_gone(pid)
            for record, stamp in held
            if m.begun[record] != -stamp
        ]
        if not self.leases and len(holders) != len(set(holders)):
            raise Violation(f"two living workers have the same record: {holders}")

    def check_failures(self, m):
        held = {record for pid, held in enumerate(m.holds) if not m.is_gone(pid) for record, _ in held}
        for record, entry in enumerate(m.entries[: m.next]):
            if entry and (entry[0] is None or record in held) and entry[3] != m.due[record]:
                raise Violation(f"record {record} has failed {m.due[record]} times, and its entry says {entry[3]}")

    def maybe(self, m):
        """Records that a killed worker may have finished: it held them, and their entries are gone."""
        return {record for pid, held in enumerate(m.holds) if m.is_gone(pid) for record, _ in held}

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
        m.next, m.entries, m.ready, m.due = m.file, (None,) * m.model.records, (), (0,) * m.model.records
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
    slot = m.slots[pid]
    if m.held_by(slot) and not m.wrong(NO_BURIAL):
        bury_one(m, pid, slot, "join, locked")
    else:
        m.left = tuple(other for other in m.left if other != slot)
        m.unlock_and(pid, "join")
        m.next_call(pid)


def bury_one(m, pid, slot, then):
    """Does one step of a burial: marks what is to blame, or else frees a record; those that are marked last."""
    failing, are_marked = m.fails_with(slot, m.model.wrong)
    if failing and not are_marked and not m.wrong(NO_MARK):
        m.mark(failing[0], m.entries[failing[0]][2])
        return
    held = m.held_by(slot)
    first = failing if m.wrong(BEGUN_FIRST) or not are_marked else [record for record in held if record not in failing]
    record = (first or held)[0]
    if record in failing and m.wrong(TWO_STORES):
        owner, state, stamp, failures = m.entries[record]
        m.set_entry(record, (owner, state, stamp, failures + 1))
        m.go(pid, "free", (record, then))
        return
    m.free(record, failed=record in failing)
    m.go(pid, "queue", (record, then))


@step("free")
def free_late(m, pid):
    m.free(m.memory(pid)[0])
    m.go(pid, "queue", m.memory(pid))


@step("take", "finish", "delay", "join")
def lock(m, pid):
    call = m.threads[pid][0]
    if call == "take" and not m.has_work(pid):
        if all(entry is None for entry in m.entries) and m.next == m.model.records:
            m.go(pid, "done")
            return None
        return m.next_call(pid) if m.holds[pid] else False  # without a record in hand it sleeps
    if call in ("finish", "delay") and not m.holds[pid]:
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
            return bury_one(m, pid, slot, "take, locked")
    return False


@step("take, locked")
def free_dropped(m, pid):
    dropped = [record for slot in range(len(m.threads)) for record in m.held_by(slot) if m.is_dropped(record)]
    if not dropped:
        return False
    m.free(dropped[0])
    m.go(pid, "queue", (dropped[0], "take, locked"))
    return None


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
    m.set_entry(record, (None, FREE, 0, 0))
    m.go(pid, "give", (record, True))
    return None


@step("create")
def create_late(m, pid):
    (record,) = m.memory(pid)
    m.set_entry(record, (None, FREE, 0, 0))
    m.go(pid, "give", (record, False))


@step("give")
def give(m, pid):
    record, is_new = m.memory(pid)
    owner, failures = m.entries[record][0], m.entries[record][3]
    m.stamp += 1
    if owner is not None:  # its lease was over
        failures += 1
        m.due = put(m.due, record, m.due[record] + 1)
    m.set_entry(record, (m.slots[pid], FREE, m.stamp, failures))
    m.go(pid, "pass" if is_new else "taken", (record,))


@step("pass")
def store_next(m, pid):
    (record,) = m.memory(pid)
    m.next = record + 1
    m.go(pid, "taken", (record,))


@step("taken")
def return_task(m, pid):
    (record,) = m.memory(pid)
    m.holds = put(m.holds, pid, (*m.holds[pid], (record, m.entries[record][2])))
    m.unlock_and(pid, "taken")
    m.next_call(pid)


@step("take, locked")
def find_nothing(m, pid):
    if any(True for _ in m.takeable()) or m.next < m.model.records:
        return False
    if any(m.held_by(other) and m.is_dead(other) for other in range(len(m.threads))):
        return False
    m.unlock_and(pid, "take")
    return m.next_call(pid) if m.holds[pid] else None


@step("finish, locked", "delay, locked")
def look_at_entry(m, pid):
    record, stamp = m.holds[pid][0]
    call = m.threads[pid][0]
    entry = m.entries[record]
    is_held = entry is not None and entry[0] == m.slots[pid] and entry[2] == stamp
    if m.wrong(NO_STAMP) and entry is not None:
        is_held = True
    if not is_held:
        m.told = (*m.told, pid)
        m.drop_hold(pid)
        m.unlock_and(pid, "lost")
        m.next_call(pid)
    elif call == "finish, locked":
        if entry[0] != m.slots[pid]:
            raise Violation(f"{pid} finishes record {record}, which {entry[0]} has now")
        m.go(pid, "finishing", (record,))
    else:
        m.set_entry(record, (m.slots[pid], DELAYED, *entry[2:]))
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
    m.drop_hold(pid)
    m.unlock_and(pid, "finished")
    m.next_call(pid)


@step("delaying")
def store_delay(m, pid):
    (record,) = m.memory(pid)
    m.free(record, DELAYED, failed=True)
    m.due = put(m.due, record, m.due[record] + 1)
    m.drop_hold(pid)
    m.unlock_and(pid, "delayed")
    m.next_call(pid)


@step("begin", "drop")
def look_without_lock(m, pid):
    """The mark is stored without the lock, after a look at the entry: the lease may be over in between."""
    if not m.holds[pid]:
        return m.next_call(pid)
    record, stamp = m.holds[pid][0]
    entry = m.entries[record]
    if entry and entry[0] == m.slots[pid] and entry[2] == stamp:
        m.go(pid, "marking", (record, stamp if m.threads[pid][0] == "begin" else -stamp))
    else:
        m.next_call(pid)
    return None


@step("marking")
def store_mark(m, pid):
    record, mark = m.memory(pid)
    m.mark(record, mark)
    if mark < 0:
        m.drop_hold(pid)
    m.next_call(pid)


@step("leave")
def say_that_it_leaves(m, pid):
    """The program ends, and then the kernel frees the slot's byte."""
    if not m.wrong(NEVER_LEFT):
        m.left = (*m.left, m.slots[pid])
    m.go(pid, "end")


@step("end")
def end(m, pid):
    m.go(pid, "gone")


TAKE_AND_FINISH, DELAY_ONCE = ("take", "finish"), ("take", "delay")
KILLED_TWO = (TAKE_AND_FINISH, TAKE_AND_FINISH * 2)
REUSED = (TAKE_AND_FINISH, TAKE_AND_FINISH, ("register", *TAKE_AND_FINISH * 2))
TAKE_TWO, BEGIN = ("take", "take", "finish", "finish"), ("take", "take", "begin", "finish", "finish")
DROP, LEAVE = ("take", "take", "drop", *TAKE_AND_FINISH * 2), ("take", "begin", "leave")
TWICE = TAKE_AND_FINISH * 2
SCENARIOS = [
    WorkingModel("working: three workers, two killed", (TWICE,) * 3, kills=2),
    WorkingModel("working: delays, one killed", (DELAY_ONCE + TWICE, TWICE), kills=1),
    LeasedModel("working: leases, one killed", (TWICE,) * 3, kills=1),
    WorkingModel("working: two killed, another opens", (*KILLED_TWO, ("open", *TWICE)), kills=2),
    WorkingModel("working: two killed, one reuses a slot", REUSED, kills=2),
    WorkingModel("working: two killed, two reuse slots", (*REUSED, REUSED[-1]), kills=2, quick=False),
    WorkingModel("working: one killed in work, and one that buries it", (BEGIN, TAKE_TWO, TWICE), kills=2),
    WorkingModel("working: one drops, one is killed", (DROP, TWICE), kills=1),
    WorkingModel("working: one leaves, one is killed", (LEAVE, BEGIN, TWICE), kills=1),
    WorkingModel("working: one leaves, one reuses its slot", (LEAVE, ("register", *BEGIN), TWICE), kills=1),
    LeasedModel("working: leases, one killed in work", (("take", "begin", "finish"), BEGIN), kills=1),
]
MISTAKES = [
    *(WorkingModel("", (TWICE,) * 3, kills=2, wrong=mistake) for mistake in (EARLY_NEXT, NO_REBUILD, NO_PROOF, BEYOND)),
    LeasedModel("", (TWICE,) * 3, wrong=NO_STAMP),
    WorkingModel("", (*KILLED_TWO, ("open", *TWICE)), kills=2, wrong=UNKNOWN),
    *(WorkingModel("", REUSED, kills=1, wrong=mistake) for mistake in (NO_RELEASE, NO_BURIAL)),
    *(WorkingModel("", (BEGIN, TAKE_TWO, TWICE), kills=2, wrong=mistake) for mistake in (TWO_STORES, BEGUN_FIRST, NO_MARK)),
    WorkingModel("", (BEGIN, TAKE_TWO, TWICE), kills=2, wrong=OLD_MARK),
    WorkingModel("", (DROP, TWICE), kills=1, wrong=DROPPED),
    WorkingModel("", (LEAVE, BEGIN, TWICE), kills=1, wrong=NEVER_LEFT),
]

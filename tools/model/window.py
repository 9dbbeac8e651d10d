"""The state of a window and of its workers, for working.py."""

from operator import attrgetter

from small import Small
from world import put

BEYOND = "an entry counts that was not passed yet"
OLD_MARK = "a mark does not say to which handing out it belongs"
DROPPED = "a dropped record is blamed"

FREE, DELAYED = "free", "delayed"


class Working(Small):
    FIELDS = (
        "owner",  # slot that has the lock, or None
        "unrepaired",
        "slots",  # of each thread, or None before it has one
        "next",  # records before it were passed
        "entries",  # of each record: None, or (slot that has it, FREE or DELAYED, stamp, failures)
        "begun",  # of each record: the stamp with which it was begun; less than 0: it was dropped
        "ready",  # derived: records that are free again, in the order in which they are handed out
        "stamp",
        "file",  # the committed position in the subscriber's file
        "stored",  # the same as the window has it: less where a worker died between the two, None after a rebuild
        "holds",  # what each thread was handed and has not ended: (record, stamp) of each
        "left",  # slots whose worker has ended by itself
        "due",  # failures that each record has to have
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

    def is_dropped(self, record):
        return self.begun[record] == -self.entries[record][2]

    def mark(self, record, begun):
        self.begun = put(self.begun, record, begun)

    def free(self, record, state=FREE, failed=False):
        _, _, stamp, failures = self.entries[record]
        self.set_entry(record, (None, state, stamp, failures + failed))

    def fails_with(self, slot, wrong=""):
        """Returns the records that fail with the death of the slot's worker, and whether they are marked."""
        held = [] if slot in self.left else self.held_by(slot)
        stamps = {record: self.entries[record][2] for record in held}
        begun = [
            record for record in held if self.begun[record] == stamps[record] or (wrong == OLD_MARK and self.begun[record] > 0)
        ]
        others = [record for record in held if self.begun[record] != -stamps[record] or wrong == DROPPED]
        return begun or sorted(others, key=stamps.get)[:1], bool(begun)

    def drop_hold(self, pid):
        self.holds = put(self.holds, pid, self.holds[pid][1:])

    def held_by(self, slot):
        return [record for record, entry in enumerate(self.entries) if entry and entry[0] == slot and record < self.next]

    def takeable(self):
        """Yields the records that may be handed out now. Time may have ended any delay and any lease."""
        yield from self.ready[:1]
        for record, entry in enumerate(self.entries):
            if entry and record < self.next and not self.ready:
                owner, state = entry[:2]
                if (owner is None and state == DELAYED) or (owner is not None and self.model.leases):
                    yield record

    def has_work(self, pid):
        if any(self.is_dropped(record) for record in self.held_by(self.slots[pid])):
            return True
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

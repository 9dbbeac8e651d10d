"""Common parts of the small models: threads that carry out calls one step at a time, and SIGKILL.

Such a model is a dataclass that states the `Fields` of its states, its `STEPS`, and its start. A thread is a tuple of its next
label, the number of its call, and the values that it remembers. Each of its steps is one function.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from world import State, put

OVER = {"done", "failed", "gone"}


class Small(State):
    """The fields that every small model has, at the end of its FIELDS: threads and kills."""

    __slots__ = ("model",)

    def __init__(self, model, values):
        super().__init__(values)
        self.model = model

    def wrong(self, mistake):
        return self.model.wrong == mistake

    def fails(self):
        """Returns whether one more system call may fail, and counts it as failed."""
        self.failures -= 1
        return self.failures >= 0

    def memory(self, pid):
        return self.threads[pid][2]

    def go(self, pid, pc, memory=()):
        self.threads = put(self.threads, pid, (pc, self.threads[pid][1], memory))

    def take_lock(self, pid, then, memory=()):
        """Takes the append lock, for a model with the field `owner`. Returns False if a living thread has it. A lock of a
        dead thread comes with the work that this thread left unfinished."""
        left = self.owner is not None
        if left and self.threads[self.owner][0] != "gone":
            return False
        self.owner = pid
        self.go(pid, "repair" if left else then, (then, memory) if left else memory)
        return None

    def next_call(self, pid):
        """Ends the call: it has returned."""
        call = self.threads[pid][1] + 1
        program = self.model.programs[pid]
        self.threads = put(self.threads, pid, (program[call] if call < len(program) else "done", call, ()))


class Steps(dict):
    """The functions of each label. If there are several, any of them may come next."""

    def __call__(self, *labels):
        def register(function):
            for label in labels:
                self.setdefault(label, []).append(function)
            return function

        return register


@dataclass(frozen=True)
class SmallModel:
    name: str
    programs: tuple  # for each thread the labels with which its calls begin
    kills: int = 1
    processes: tuple = ()  # pairs (pid, pid): the first is a thread in the process of the second
    wrong: str = ""
    quick: bool = True

    Fields: ClassVar[type]
    STEPS: ClassVar[Steps]

    def process(self, pid):
        return dict(self.processes).get(pid, pid)

    def first_threads(self):
        return tuple((program[0], 0, ()) for program in self.programs)

    def moves(self, state):
        m = self.Fields(self, state)
        for pid, (pc, _, _) in enumerate(m.threads):
            for function in self.STEPS.get(pc, ()):
                yield f"{pid}: {function.__name__}", True, partial(self.perform, state, function, pid)
            if m.kills and pc not in OVER and self.is_alive(m, pid):
                yield f"{pid} is killed at {pc!r}", False, partial(self.perform, state, self.kill, pid)
        for name, function in self.others(m):
            yield name, False, partial(self.perform, state, function, None)

    def others(self, _):
        """Returns events without a thread: (name, function)."""
        return ()

    def perform(self, state, function, pid):
        m = self.Fields(self, state)
        if function(m, pid) is False:
            return None
        return m.freeze()

    def is_alive(self, m, pid):
        return m.threads[pid][0] != "start"

    def kill(self, m, pid):
        m.kills -= 1
        process = self.process(pid)
        for other in range(len(m.threads)):
            if self.process(other) == process:
                m.go(other, "gone")
        self.died(m, process)

    def died(self, m, process):
        """The kernel takes back the locks and descriptors of the dead process."""

    def visit(self, state):
        if state is not None:
            self.check(self.Fields(self, state))

    def check(self, m):
        """Raises Violation if a promise does not hold."""

    def stuck(self, state):
        """Returns True if a thread can never go on."""
        return any(pc not in OVER and pc != "start" for pc, _, _ in self.Fields(self, state).threads)

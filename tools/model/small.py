"""Common to the small models: threads that carry out calls one step at a time, and SIGKILL.

Such a model is a dataclass that says which `Fields` its states have, which `STEPS` there are, and how it starts. A thread
is (what comes next, number of the call, what it remembers); each of its steps is one function.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from world import State, put

OVER = {"done", "failed", "gone"}


class Small(State):
    """The fields that every small model has come last in its FIELDS: threads and kills."""

    __slots__ = ("model",)

    def __init__(self, model, values):
        super().__init__(values)
        self.model = model

    def wrong(self, mistake):
        return self.model.wrong == mistake

    def fails(self):
        """Whether one more system call may fail; then it has."""
        self.failures -= 1
        return self.failures >= 0

    def memory(self, pid):
        return self.threads[pid][2]

    def go(self, pid, pc, memory=()):
        self.threads = put(self.threads, pid, (pc, self.threads[pid][1], memory))

    def take_lock(self, pid, then, memory=()):
        """The append lock, where `owner` is a field. False where a living thread has it; with that of a dead one comes what it
        left half done."""
        left = self.owner is not None
        if left and self.threads[self.owner][0] != "gone":
            return False
        self.owner = pid
        self.go(pid, "repair" if left else then, (then, memory) if left else memory)
        return None

    def next_call(self, pid):
        """The call has returned."""
        call = self.threads[pid][1] + 1
        program = self.model.programs[pid]
        self.threads = put(self.threads, pid, (program[call] if call < len(program) else "done", call, ()))


class Steps(dict):
    """The functions of each label: where there are several, any of them may come."""

    def __call__(self, *labels):
        def register(function):
            for label in labels:
                self.setdefault(label, []).append(function)
            return function

        return register


@dataclass(frozen=True)
class SmallModel:
    name: str
    programs: tuple  # one per thread: the labels that its calls begin with
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
        """Events without a thread: (name, function)."""
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
        """The kernel takes back what the process had."""

    def visit(self, state):
        if state is not None:
            self.check(self.Fields(self, state))

    def check(self, m):
        """Raises Violation where a promise does not hold."""

    def stuck(self, state):
        """True where a thread can never go on."""
        return any(pc not in OVER and pc != "start" for pc, _, _ in self.Fields(self, state).threads)

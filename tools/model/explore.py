"""Walks through every state that a model can reach, breadth first, so that a trace is as short as can be.

A model has a `start()`, and for a state its `moves`: (name, does it count as going on, function), where the
function returns the next state, or None if that move is not possible now. Both may raise Violation.
`stuck(state)` is asked where no move counts: True where somebody still wanted to go on. `visit(state)` sees
every new state once.
"""

import time
from collections import deque
from dataclasses import dataclass

from world import Violation


@dataclass(frozen=True)
class Result:
    states: int
    seconds: float
    violation: Violation | None
    trace: tuple


def explore(model):
    """States are remembered by their 64-bit hash, each with its parent's."""
    began, state, name = time.monotonic(), model.start(), ""
    start, key, parents, todo = state, hash(state), {hash(state): None}, deque([(state, hash(state))])
    try:
        model.visit(start)
        while todo:
            (state, key), moved, name = todo.popleft(), False, ""
            for move in model.moves(state):
                name, counts, perform = move
                after = perform()
                if after is None:
                    continue
                moved |= counts
                reached = hash(after)
                if reached not in parents:
                    parents[reached] = key
                    todo.append((after, reached))
                    model.visit(after)
            name = ""
            if not moved and model.stuck(state):
                raise Violation("deadlock: nobody can ever go on")
    except Violation as violation:
        steps = (*trace(model, start, parents, key), name)
        return Result(len(parents), time.monotonic() - began, violation, steps)
    return Result(len(parents), time.monotonic() - began, None, ())


def trace(model, state, parents, target):
    """The chain of hashes from the start, walked again to name its steps."""
    chain = []
    while target is not None:
        chain.append(target)
        target = parents[target]
    for wanted in reversed(chain[:-1]):
        for name, _, perform in model.moves(state):
            after = perform()
            if after is not None and hash(after) == wanted:
                state = after
                yield name
                break

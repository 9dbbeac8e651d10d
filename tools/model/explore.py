"""Searches all states that a model can reach, breadth first, so that each trace is as short as possible.

A model has a `start()`. For each state it has `moves`: triples of a name, whether the move counts as progress, and a function.
The function returns the next state, or None if the move is not possible now. `moves` and the functions may raise Violation. If
no move counts as progress, `stuck(state)` is asked: it returns True if some process still had work to do. `visit(state)` sees
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
    """Stores states as 64-bit hashes, each with the hash of its parent."""
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
                raise Violation("deadlock: no process can ever go on")
    except Violation as violation:
        steps = (*trace(model, start, parents, key), name)
        return Result(len(parents), time.monotonic() - began, violation, steps)
    return Result(len(parents), time.monotonic() - began, None, ())


def trace(model, state, parents, target):
    """Walks the chain of hashes from the start again, to name its steps."""
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

from typing_extensions import disjoint_base

from jlog._core.append.operations import Operations

@disjoint_base
class GroupCommit:
    def __init__(self, operations: Operations) -> None: ...

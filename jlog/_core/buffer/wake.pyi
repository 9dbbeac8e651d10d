from typing_extensions import disjoint_base

from jlog._core.buffer.precommit import Precommit

@disjoint_base
class Waker:
    def ring(self) -> None: ...
    @property
    def rings(self) -> int: ...

@disjoint_base
class WakeWord:
    def __init__(self, precommit: Precommit) -> None: ...

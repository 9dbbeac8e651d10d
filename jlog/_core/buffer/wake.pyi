from typing_extensions import disjoint_base

from jlog._core.buffer.precommit import Precommit

@disjoint_base
class WakeWord:
    def __init__(self, precommit: Precommit) -> None: ...

from typing_extensions import disjoint_base

from jlog._core.process.process import WritingProcess

@disjoint_base
class LiveState:
    def __init__(self, process: WritingProcess) -> None: ...

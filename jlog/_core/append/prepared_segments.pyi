from typing_extensions import disjoint_base

from jlog._core.append.live_state import LiveState
from jlog._core.process.process import WritingProcess

@disjoint_base
class PreparedSegments:
    def __init__(self, process: WritingProcess, state: LiveState) -> None: ...

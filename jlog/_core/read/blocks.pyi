from typing_extensions import disjoint_base

from jlog._core.read.journal_end import JournalEnd

@disjoint_base
class BlockReader:
    def __init__(self, stop: JournalEnd) -> None: ...

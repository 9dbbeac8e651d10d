from typing_extensions import disjoint_base

from jlog._core.write.attachment import Policy
from jlog._core.write.life import Life
from jlog._core.write.process import WritingProcess
from jlog.errors import JournalClosed

@disjoint_base
class Operations:
    def __init__(self, process: WritingProcess, policy: Policy, life: Life) -> None: ...

def sealed_bytes(path: str, uuid: bytes, open_segment: int) -> int: ...
def closed_error(path: str) -> JournalClosed: ...

from typing_extensions import disjoint_base

from jlog._core.system.lock import Deadline
from jlog._core.write.attachment import Attachment
from jlog._core.write.group_commit import GroupCommit

TIMEOUT: float
STOP_SECONDS: int

@disjoint_base
class Maintenance:
    def __init__(self, group: GroupCommit) -> None: ...

class MaintenanceThread:
    def __init__(self, attachment: Attachment) -> None: ...
    def start(self) -> None: ...
    def stop(self, wait: bool = True, deadline: Deadline = ...) -> None: ...

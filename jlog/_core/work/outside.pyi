from typing import Any

from jlog._core.system.lock import LockFile

def look(path: str, uuid: bytes, name: str, locks: LockFile) -> dict[str, Any] | None: ...

from typing import NamedTuple

from typing_extensions import disjoint_base

from jlog._core.kafka.library import Library

class Note(NamedTuple):
    code: int
    level: int
    facility: str
    text: str

class ClientError(Exception):
    code: int
    text: str
    fatal: bool
    retriable: bool
    abortable: bool
    def __init__(self, code: int, text: str, fatal: bool = False, retriable: bool = False, abortable: bool = False) -> None: ...

@disjoint_base
class Client:
    def __init__(self, library: Library, settings: dict[str, str]) -> None: ...
    @property
    def library(self) -> Library: ...
    def close(self) -> None: ...
    def poll(self, seconds: float) -> int: ...
    def fatal_error(self) -> ClientError | None: ...
    def take_notes(self) -> list[Note]: ...
    def partitions(self, topic: str, seconds: float) -> int: ...

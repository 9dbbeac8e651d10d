"""The recording of the shim: events in the order in which they happened."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple


class Event(NamedTuple):
    """As record.h says. Paths are relative to the recorded directory, "" is that directory itself."""

    kind: str
    process: int
    inode: int
    x: int
    y: int
    data: bytes
    path: str = ""
    other: str = ""

    @property
    def note(self) -> tuple[str, dict[str, Any]]:
        kind, content = json.loads(self.data)
        return kind, content

    def __str__(self) -> str:
        what = {
            "W": f"{len(self.data)} bytes at {self.x}", "T": f"to {self.x}", "A": f"{self.y} bytes at {self.x}",
            "R": f"{self.path} -> {self.other}", "L": f"{self.path} -> {self.other}", "P": f"{len(self.data)} bytes",
            "N": self.data[:200].decode(errors="replace"), "S": f"{self.x} {self.path}", "E": f"{self.x}",
        }.get(self.kind, self.path)  # fmt: skip
        return f"{self.kind} process {self.process} inode {self.inode} {what}"


def read_log(log: str | os.PathLike[str], below: str | os.PathLike[str]) -> list[Event]:
    with open(log, "rb") as file:
        content = file.read()
    root = os.path.realpath(below)
    events, at = [], 0
    while at < len(content):
        line = content.index(b"\n", at)
        kind, process, inode, x, y, size = content[at:line].decode().split()
        data = content[line + 1 : line + 1 + int(size)]
        at = line + 1 + int(size)
        names = [name.decode().removesuffix(" (deleted)") for name in data.split(b"\0")] if kind in "CMURLS" else []
        names = [name[len(root) + 1 :] for name in names]
        events.append(Event(kind, int(process), int(inode), int(x), int(y), data, *names))
    return events

"""A disk as a power loss may leave it, from a recording: what was synced is there, of the rest any part may be.

The model, which is weaker than every file system that Linux has:

- Of a file all that was written, cut or allocated before a sync that has returned is there. Of what came later any subset
  is there, in its order, and the writes among it may be torn: of each, any set of its sectors, or of its pages.
- Of the names in a directory those are there that were when a sync of the directory began, and of the later changes as
  many as one likes, in their order. A rename is one change; from one directory to another it may be there in the target
  alone, not in the source alone. A file's sync says nothing about its name.
- Of a mapped file each page, or each sector, is what it was at any moment since the file was synced.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faults.recording import Event

SECTOR = 512
PAGE = 4096
PLAIN = ("nothing", "everything", "names", "content")  # of what was not synced
Image = dict[str, "bytes | None"]  # by path; None is a directory


class Change(NamedTuple):
    """A change of a file's content that is not synced yet."""

    number: int
    kind: str
    x: int
    y: int
    data: bytes


class Entry(NamedTuple):
    """A change of a name in a directory that is not synced yet: the file that then has the name, or None."""

    number: int
    directory: str
    name: str
    file: File | None


@dataclass(eq=False)
class File:
    is_directory: bool = False
    path: str = ""  # of a directory
    synced: bytes = b""
    changes: list[Change] = field(default_factory=list)
    views: list[tuple[int, bytes]] = field(default_factory=list)  # what it held when mapped, since its last sync
    names: dict[str, File] = field(default_factory=dict)  # of a directory, synced


def applied(content: bytes, changes: Iterable[Change]) -> bytes:
    held = bytearray(content)
    for change in changes:
        if change.kind == "T":
            del held[change.x :]
            held.extend(bytes(change.x - len(held)))
        else:
            end = change.x + (len(change.data) if change.kind == "W" else change.y)
            held.extend(bytes(max(0, end - len(held))))
            if change.kind == "W":
                held[change.x : end] = change.data
    return bytes(held)


def pieces(change: Change, unit: int) -> list[Change]:
    """The write as one for each sector or page that it touches."""
    found, at, end = [], change.x, change.x + len(change.data)
    while at < end:
        stop = min(end, (at // unit + 1) * unit)
        found.append(change._replace(x=at, data=change.data[at - change.x : stop - change.x]))
        at = stop
    return found


class Disk:
    """Follows the events; `state` tells what a power loss leaves now. It begins with `image`, which is synced."""

    def __init__(self, image: Image | None = None) -> None:
        self.files: dict[int, File] = {}  # by inode: those that were made or came from the image
        self.directories: dict[str, File] = {"": File(is_directory=True)}
        self.entries: list[Entry] = []  # not synced
        self.syncs: dict[tuple[int, int], tuple[int, Event]] = {}
        self.names: dict[str, File] = {}  # as the processes see them
        self.number = 0
        for path, content in sorted((image or {}).items()):
            file = File(content is None, path, content or b"")
            self.names[path] = file
            parent, _, name = path.rpartition("/")
            self.directories[parent].names[name] = file
            if content is None:
                self.directories[path] = file

    def identify(self, inodes: dict[str, int]) -> None:
        """The inodes of the files of the image."""
        for path, inode in inodes.items():
            self.files[inode] = self.names[path]

    # --- What happens ------------------------------------------------------------------------------------------

    def follow(self, event: Event) -> None:
        self.number += 1
        if event.kind in "WTA":
            change = Change(self.number, event.kind, event.x, event.y, event.data)
            self.files[event.inode].changes.append(change)
        elif event.kind == "P":
            self.files[event.inode].views.append((self.number, event.data))
        elif event.kind == "C":
            self.files[event.inode] = File()
            self._name(event.path, self.files[event.inode])
        elif event.kind == "M":
            self.directories[event.path] = File(is_directory=True, path=event.path)
            self._name(event.path, self.directories[event.path])
        elif event.kind == "U":
            self._name(event.path, None)
        elif event.kind in "RL":
            file = self.names[event.path]
            assert not file.is_directory, f"{event.path}: a directory that is renamed"
            self._name(event.other, file)
            if event.kind == "R":
                self._name(event.path, None)
        elif event.kind == "S":
            self.syncs[event.process, event.x] = self.number, event
        elif event.kind == "E":
            self._synced(*self.syncs.pop((event.process, event.x)))

    def _name(self, path: str, file: File | None) -> None:
        if file is None:
            del self.names[path]
        else:
            self.names[path] = file
        directory, _, name = path.rpartition("/")
        self.entries.append(Entry(self.number, directory, name, file))

    def _synced(self, began: int, event: Event) -> None:
        if event.y:
            self._sync_names({event.path}, began)
            return
        file = self.files[event.inode]
        file.synced = applied(file.synced, [change for change in file.changes if change.number < began])
        file.changes = [change for change in file.changes if change.number > began]
        before = [view for view in file.views if view[0] < began]
        file.views = before[-1:] + file.views[len(before) :]

    def _sync_names(self, directories: set[str], began: int) -> None:
        """Syncs the names of these directories; a file that a rename takes out of one of them is in the other one then."""
        moved = {entry.number for entry in self.entries if entry.directory in directories and entry.number < began}
        upto: dict[str, int] = defaultdict(int)
        for entry in self.entries:
            if entry.number in moved:
                upto[entry.directory] = max(upto[entry.directory], entry.number)
        for entry in self.entries:
            if entry.number <= upto[entry.directory]:
                self._set(self.directories[entry.directory].names, entry)
        self.entries = [entry for entry in self.entries if entry.number > upto[entry.directory]]

    @staticmethod
    def _set(names: dict[str, File], entry: Entry) -> None:
        if entry.file is None:
            names.pop(entry.name, None)
        else:
            names[entry.name] = entry.file

    # --- What is left -------------------------------------------------------------------------------------------

    def as_it_is(self) -> Image:
        """Returns what the processes see, as if only they had died."""
        image: Image = {}
        for path, file in self.names.items():
            image[path] = None if file.is_directory else self._now(file)
        return image

    @staticmethod
    def _now(file: File) -> bytes:
        content = applied(file.synced, file.changes)
        if file.views:
            last, view = file.views[-1]
            later = [change for change in file.changes if change.number > last]
            content = applied(view + content[len(view) :], later)
        return content

    def state(self, choice: str) -> Image:
        """Returns what a power loss leaves. `choice` is one of PLAIN, or a seed."""
        if choice in PLAIN:
            chooser = Chooser(None, content=choice in ("everything", "content"), names=choice in ("everything", "names"))
        else:
            chooser = Chooser(random.Random(choice))
        return chooser.image(self)


class Chooser:
    """Decides which changes that were not synced have survived."""

    def __init__(self, dice: random.Random | None, *, content: bool = True, names: bool = True) -> None:
        self._dice = dice
        self._content = content
        self._names = names
        self._contents: dict[File, bytes] = {}

    def image(self, disk: Disk) -> Image:
        names = {path: dict(file.names) for path, file in disk.directories.items()}
        for entry in self._kept(disk.entries):
            disk._set(names[entry.directory], entry)
        image: Image = {}
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            for name, file in names[directory].items():
                path = f"{directory}/{name}" if directory else name
                image[path] = None if file.is_directory else self._content_of(file)
                if file.is_directory:
                    waiting.append(path)
        return image

    def _kept(self, entries: list[Entry]) -> list[Entry]:
        """The changes of each directory up to some one."""
        if self._dice is None:
            return entries if self._names else []
        upto: dict[str, int] = {}
        for directory in sorted({entry.directory for entry in entries}):
            numbers = [0] + [entry.number for entry in entries if entry.directory == directory]
            upto[directory] = self._dice.choice([0, numbers[-1], self._dice.choice(numbers)])
        for entry in entries:  # out of one directory only with the name in the other
            for other in entries:
                if other.number == entry.number and entry.file is None and entry.number <= upto[entry.directory]:
                    upto[other.directory] = max(upto[other.directory], other.number)
        return [entry for entry in entries if entry.number <= upto[entry.directory]]

    def _content_of(self, file: File) -> bytes:
        if file not in self._contents:
            self._contents[file] = self._choose(file)
        return self._contents[file]

    def _choose(self, file: File) -> bytes:
        if self._dice is None:
            return Disk._now(file) if self._content else file.synced
        if file.views and self._dice.random() < 0.9:
            return self._mapped(file)
        how = self._dice.choice(("none", "all", "prefix", "torn", "subset", "shredded"))
        changes = list(file.changes)
        if how == "none":
            changes = []
        elif how in ("prefix", "torn") and changes:
            changes = changes[: self._dice.randint(0, len(changes))]
            if how == "torn" and changes:
                changes[-1:] = self._torn(changes[-1])
        elif how in ("subset", "shredded"):
            changes = [change for change in changes if self._dice.random() < 0.6]
            if how == "shredded":
                changes = [piece for change in changes for piece in self._torn(change)]
        return applied(file.synced, changes)

    def _torn(self, change: Change) -> list[Change]:
        """Returns some sectors or pages of a write: the first ones, or any."""
        if change.kind != "W":
            return [change]
        assert self._dice is not None
        parts = pieces(change, self._dice.choice((SECTOR, PAGE)))
        if self._dice.random() < 0.5:
            return parts[: self._dice.randint(0, len(parts))]
        return [part for part in parts if self._dice.random() < 0.5]

    def _mapped(self, file: File) -> bytes:
        """Its pages at any moments; with the writes to it, which are few and only make it longer, all there."""
        assert self._dice is not None
        content = applied(file.synced, file.changes)
        views = [view for _, view in file.views]
        size = self._dice.choice((PAGE, PAGE, SECTOR))
        views = [file.synced, *views] if self._dice.random() < 0.2 else views
        near = self._dice.randint(1, len(views))  # how far back a page may be
        held = bytearray(content)
        for at in range(0, len(held), size):
            view = self._dice.choice(views[-near:])
            held[at : at + size] = view[at : at + size].ljust(min(size, len(held) - at), b"\0")
        return bytes(held)

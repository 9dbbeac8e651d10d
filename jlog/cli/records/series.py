"""Which files a log has had, in order: each file in its directories is judged by what was read of it, or of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from jlog.cli.records.candidates import (
    Candidate,
    Renamed,
    begins_with,
    candidates,
    checksum,
    in_order,
    is_beginning,
    open_regular,
)
from jlog.cli.records.growing_file import MARK_BYTES, GrowingFile, LongLines, Truncated
from jlog.cli.records.rotated_names import NameKind, paths_of, plain_name
from jlog.positions.log_place import FilePlace, FileState, LogPlace

REMEMBERED = 4  # of the files that are not read any more, in each place that is stored
REMEMBERED_MAX = 16  # with those that have changed within the last hour
RECENT_NS = 3600 * 10**9
UNREAD_MAX = 32  # are opened beforehand, each with a descriptor
LOOK_SECONDS = 5.0  # between looks at directories that have not changed
FRESH_SECONDS = 0.1  # a directory that changed so short a time before a look may change again with the same time of change
RETRY_SECONDS = 1.0
LOOKS_MAX = 5


class SeriesFile:
    """One file of the series. reader: where it is open; what was read is told by the reader then, and else by `_place`."""

    def __init__(self, place: FilePlace, path: str = "") -> None:
        self.path = path
        self.state = place.state
        self.reader: GrowingFile | None = None
        self._place = place

    def place(self) -> FilePlace:
        place, reader = self._place, self.reader
        if reader is not None:
            changed_ns = max(reader.changed_ns, place.changed_ns)
            place = replace(
                place, offset=reader.offset, mark=reader.mark, changed_ns=changed_ns, in_long_line=reader.in_long_line
            )
        return replace(place, state=self.state)

    def become(self, place: FilePlace) -> None:
        self.close()
        self._place, self.state = place, place.state

    def close(self) -> None:
        if self.reader is not None:
            self._place = self.place()
            self.reader.close()
            self.reader = None

    def is_in(self, candidate: Candidate) -> bool:
        """Says whether the candidate is this file, with the bytes that were read."""
        place = self.place()
        if not candidate.is_file_of(place):
            return False
        if self.reader is not None:
            return _is_proved(self.reader)
        return not place.offset or begins_with(candidate, place) or not os.access(candidate.path, os.R_OK)


class Series:
    """The files of the log at `path`, oldest first. tell: takes a line for the user."""

    def __init__(self, path: str, place: LogPlace | None, long_lines: LongLines, tell: Callable[[str], None]) -> None:
        self.path = path
        self.members = [SeriesFile(each) for each in place.files] if place else []
        self._place = place or LogPlace()
        self._is_first_look = place is None
        self._long_lines = long_lines
        self._tell_always = tell
        self._told: set[str] = set()
        self._lines_cut, self._files_left_out = self._place.lines_cut, self._place.files_left_out
        self._copies: set[tuple[int, int]] = set()
        self._has_more = False  # files that were not opened, since there are many
        self._is_at_path = False  # the newest member
        self._looked: tuple[object, float] | None = None  # what the directories were at the last look, and when it was

    def close(self) -> None:
        for member in self.members:
            member.close()

    def tell(self, text: str, lines_cut: int = 0) -> None:
        """Says each thing once. A line that is cut is a thing of its own."""
        self._lines_cut += lines_cut
        if text not in self._told:
            self._told |= set() if lines_cut else {text}
            self._tell_always(text)

    def place(self) -> LogPlace:
        newest = self.members[-1].place() if self.members else None
        since_ns = newest.changed_ns if newest is not None and self._is_at_path else self._place.since_ns
        self._place = replace(
            self._place,
            files=tuple(member.place() for member in self.members),
            since_ns=since_ns,
            lines_cut=self._lines_cut,
            files_left_out=self._files_left_out,
        )
        return self._place

    def look_if_due(self) -> bool:
        """Looks at the directories if they may have changed. Says whether the members are others now."""
        signature, now = self._signature(), time.monotonic()
        if self._looked is not None and not self._has_more and self._looked[0] == signature:
            retry = any(member.reader is None and member.state == FileState.FOLLOWED for member in self.members)
            if now - self._looked[1] < (RETRY_SECONDS if retry else LOOK_SECONDS):
                return False
        return self.look(signature)

    def look(self, signature: object = None) -> bool:
        """Judges every file in the directories. Says whether the members are others now."""
        identities = self._identities()
        was_first = self._is_first_look
        try:
            self._look()
            self._looked, self._is_first_look = (signature, time.monotonic()), False
        except Renamed:
            self._has_more = True  # the next look judges what this one did not
        for member in self.members:
            self._open(member)
        return was_first != self._is_first_look or self._identities() != identities

    def _look(self) -> None:
        files, unseen, lost = self._looked_at()
        for member in lost:
            self._lose(member, files)
        for member in self.members:
            self._open(member)  # a file is told from its copies by its bytes
        real = os.path.realpath(self.path)
        if any(file.kind == NameKind.PATH for file in files):
            self._place = replace(self._place, target="" if real == self.path else real)
        if self._place.is_old:
            unseen = self._after_old_place(files, unseen)
        self._judge(files, unseen)
        self._forget()

    def _identities(self) -> list[tuple[int, int, FileState]]:
        return [(place.inode, place.birth_ns, place.state) for place in (member.place() for member in self.members)]

    def _signature(self) -> object:
        """Returns what is other when a file of a directory was added or was given a name; an object that is equal to no other
        where that cannot be told yet."""
        status = _status_of(self.path)
        parts = [status and (status.st_dev, status.st_ino)]
        for directory in dict.fromkeys(map(os.path.dirname, filter(None, [*paths_of(self.path), self._place.target]))):
            status = _status_of(directory)
            if status is not None and abs(time.time() - status.st_mtime) < FRESH_SECONDS:
                return object()
            parts.append(status and (status.st_ino, status.st_mtime_ns))
        return parts

    # --- Which files were seen before --------------------------------------------------------------------------------

    def _looked_at(self) -> tuple[list[Candidate], list[Candidate], list[SeriesFile]]:
        """Returns the files, those that are not members, and the members that are gone."""
        for _ in range(LOOKS_MAX):
            inodes = {member.place().inode for member in self.members}
            files = candidates(self.path, self._place.target, inodes, self.tell)
            unseen, lost = self._recognized(files)
            if not lost or files == candidates(self.path, self._place.target, inodes, self.tell):
                break  # else files were truncated or got other names meanwhile
        return files, unseen, lost

    def _recognized(self, files: list[Candidate]) -> tuple[list[Candidate], list[SeriesFile]]:
        """Finds the members among the files. Returns the files that are none of them, oldest first, and the members that are
        gone."""
        unseen, missing, lost = list(files), [], []
        self._is_at_path = False
        for member in self.members:
            file = next((file for file in unseen if member.is_in(file)), None)
            if file is None:
                missing.append(member)
                continue
            unseen.remove(file)
            self._is_at(member, file)
        rotated = in_order(file for file in unseen if file.kind == NameKind.ROTATED)
        unseen = [*rotated, *(file for file in unseen if file.kind != NameKind.ROTATED)]
        for member in missing:
            if _is_proved(member.reader):
                continue  # it was removed, and is open
            file = next((file for file in unseen if _is_copy_of(file, member.place())), None)
            if file is not None:
                unseen.remove(file)
                place = member.place()
                member.become(replace(place, device=file.device, inode=file.inode, birth_ns=file.birth_ns))
                self._is_at(member, file)
            elif member.state == FileState.FOLLOWED:
                lost.append(member)
        return unseen, lost

    def _is_at(self, member: SeriesFile, file: Candidate) -> None:
        member.path = file.path
        if member is self.members[-1]:
            self._is_at_path = file.kind == NameKind.PATH
        if member.state == FileState.LEFT and file.size > member.place().offset:
            member.state = FileState.FOLLOWED
        elif member.state == FileState.SKIPPED:
            member.become(replace(member.place(), changed_ns=file.changed_ns))

    def _lose(self, member: SeriesFile, files: list[Candidate]) -> None:
        place, later = member.place(), self.members[self.members.index(member) + 1 :]
        self.members.remove(member)
        member.close()
        is_read = any(other.place().offset for other in later if other.state == FileState.FOLLOWED)
        if is_read or any(_is_compressed(file, place) for file in files):
            return
        if place.offset:
            self.tell(
                f"{self.path}: what was read, up to byte {place.offset}, is neither in this file nor in one that it was "
                "rotated to in its directory; lines after that, if there were any, are lost"
            )
        elif later:
            self.tell(f"{member.path or 'a rotated file of ' + self.path} was removed before it was read; its lines are lost")

    def _after_old_place(self, files: list[Candidate], unseen: list[Candidate]) -> list[Candidate]:
        """Skips the files that come before a place which an older jlog has stored. It has stored the end of the file before."""
        before = self._place.before
        ours = self.members[0].path if self.members else ""
        order = in_order(file for file in files if file.kind == NameKind.ROTATED)
        names = [file.path for file in order]
        if ours == self.path and self.members[0].place().offset:
            skipped = len(order)
        elif before:
            end = FilePlace(0, 0, offset=before[0], mark=before[1])
            ends = [number for number, file in enumerate(order) if file.path != ours and begins_with(file, end)]
            whole = [number for number in ends if order[number].size == before[0]]
            skipped = (whole or ends or [-1])[-1] + 1
        elif before is None:
            skipped = names.index(ours) if ours in names else len(order)
        else:
            skipped = 0
        for file in order[:skipped]:
            if file in unseen:
                unseen.remove(file)
                self._skip(file)
        self._place = replace(self._place, is_old=False, before=None)
        return unseen

    # --- Which of the others are files of the log --------------------------------------------------------------------

    def _judge(self, files: list[Candidate], unseen: list[Candidate]) -> None:
        """Takes the files that were not seen before as members, or leaves them out, and says so."""
        since_ns, was_at_path = self.place().since_ns, self._is_at_path
        newest = self.members[-1] if self.members and self.members[-1].state == FileState.FOLLOWED else None
        unread = sum(1 for member in self.members if member.state == FileState.FOLLOWED and not member.place().offset)
        self._has_more = False
        for file in unseen:
            is_forgotten = file.kind != NameKind.PATH and file.changed_ns <= self._place.forgotten_ns
            if is_forgotten or (file.kind == NameKind.ROTATED and self._is_copy(file, unseen)):
                continue
            if file.kind == NameKind.ROTATED and self._is_first_look:
                self._skip(file)
            elif file.kind == NameKind.ROTATED and was_at_path:
                # The file at the path was not rotated. So another one is of the log only if its lines were there before.
                if newest is not None and file.changed_ns >= since_ns and begins_with(file, newest.place()):
                    self.members.insert(self.members.index(newest), SeriesFile(file.place(), file.path))
                else:
                    self._leave_out(file, f"{self.path} was not rotated since then")
            elif file.kind == NameKind.ROTATED and file.changed_ns < since_ns:
                self._leave_out(file, f"it has not changed since lines were last read from {self.path}")
            elif file.kind in (NameKind.ROTATED, NameKind.PATH) and not self._is_first_look and unread >= UNREAD_MAX:
                self._has_more = True
            elif file.kind in (NameKind.ROTATED, NameKind.PATH):
                self.members.append(SeriesFile(file.place(), file.path))
                unread += 1
                self._is_at_path = file.kind == NameKind.PATH
            elif self._looked is None and not self._is_first_look and not was_at_path and file.changed_ns >= since_ns:
                self._judge_others(file, files)

    def _judge_others(self, file: Candidate, files: list[Candidate]) -> None:
        """Says that a file is left out which may be one that was rotated while this program did not run."""
        if file.kind == NameKind.SIMILAR:
            self._leave_out(file, f"its name is not one of a rotated file of {self.path}")
        elif file.kind == NameKind.COMPRESSED:
            if any(_is_compressed(file, member.place()) for member in self.members):
                return
            if all(other.path != plain_name(file.path) for other in files):
                self._leave_out(
                    file, "it was compressed while this program did not run (use delaycompress); lines not read are lost"
                )

    def _is_copy(self, file: Candidate, unseen: Iterable[Candidate]) -> bool:
        """Says whether the file is a copy of a file that is read itself: of one that copytruncate has not truncated yet, or a
        backup. It is younger than that file; a rotated file is older than the one at the path."""
        followed = [member for member in self.members if member.state == FileState.FOLLOWED]
        if (file.device, file.inode) in self._copies and followed and followed[-1].place().offset:
            return True
        originals: list[tuple[Candidate | GrowingFile, int, bool]] = [
            (other, other.birth_ns, bool(other.birth_ns)) for other in unseen if other.kind == NameKind.PATH
        ]
        originals += [
            (member.reader, member.place().birth_ns, member.path == self.path)
            for member in followed
            if member.reader is not None
        ]
        for original, birth_ns, may_be_short in originals:  # short files may be equal, as those with nothing but a header
            is_younger = file.birth_ns >= birth_ns or not file.birth_ns or not birth_ns
            if is_younger and (may_be_short or file.size > MARK_BYTES) and is_beginning(file, original):
                self._copies |= {(file.device, file.inode)} if file.size else set()
                return True
        return False

    def _skip(self, file: Candidate) -> None:
        mark = checksum(file, file.size) if file.kind == NameKind.ROTATED else 0
        place = replace(file.place(), offset=file.size if mark else 0, mark=mark or 0, state=FileState.SKIPPED)
        self.members.insert(0, SeriesFile(place, file.path))

    def _leave_out(self, file: Candidate, reason: str) -> None:
        self._files_left_out += 1
        self._skip(file)
        self.tell(f"{file.path} is left out: {reason}")

    def _forget(self) -> None:
        """Keeps the newest of the files that are not read any more. Others are told from new files by their time of change."""
        places = {member: member.place() for member in self.members}
        recent_ns = max((place.changed_ns for place in places.values()), default=0) - RECENT_NS
        done = [member for member in self.members if member.state != FileState.FOLLOWED]
        done.sort(key=lambda member: places[member].changed_ns)
        recent = sum(1 for member in done if places[member].changed_ns > recent_ns)
        for member in done[: max(len(done) - max(REMEMBERED, min(recent, REMEMBERED_MAX)), 0)]:
            self.members.remove(member)
            forgotten_ns = max(self._place.forgotten_ns, places[member].changed_ns)
            self._place = replace(self._place, forgotten_ns=forgotten_ns)

    def _open(self, member: SeriesFile) -> None:
        if member.reader is not None or member.state != FileState.FOLLOWED or not member.path:
            return
        place = member.place()
        try:
            file = open_regular(member.path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.tell(f"{member.path} cannot be read: {error.strerror}. It is read once it can be; the others go on")
            return
        status = os.fstat(file.fileno())
        if status.st_ino != place.inode:
            file.close()  # it was given another name since the look
            self._has_more = True
            return
        member.reader = GrowingFile(file, place.offset, place.mark, place.in_long_line, self._long_lines, self.tell)


def _is_copy_of(file: Candidate, place: FilePlace) -> bool:
    """Says whether a file with another identity has the member's lines: a copy by copytruncate, or a restored file."""
    if not place.offset or file.kind not in (NameKind.ROTATED, NameKind.PATH) or not begins_with(file, place):
        return False
    if place.state == FileState.FOLLOWED:
        return True
    is_long = file.size > MARK_BYTES  # short files may be equal, as those with nothing but a header
    return file.size == place.offset and (is_long or file.changed_ns // 10**9 == place.changed_ns // 10**9)


def _is_compressed(file: Candidate, place: FilePlace) -> bool:
    """Says whether the file is this one, compressed: programs that compress keep the time."""
    changed_ns = place.changed_ns if file.changed_ns % 10**9 else place.changed_ns // 10**9 * 10**9
    return file.kind == NameKind.COMPRESSED and file.changed_ns == changed_ns


def _is_proved(reader: GrowingFile | None) -> bool:
    if reader is None:
        return False
    try:
        reader.prove()
    except (Truncated, OSError):
        return False
    return True


def _status_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None

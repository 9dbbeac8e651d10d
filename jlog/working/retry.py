"""Puts dead letters back into the journals that they came from, each once."""

from __future__ import annotations

import os
from collections.abc import Iterator

from jlog.errors import JournalError
from jlog.reading.reader import Reader
from jlog.record import Record
from jlog.storage.epochs import ForeignPosition
from jlog.storage.meta import Meta, read_meta
from jlog.storage.segments import state_of
from jlog.system.filesystem import journal_path
from jlog.working.dead_letters import HEADERS, JOURNAL
from jlog.writer import Writer

SUBSCRIBER = "work-retry"


def retry(dead: str | os.PathLike[str], journal: str | os.PathLike[str] | None = None) -> int:
    """Appends the dead letters that no retry has put back yet to the journals that they came from, or to `journal`. Returns how
    many there were. Each keeps its value, key, headers and time.

    The position goes into the state of the journal, together with the records. So a retry that is killed anywhere may be made
    again, and appends no letter twice.
    """
    path = journal_path(dead)
    read_meta(path)  # raises where there is no journal: the Reader would create one
    with Reader(path, SUBSCRIBER) as reader:
        count = 0
        for target, letters in _by_target(reader, journal):
            count += _append(target, read_meta(path), letters)
            reader.commit(letters[-1].sequence + 1, durable=True)
        return count


def _by_target(reader: Reader, journal: str | os.PathLike[str] | None) -> Iterator[tuple[str, list[Record]]]:
    """Yields letters in their order: those that follow each other and have the same target together."""
    target = ""
    letters: list[Record] = []
    for letter in reader:
        wanted = os.fspath(journal) if journal is not None else _journal_of(letter)
        if letters and (wanted != target or len(letters) == 1_000):
            yield target, letters
            letters = []
        target = wanted
        letters.append(letter)
    if letters:
        yield target, letters


def _journal_of(letter: Record) -> str:
    path = dict(letter.headers).get(JOURNAL)
    if path is None:
        raise JournalError(
            f"record {letter.sequence} is not a dead letter: it has no header {JOURNAL}; name the journal to append it to"
        )
    return os.fsdecode(path)


def _append(target: str, dead: Meta, letters: list[Record]) -> int:
    """Appends those of the letters that the target's state does not name. dead: of the letters' journal, read after them. Where
    that was restored from a backup, the state is of letters that are lost."""
    key = f"jlog.{SUBSCRIBER}:{dead.uuid.hex()}".encode()
    stored = state_of(journal_path(target)).get(key, b"0").decode()  # raises where there is no journal: none is created here
    position = ForeignPosition.of_number(dead, int(stored)) if stored.isdecimal() else ForeignPosition.parse(stored)
    after = position.shared_with(dead).end
    left = [letter for letter in letters if letter.sequence >= after]
    if left:
        with Writer(target) as writer:
            writer.extend(
                [letter.value for letter in left],
                [letter.key for letter in left],
                [[header for header in letter.headers if header[0] not in HEADERS] for letter in left],
                [letter.timestamp_us for letter in left],
                state={key: str(ForeignPosition.of(dead, left[-1].sequence + 1)).encode()},
            )
            writer.sync()
    return len(left)

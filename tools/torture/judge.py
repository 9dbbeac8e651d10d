"""Judges a journal whose users stand still or are dead: with jlog, with the oracle, and on copies."""

from __future__ import annotations

import os
import shutil
import time
from random import Random
from typing import TYPE_CHECKING

import jlog
import oracle
from crash.copies import under_another_boot_id
from crash.flips import check_flips
from crash.tampering import BOOT_ID_AT, another_boot, change, copy, copy_of_killed
from processes.units import check_whole, part_of
from torture.records import CRC_BYTES, Wrong, check_record, identity_of
from torture.sequences import ACKNOWLEDGED, SEEN
from torture.worker import NAME, drain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torture.accounts import Accounts
    from torture.crew import Counts

DRAIN_SECONDS = 120.0  # guards against a record that is never handed out


class Judge:
    """The judge of one journal."""

    def __init__(self, path: Path, archive: Path | None, accounts: Accounts, *, may_lose: bool) -> None:
        self.path, self._archive, self.accounts, self._may_lose = path, archive, accounts, may_lose
        self._checked_from = 0  # first sequence of the journal at the last judgement: all records before it are in the archive

    def judge(self) -> None:
        """Checks that the journal contradicts no known fact."""
        journal = jlog.Journal(self.path)
        self.accounts.gaps |= set(journal.gaps())
        with jlog.Reader(self.path) as reader:
            first = reader.position
            records = list(reader)
        self._check_records(first, records, f"{self.path}")
        whole = check_whole([(record.sequence, record.value or b"") for record in records], cut=first > 0)
        self._check_identities(records, whole)
        self._check_oracle(records)
        report = journal.verify()
        if not report.ok:
            raise Wrong(f"verify: {report}")
        self._check_state(journal.state())
        self._check_work(first)
        self._check_hold(first)
        if self._archive is not None:
            self._check_archive(records)
        self._checked_from = first

    def _check_records(self, first: int, records: Iterable[jlog.Record], where: str) -> int:
        """Checks that each record is the one that was acknowledged or read there, without a gap, and that none is missing.
        Returns the end."""
        sequences, expected = self.accounts.sequences, first
        after = dict(self.accounts.gaps)
        for record in records:
            digest = check_record(record)
            while expected in after and record.sequence != expected:
                expected = after[expected]
            if record.sequence != expected:
                raise Wrong(f"{where}: {expected} comes next, and {record.sequence} is there")
            sequences.know(record.sequence, digest, SEEN, where)
            expected += 1
        missing = next(sequences.known_from(expected), None)
        if missing is not None:
            how = "acknowledged" if sequences.at(missing) & ACKNOWLEDGED else "read"
            raise Wrong(f"{where} ends at {expected}: record {missing} was {how} and is lost")
        return expected

    def _check_identities(self, records: list[jlog.Record], whole: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Checks that every record was appended, and that none was refused."""
        for record in records:
            writer, unit = identity_of(record.value or b"")
            account = self.accounts.writers.get(writer)
            if account is None:
                raise Wrong(f"record {record.sequence} is of {writer}, whom nobody knows")
            if unit in account.failed:
                raise Wrong(f"record {record.sequence}: unit {unit} of {writer} was refused, and is there")
            if self.accounts.sequences.at(record.sequence) & ACKNOWLEDGED:
                continue
            if not self.accounts.may_exist(writer, unit):
                raise Wrong(f"record {record.sequence}: unit {unit} of {writer} was acknowledged elsewhere, or never appended")
            if part_of(record.value or b"").has_state:
                self.accounts.store(writer, unit, whole[writer, unit][0])

    def _check_oracle(self, records: list[jlog.Record]) -> None:
        contents = oracle.check_journal(self.path)
        assert contents is not None
        ours = [(record.sequence, record.value) for record in records]
        theirs = [(record.sequence, record.value) for record in contents.records]
        if theirs[: len(ours)] != ours:
            raise Wrong("what jlog reads is not what docs/format.md says is there")
        # A direct block that its killed writer could not publish.
        beyond = {identity_of(value or b"") for _, value in theirs[len(ours) :]}
        if len(beyond) > 1:
            raise Wrong(f"the files hold more than one unit that no reader sees: {beyond}")

    def _check_state(self, state: dict[bytes, bytes]) -> None:
        for key, (sequence, value) in self.accounts.stored.items():
            found = state.get(key)
            if found == value:
                continue
            writer, _, unit = (found or b"").decode().partition(" ")
            if unit and self.accounts.may_exist(writer, int(unit)):
                continue  # its writer was killed in that call, and retention has taken the records since
            raise Wrong(f"the state of {key!r} is {found!r}; stored last was {value!r}, with record {sequence}")

    def _check_hold(self, first: int) -> None:
        held = self.accounts.held()
        unfinished = self.accounts.history.unfinished(0)
        if unfinished is not None:
            held = unfinished if held is None else min(held, unfinished)
        if held is not None and first > held and not self._may_lose:
            held = self.accounts.behind_gaps(held)
            if first > held:
                raise Wrong(f"the journal begins at {first}, and a subscriber has not committed {held}")

    def _check_work(self, first: int) -> None:
        """Checks what the workers did, and that the committed position of their subscriber follows from it."""
        history = self.accounts.history
        with jlog.Reader(f"{self.path}-dead") as letters:
            history.check_letters([_letter_of(record) for record in letters])
        history.judge(0 if not self._may_lose else first)
        committed = jlog.Journal(self.path).subscribers()[NAME].sequence
        held = history.unfinished(first if self._may_lose else 0)
        if held is not None and committed > held:
            raise Wrong(f"the workers' position is {committed}, and record {held} was not finished")
        if history.is_finished(committed) and not history.is_fresh:
            raise Wrong(f"the workers' position is {committed}, which is finished")

    def drain(self) -> None:
        """Checks that a worker which comes when all are gone is handed every record that is unfinished."""
        lines: list[str] = []
        history, guard = self.accounts.history, time.monotonic() + DRAIN_SECONDS

        def is_over() -> bool:
            history.hear("the judge", lines)
            lines.clear()
            first = jlog.Journal(self.path).first_sequence if self._may_lose else 0  # retention goes on meanwhile
            history.judge(first)
            left = history.unfinished(first)
            if left is not None and time.monotonic() > guard:
                raise Wrong(f"record {left} is not finished, and no worker is handed it")
            return left is None

        drain(self.path, lambda *words: lines.append(" ".join(map(str, words))), is_over, may_lose=self._may_lose)

    def _check_archive(self, records: list[jlog.Record]) -> None:
        """Checks that every record that left the journal is archived."""
        with jlog.Reader(self.path, start="begin", archive=True) as reader:
            if self._checked_from > reader.position:
                reader.seek(self._checked_from)
            begin = reader.position
            end = self._check_records(begin, reader, f"the archive and {self.path}")
        if records and end != records[-1].sequence + 1:
            raise Wrong(f"with its archive the journal ends at {end}, without at {records[-1].sequence + 1}")

    def judge_all_of_the_archive(self) -> None:
        self._checked_from = 0
        if self._archive is not None:
            with jlog.Reader(self.path, start="begin", archive=True) as reader:
                if reader.position:
                    raise Wrong(f"the archive begins at {reader.position}")
                self._check_records(0, reader, f"the archive and {self.path}")

    # --- Of the dead ---------------------------------------------------------------------------------------------

    def judge_copies(self, scratch: Path, counts: Counts) -> None:
        """Checks that a process that opens a copy, under any boot id, finds every record. The same holds for a repair."""
        with jlog.Reader(self.path) as reader:
            wanted = [(record.sequence, record.value) for record in reader]
        for name, make in (
            ("cp -a", copy),
            ("in place", copy_of_killed),
            ("another boot", under_another_boot_id),
            ("repaired", _repaired),
            ("repaired after another boot", _rebooted_and_repaired),
        ):
            counts.copies += 1
            target = make(self.path, scratch / "copy")
            with jlog.Writer(target, retention=jlog.Retention(delete_read=False)) as writer:
                writer.append(b"after the copy")
            with jlog.Reader(target) as reader:
                found = [(record.sequence, record.value) for record in reader]
            if found[: len(wanted)] != wanted:
                there = set(found)
                lost = [sequence for sequence, value in wanted if (sequence, value) not in there]
                kept = scratch.parent / f"copy-{name.replace(' ', '-')}"
                shutil.move(target, kept)
                raise Wrong(f"{name}: a copy of {self.path} lacks records {lost[:10]}…; it is {kept}")
            if len(found) > len(wanted) + 1:
                beyond = {identity_of(value or b"") for _, value in found[len(wanted) : -1]}
                if len(beyond) > 1:
                    raise Wrong(f"{name}: a copy of {self.path} has more units than the journal: {beyond}")
            oracle.check_journal(target)
            shutil.rmtree(target)
        try:
            check_flips(self.path, scratch, Random(len(wanted)))
        except AssertionError as error:
            raise Wrong(f"a flipped bit in a copy of {self.path}: {error}") from error

    def judge_leftovers(self) -> None:
        """Checks, with all processes dead, that a process that opens and cleans leaves nothing but the journal."""
        with jlog.Writer(self.path):
            pass
        jlog.Journal(self.path).clean()
        left = oracle.read_journal(self.path).leftovers
        if left:
            raise Wrong(f"left over: {left}")

    def reboot(self) -> None:
        """Checks a journal of which everything is written back, on another machine: numbering continues at the reservation."""
        contents = oracle.read_journal(self.path)
        with jlog.Reader(self.path, start="end") as reader:
            self.accounts.gaps.add((reader.position, contents.bounds.reservation_limit))
        if os.path.exists(self.path / "precommit"):
            another_boot(self.path)
        for window in (self.path / "work").glob("*.window"):
            change(window, BOOT_ID_AT, b"an earlier boot.")
        self.accounts.history.reboot()


def _letter_of(record: jlog.Record) -> tuple[int, int]:
    """Returns the sequence and the digest of the record of which this is the dead letter."""
    headers = dict(record.headers)
    return int(headers["jlog.work.sequence"] or b""), int((record.value or b"")[-CRC_BYTES:], 16)


def _repaired(journal: Path, target: Path) -> Path:
    jlog.Journal.repair_at(copy(journal, target))
    return target


def _rebooted_and_repaired(journal: Path, target: Path) -> Path:
    jlog.Journal.repair_at(under_another_boot_id(journal, target))
    return target

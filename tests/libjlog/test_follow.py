"""`import --follow` takes over from a writer of libjlog that goes on, its buffer included."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import exhaustive
import jlog
from cli.command import start
from jlog.libjlog import Import
from libjlog import clib
from libjlog.clib import BEGIN_SECONDS, LZ4, PLAIN, CWriter, numbered
from libjlog.conftest import contents, import_quietly, subscribers, values
from patience import HUNG_SECONDS


class LiveWriter:
    """A process that writes to a journal of libjlog, and what it has acknowledged."""

    def __init__(self, source: Path, first: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, clib.__file__, str(source), str(first)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self.acknowledged: list[int] = []

    def wait_for(self, messages: int) -> None:
        for _ in range(messages):
            self.acknowledged.append(int(self._out.readline()))

    def kill(self) -> None:
        self._process.kill()
        with self._out:
            self.acknowledged += [int(line) for line in self._out if line.endswith(b"\n")]
        self._process.wait(HUNG_SECONDS)

    def __enter__(self) -> LiveWriter:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Following:
    """A process that runs `jlogtool import --follow`."""

    def __init__(self, source: Path, journal: Path) -> None:
        self._command = "import", "--follow", source, journal
        self._process = start(*self._command)

    def start_again(self) -> None:
        self.kill()
        self._process = start(*self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=HUNG_SECONDS)

    def finish(self) -> None:
        wait_until_it_catches(self._process)
        self._process.send_signal(signal.SIGTERM)
        _, err = self._process.communicate(timeout=HUNG_SECONDS)
        assert self._process.returncode == 0, err

    def __enter__(self) -> Following:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.kill()


def wait_until_here(journal: Path, number: int) -> None:
    """Waits until a message with this number is imported."""
    with jlog.Reader(journal) as reader:
        for record in reader.follow(timeout=HUNG_SECONDS):
            if number_of(record.value) >= number:
                return
    raise AssertionError(f"message {number} does not come")


def number_of(value: bytes | None) -> int:
    return int((value or b"-1").split()[0])


def wait_until_it_catches(process: subprocess.Popen[bytes]) -> None:
    """Waits until SIGTERM has a handler, and does not end the process at once any more."""
    while True:
        assert process.poll() is None
        status = Path(f"/proc/{process.pid}/status").read_text()
        if int(status.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)


@pytest.mark.parametrize("magic", [PLAIN, LZ4])
@pytest.mark.parametrize("precommit", [0, 3000])
def test_a_live_writer_is_followed_without_a_loss_over_kills_of_both(
    magic: int, precommit: int, source: Path, journal: Path
) -> None:
    CWriter(source, magic=magic, precommit=precommit, unit_limit=20_000)
    import_quietly(source, journal)
    dice = random.Random(precommit)
    acknowledged, written = set(), 0
    with Following(source, journal) as following:
        for life in range(exhaustive.count(3, 20)):
            with LiveWriter(source, written) as writer:
                writer.wait_for(dice.randrange(50, 400))
                if life % 2:
                    following.start_again()
                    writer.wait_for(50)
            acknowledged.update(writer.acknowledged)
            written = writer.acknowledged[-1] + 2  # one more may be there, and not acknowledged
            wait_until_here(journal, writer.acknowledged[-1])
            repair(source, magic)
        following.finish()
    CWriter(source).close()  # flushes the buffer
    import_quietly(source, journal)
    imported = values(journal)
    numbers = [number_of(value) for value in imported]
    assert imported == [numbered(number) for number in numbers]
    assert acknowledged <= set(numbers)
    # A writer that was killed between a flush and the end of it leaves messages twice in the source, and so they come.
    assert imported == [value for _, _, value in clib.read(source)]


def repair(source: Path, magic: int) -> None:
    """Takes a part of a message out of the buffer, after a kill in the middle of it."""
    writer = CWriter(source)
    header = 16 if magic == PLAIN else 20
    content, at = writer._map[4 : 4 + writer.used], 0
    while at + header <= len(content):
        size = int.from_bytes(content[at + header - 4 : at + header], "little")
        if at + header + size > len(content):
            break
        at += header + size
    writer.used = at


def test_messages_in_the_buffer_come_while_they_are_there(source: Path, journal: Path) -> None:
    writer = CWriter(source, precommit=10_000)
    running = Import(source, journal, follow=True)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        with jlog.Reader(journal) as reader:
            records = reader.follow(timeout=HUNG_SECONDS)
            for number in range(300):
                writer.write(numbered(number), BEGIN_SECONDS + number)
                if number % 10 == 0:
                    assert next(record.value for record in records if number_of(record.value) == number) == numbered(number)
    finally:
        running.stop()
        thread.join(HUNG_SECONDS)
    assert values(journal) == [numbered(number) for number in range(300)]


def test_a_fast_writer_is_followed_while_it_flushes_all_the_time(source: Path, journal: Path) -> None:
    writer = CWriter(source, precommit=700, unit_limit=5000)
    running = Import(source, journal, follow=True)
    thread = threading.Thread(target=running.run)
    thread.start()
    count = exhaustive.count(5_000, 300_000)
    try:
        for number in range(count):
            writer.write(numbered(number), BEGIN_SECONDS + number)
    finally:
        running.stop()
        thread.join(HUNG_SECONDS)
    import_quietly(source, journal)
    assert values(journal) == [numbered(number) for number in range(count)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_what_was_there_is_imported(number: int, source: Path, journal: Path) -> None:
    writer = CWriter(source, precommit=1000)
    writer.subscribe(b"one")
    writer.write(b"0", BEGIN_SECONDS)
    process = start("import", "--follow", "--json", source, journal)
    while not journal.exists() or not (journal / "journal.meta").exists():
        assert process.poll() is None
        time.sleep(0.01)
    wait_until_here(journal, 0)
    writer.write(b"1", BEGIN_SECONDS)
    writer.subscribe(b"two")
    before = contents(source)
    process.send_signal(number)
    out, err = process.communicate(timeout=HUNG_SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert out == b'{"records": 2, "damage": 0, "subscribers": 2}\n'
    assert values(journal) == [b"0", b"1"]
    assert set(subscribers(journal)) == {"one", "two"}
    assert contents(source) == before


def test_two_imports_into_one_journal_are_refused(source: Path, journal: Path) -> None:
    CWriter(source).write(b"one", BEGIN_SECONDS)
    running = Import(source, journal, follow=True)
    try:
        with pytest.raises(jlog.JournalLocked, match="one may at a time"):
            Import(source, journal)
    finally:
        running.close()

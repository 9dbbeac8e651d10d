"""The topic to which a journal is mirrored. Its content is read by a program of its own, since a Kafka client has threads,
and the parent of a crew forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torture.records import CRC_BYTES, Wrong

if TYPE_CHECKING:
    from torture.accounts import Accounts

TOOLS = Path(__file__).resolve().parent.parent
HUNG_SECONDS = 300.0  # guards against hanging only


class Topic:
    """Creates a topic without retention, at the broker with this address."""

    def __init__(self, address: str, name: str) -> None:
        self._address, self._name = address, name
        self.url = f"kafka://{address}/{name}"
        self.subscriber = f"kafka:{name}"  # a mirror's own
        self._ask("make")

    def _ask(self, verb: str) -> list[str]:
        code = f"import sys; sys.path[:0] = {[str(TOOLS), str(TOOLS.parent / 'tests')]}\nfrom torture.topic import {verb}\n"
        code += f"{verb}({self._address!r}, {self._name!r})"
        return _run("-c", code).split()

    def check(self, journal: Path, accounts: Accounts) -> None:
        """Checks, once all is mirrored, that every record that was ever in the journal is in the topic once, in order."""
        _run("-m", "jlog.cli", "mirror", "to-kafka", str(journal), self.url, "--until-end")
        found = [int(digest, 16) for digest in self._ask("digests")]
        wanted = [accounts.sequences.at(sequence) & 0xFFFFFFFF for sequence in accounts.sequences.known_from(0)]
        if found == wanted:
            return
        pairs = enumerate(zip(wanted, found, strict=False))
        at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(found), len(wanted)))
        raise Wrong(f"{self.url} has {len(found)} messages for {len(wanted)} records, the {at}. is the first that differs")


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=HUNG_SECONDS)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(arguments)[:200]} ended with {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


# --- In the other program --------------------------------------------------------------------------------------------


def make(address: str, name: str) -> None:
    from kafka.witness import Witness

    Witness(address).make(name, retention_ms=-1)


def digests(address: str, name: str) -> None:
    """Prints the checksum at the end of each value."""
    from kafka.witness import Witness

    for value in Witness(address).values(name):
        print((value or b"")[-CRC_BYTES:].decode())

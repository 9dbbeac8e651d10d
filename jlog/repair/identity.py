"""Identity of a journal whose `journal.meta` is gone, as its other files state it."""

from __future__ import annotations

import os
from collections import Counter

from jlog._core.format.constants import DUAL_SLOT_OFFSETS
from jlog._core.format.signature import SIGNATURE_BYTES, Signature, whose
from jlog._core.segments.segment import list_segments, segment_name
from jlog.errors import CorruptJournal, JournalError
from jlog.storage.meta import DIRECTORIES, NAME
from jlog.system.files import open_file


def find_identity(path: str) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns the uuid, and the epochs with the first sequence of each. Raises CorruptJournal where no file states them."""
    found = _signatures(path)
    if not found:
        raise CorruptJournal(
            os.path.join(path, NAME),
            0,
            "it is missing or damaged, and no other file has the journal's identity; restore the journal from a backup",
        )
    ((uuid, _),) = Counter(signature.uuid for signature in found).most_common(1)
    epochs: dict[int, int] = {}
    begun = 0
    for signature in found:
        if signature.uuid == uuid and signature.epoch is not None and signature.epoch not in epochs:
            begun = max(begun, signature.first_sequence or 0) if epochs else 0
            epochs[signature.epoch] = begun
    return uuid, list(epochs.items())


def _signatures(path: str) -> list[Signature]:
    """Reads the signature of every file that has one, segments first and oldest first."""
    places = [(segment_name(name), 0) for name in list_segments(path)]
    others = ["bounds"]
    for folder in DIRECTORIES:
        if os.path.isdir(os.path.join(path, folder)):
            others += [os.path.join(folder, name) for name in sorted(os.listdir(os.path.join(path, folder)))]
    places += [(name, at) for name in others for at in DUAL_SLOT_OFFSETS]
    found = []
    for name, at in places:
        try:
            file = open_file(os.path.join(path, name))
        except (FileNotFoundError, JournalError):
            continue
        with file:
            signature = whose(os.pread(file.fd, SIGNATURE_BYTES, at))
        if signature is not None:
            found.append(signature)
    return found

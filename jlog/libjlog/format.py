"""The files of a journal of libjlog. docs/libjlog.md describes them.

The words are libjlog's own: a message is a record; a marker is the number of a message in its segment, from 1; a checkpoint is
the position of a subscriber.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from jlog._core.records.libjlog import Messages
from jlog.errors import UnsupportedFormat
from jlog.positions.names import NAME_BYTES_MAX, is_name, is_new_name

METASTORE = "metastore"
PRE_COMMIT = "pre_commit"
CHECKPOINT_PREFIX = "cp."
METASTORE_BYTES = (12, 16)  # of version 1, and since
CHECKPOINT_BYTES = 8
POINTER_BYTES = 4  # before the messages in `pre_commit`

PLAIN_MAGIC = 0x663A7318
COMPRESSED_MAGIC = 0x15106A00  # and the provider in its last byte
OLD_MAGIC = 0  # of version 1
PROVIDERS = {0: False, 1: True}  # whether it is LZ4

UNIT_LIMIT = 4 << 20  # bytes at which libjlog begins a new segment, unless told otherwise
ALMOST_SAFE = 1
SEGMENTS_MAX = 1 << 32

_SEGMENT = re.compile(r"[0-9a-f]{8}\Z")
_ESCAPED = re.compile(r"%[0-9A-F]{2}")


def segment_name(segment: int) -> str:
    return f"{segment:08x}"


def segment_of(name: str) -> int | None:
    """Returns the number of the segment that a file of this name is; None if it is none."""
    return int(name, 16) if _SEGMENT.match(name) else None


def order(big_endian: bool) -> str:
    return ">" if big_endian else "<"


@dataclass(frozen=True)
class Layout:
    """How the numbers and the messages of one journal are written."""

    magic: int
    big_endian: bool

    @property
    def lz4(self) -> bool | None:
        """Whether messages are compressed with LZ4. None: they have the short header, which has no place for that."""
        return PROVIDERS[self.magic & 0xFF] if self.magic & ~0xFF == COMPRESSED_MAGIC else None

    def messages(self) -> Messages:
        return Messages(self.magic, self.big_endian, self.lz4)

    def numbers(self, content: bytes) -> tuple[int, ...]:
        """Returns the 32-bit numbers that these bytes are."""
        return struct.unpack(f"{order(self.big_endian)}{len(content) // 4}I", content[: len(content) // 4 * 4])

    def magic_bytes(self) -> bytes:
        return struct.pack(f"{order(self.big_endian)}I", self.magic)


def known_magic(magic: int) -> bool:
    return magic == PLAIN_MAGIC or magic & ~0xFF == COMPRESSED_MAGIC


def layout_of(metastore: bytes, path: str) -> Layout | None:
    """Returns the layout that the magic of a metastore states, whichever byte order its writer had. None if it states none: the
    journal is one of version 1, or the file is damaged. Raises UnsupportedFormat for a compression that nobody knows."""
    if len(metastore) != METASTORE_BYTES[1]:
        return None
    for big_endian in (False, True):
        magic = struct.unpack(f"{order(big_endian)}I", metastore[12:])[0]
        if known_magic(magic):
            layout = Layout(magic, big_endian)
            if magic != PLAIN_MAGIC and magic & 0xFF not in PROVIDERS:
                raise UnsupportedFormat(
                    f"{path}: its messages are compressed by provider {magic & 0xFF}; 0 (none) and 1 (LZ4) can be imported"
                )
            return layout
    return None


# --- Names of subscribers -------------------------------------------------------------------------------------------


def checkpoint_file(name: bytes) -> str:
    return CHECKPOINT_PREFIX + name.hex()


def subscriber_of(file: str) -> bytes | None:
    """Returns the name of the subscriber whose checkpoint is in this file; None if the file's name has none."""
    try:
        name = bytes.fromhex(file.removeprefix(CHECKPOINT_PREFIX))
    except ValueError:
        return None
    return name if name and checkpoint_file(name) == file.lower() else None


def allowed_name(name: bytes) -> str:
    """Returns the name that a subscriber of libjlog gets here: its own, if it is allowed, else a percent-encoded one. Two names
    never become the same one."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    if text and is_new_name(text) and not _ESCAPED.search(text):
        return text
    encoded = "".join(_encoded(character) for character in name.decode("utf-8", "surrogateescape"))
    if not is_new_name(encoded):  # it reads as a number or a time, or is begin or end
        encoded = f"%{name[0]:02X}{encoded[1:]}"
    if not is_name(encoded):
        encoded = encoded.encode()[: NAME_BYTES_MAX - 20].decode(errors="ignore") + f"%{hash_of(name)}"
    return encoded


def _encoded(character: str) -> str:
    if is_name(f"a{character}") and character != "%":
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def hash_of(name: bytes) -> str:
    import hashlib

    return hashlib.sha256(name).hexdigest()[:16]


def original_name(name: str) -> bytes:
    """Returns the name in libjlog of a subscriber here: what allowed_name() has made of it is undone."""
    original = unquote_to_bytes(name)
    return original if original and allowed_name(original) == name else name.encode()

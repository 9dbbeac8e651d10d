"""Reads and checks a journal by what docs/format.md says, in plain Python, with nothing of jlog's.

`read_journal` tells what a journal holds, `check_journal` also raises OracleError wherever it is not what the format
allows. Both take a journal as living or killed processes left it, before the next writer has tidied it up; damaged
ones are for tests that ask for an OracleError. As a program it prints a summary: `python -m tests.oracle JOURNAL`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import sys
import unicodedata
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import cramjam
import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERSION, SEGMENT_VERSION = 1, 2
NONE = 2**64 - 1
NO_TIME = -(2**63)
LAST_TIME = (1 << 63) - 1
# `.ids`: what a killed process has left of `ids`, which the next one replaces.
NAMES = re.compile(r"journal\.meta|precommit|bounds|lock|\.?ids|work|subscribers|checkpoints|quarantine|[0-9]{20}\.(seg|idx)")
COPY_BYTES = 4096
PAGE_BYTES = 4096
SLOT_BYTES_AT, SLOT_BYTES = 64, 1024  # of `lock`
BASE_BYTES = 8
RAW_BYTES_MAX = 1610612736
FIELD_BYTES_MAX = 1 << 30
STATE_BYTES_MAX = 64 << 10
HEADERS_MAX = 65535
INDEX_EVERY_BYTES = 64 << 10

SEGMENT_HEADER = struct.Struct("<8sII16sQQQQQqQ8s")
BLOCK_HEADER = struct.Struct("<IBBHIIIIIIQqqqQ")
BOUNDS = struct.Struct("<8sIIQ16sQQQQQQQQ24s")
POSITION = struct.Struct("<8sIIQ16sQQq")
INDEX_HEADER = struct.Struct("<8sII16sQQ")
INDEX_ENTRY = struct.Struct("<QQq")
PAGE_HEAD = struct.Struct("<8sII16s16sQQQQQ")
SLOT = struct.Struct("<QQQQQIIQQ")
LAYOUT = 2  # of the page
PAGE_RESERVATION_AT, PAGE_DIRECT_AT, PAGE_INCARNATION_AT, PAGE_UNWRITTEN_AT = 216, 256, 280, 312
PAGE_DURABLE_AT, PAGE_GENERATION_AT, PAGE_SLOTS_AT, PAGE_IMMUTABLE_AT = 360, 448, 512, 832

BLOCK_MAGIC = b"JBLK"
RECORDS, STATE = 1, 2
PLAIN, LZ4 = 0, 1
HAS_STATE = 1
EARLIEST = 0x7E
TAG_LONG, TAG_EXPLICIT, TAG_STATE, TAG_NULL, TAG_KEY, TAG_ABSOLUTE = (1 << bit for bit in range(31, 25, -1))
TAG_ZERO = TAG_ABSOLUTE - 1
SHORT_VALUE_MAX = TAG_EXPLICIT - 1
NULL_BYTES = 2**32 - 1


def crc32c(data: bytes) -> int:
    return int(google_crc32c.value(data))


class OracleError(Exception):
    """The format does not allow what is at `offset` of `path`."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path, self.offset, self.reason = path, offset, reason

    def __str__(self) -> str:
        return f"{self.path}: at byte {self.offset}: {self.reason}"


def require(holds: Any, path: str, offset: int, reason: str) -> None:
    if not holds:
        raise OracleError(path, offset, reason)


# --- What a journal holds ----------------------------------------------------------------------------------------


class Record(NamedTuple):
    sequence: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    explicit: bool  # the caller gave the timestamp


class Block(NamedTuple):
    path: str
    segment: int
    offset: int
    kind: int
    codec: int
    flags: int
    stored_crc: int
    raw_crc: int
    record_count: int
    stored_bytes: int
    raw_bytes: int
    first_sequence: int
    base_time_us: int
    max_timestamp_us: int
    clock_us: int
    durable_end: int

    @property
    def end_offset(self) -> int:
        return self.offset + BLOCK_HEADER.size + self.stored_bytes

    @property
    def has_state(self) -> bool:
        return bool(self.flags & HAS_STATE)

    @property
    def earliest_us(self) -> int:
        """No record is earlier; NO_TIME where the block does not say it."""
        number = (self.flags & EARLIEST) >> 1
        return max(self.max_timestamp_us - (1 << number - 1) + 1, NO_TIME) if number else NO_TIME


class OpenBlock(NamedTuple):
    """A body in `precommit`, where it belongs to the journal's end."""

    path: str
    segment: int
    offset: int
    first_sequence: int
    capacity: int
    base_time_us: int
    record_count: int
    raw: bytes
    body_at: int  # in that file

    @property
    def end(self) -> tuple[int, int, int]:
        """The offset of the block after it, if that is in the same segment."""
        end_offset = self.offset + BLOCK_HEADER.size + len(self.raw)
        return self.segment, end_offset, self.first_sequence + self.record_count


class Gap(NamedTuple):
    first_sequence: int
    next_sequence: int


class Bounds(NamedTuple):
    generation: int
    first_sequence: int
    mark: tuple[int, int, int]  # segment, offset, sequence
    reservation_limit: int
    closed: tuple[int, int, int] | None


class Position(NamedTuple):
    generation: int
    epoch: int
    sequence: int
    moved_us: int


@dataclass
class Segment:
    path: str
    first_sequence: int
    epoch: int
    previous_segment: int
    previous_end_offset: int
    previous_end_sequence: int
    created_us: int
    replacements: int
    file_bytes: int
    end_offset: int = 0
    end_sequence: int = 0
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Slot:
    generation: int
    segment: int
    offset: int
    first_sequence: int
    previous_offset: int
    capacity: int
    used: int
    body_crc: int
    problem: str | None


@dataclass
class Page:
    """The control page. `current`: it was made in this boot, in this very file, so that it says where the end is."""

    path: str
    current: bool
    generation: int
    direct: int
    unwritten: int
    reservation_limit: int
    durable_end: int
    capacity: int
    new_inode: int  # of a file that is about to take the open segment's name, or 0
    new_end: int
    slots: list[Slot]
    immutable: bytes  # the immutable block's header, if there is one
    bodies: bytes

    @property
    def slot(self) -> Slot:
        return self.slots[self.generation & 1]

    @property
    def immutable_slot(self) -> Slot | None:
        """The immutable block, while it is not in its segment."""
        is_there = self.unwritten == self.generation - 1 and self.unwritten
        return self.slots[self.unwritten & 1] if is_there else None

    def body_at(self, parity: int) -> int:
        """Where the body of even or odd generations begins in the file."""
        return PAGE_BYTES + self.capacity * parity

    def body(self, parity: int, used: int) -> bytes:
        """Less than `used` where the file ends before."""
        begin = self.body_at(parity) - PAGE_BYTES
        return self.bodies[begin : begin + used]


@dataclass
class Contents:
    path: str
    uuid: bytes
    epochs: list[tuple[int, int]]  # number, sequence where it began
    options: dict[str, Any]
    bounds: Bounds
    page: Page | None
    segments: list[Segment] = field(default_factory=list)
    immutable_block: OpenBlock | None = None  # published as the last, and not in its segment yet
    open_block: OpenBlock | None = None
    first_sequence: int = 0
    end: tuple[int, int, int] = (
        0,
        0,
        0,
    )  # segment, offset, sequence after the last block in a segment: the immutable and the open one not counted
    gaps: list[Gap] = field(default_factory=list)
    state: dict[bytes, bytes] = field(default_factory=dict)
    subscribers: dict[str, Position] = field(default_factory=dict)
    checkpoints: dict[str, Position] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)  # files that are not a part of the journal (any more, or yet)

    @property
    def blocks(self) -> list[Block]:
        return [block for segment in self.segments for block in segment.blocks]

    @property
    def positions(self) -> dict[str, Position]:
        """By file: "subscribers/billing"."""
        groups = {"subscribers": self.subscribers, "checkpoints": self.checkpoints}
        return {f"{group}/{name}": position for group, found in groups.items() for name, position in found.items()}

    @property
    def unwritten_blocks(self) -> list[OpenBlock]:
        """Those in `precommit`, in order."""
        return [block for block in (self.immutable_block, self.open_block) if block]

    @property
    def next_sequence(self) -> int:
        return self.end[2] + sum(block.record_count for block in self.unwritten_blocks)

    @cached_property
    def records(self) -> list[Record]:
        return list(self.iter_records())

    def iter_records(self) -> Iterator[Record]:
        """In order, from the first that retention has left, with those of the immutable and the open block. Read from the files
        now."""
        for segment in self.segments:
            file = File(segment.path)
            for block in segment.blocks:
                if block.first_sequence + block.record_count > self.first_sequence:
                    records, _ = decode_block(block, file)
                    yield from (record for record in records if record.sequence >= self.first_sequence)
        for unwritten in self.unwritten_blocks:
            yield from decode_open(unwritten)[0]


# --- Small files -------------------------------------------------------------------------------------------------


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def structure_crc(structure: bytes) -> int:
    return crc32c(structure[:12] + bytes(4) + structure[16:])


def check_structure(path: str, offset: int, structure: bytes, magic: bytes, uuid: bytes, uuid_at: int) -> None:
    """Those of magic (8), version (4), crc (4) at their beginning."""
    version, crc = struct.unpack_from("<II", structure, 8)
    require(structure[:8] == magic, path, offset, f"no {magic!r} stands here")
    require(crc == structure_crc(structure), path, offset, "the CRC does not match")
    known = range(1, (SEGMENT_VERSION if magic == b"JLOGSEG\n" else VERSION) + 1)
    require(version in known, path, offset, f"the format version is {version}")
    require(structure[uuid_at : uuid_at + 16] == uuid, path, offset, "the uuid is another journal's")


def read_meta(path: str) -> dict[str, Any]:
    name = os.path.join(path, "journal.meta")
    require(os.path.exists(name), name, 0, "there is none, so this is not a journal")
    text = read_file(name)
    first = re.match(rb"jlog (\d+) crc32c=([0-9a-f]{8})\n", text)
    require(first, name, 0, "the first line is not a journal's")
    assert first is not None
    require(int(first[1]) == VERSION, name, 0, f"the format version is {int(first[1])}")
    require(crc32c(text[first.end() :]) == int(first[2], 16), name, first.end(), "the CRC does not match")
    meta: dict[str, Any] = json.loads(text[first.end() :])
    missing = {"uuid", "epochs", "inode", "birth_us", "options"} - meta.keys()
    require(not missing, name, first.end(), f"it lacks {sorted(missing)}")
    require(re.fullmatch("[0-9a-f]{32}", meta["uuid"]), name, first.end(), "uuid is not 32 hex digits")
    begins = [epoch["first_sequence"] for epoch in meta["epochs"]]
    require(begins and begins == sorted(begins), name, first.end(), "the epochs are none, or not in order")
    return meta


def read_dual_slot(path: str, form: struct.Struct, magic: bytes, uuid: bytes, strict: bool) -> tuple[Any, ...]:
    """The fields after the uuid of the newer valid copy, with its generation before them. `strict`: both are valid."""
    text = read_file(path)
    valid, problems = [], []
    for offset in (0, COPY_BYTES):
        structure = text[offset : offset + form.size]
        try:
            require(len(structure) == form.size, path, offset, "the copy is cut off")
            check_structure(path, offset, structure, magic, uuid, 24)
            fields = form.unpack(structure)
            valid.append((fields[3], *fields[5:]))
        except OracleError as error:
            problems.append(error)
    if not valid or (strict and problems):
        raise problems[0]
    if strict:
        # A writer may be killed between the two; both are written each time.
        require(abs(valid[0][0] - valid[1][0]) <= 1, path, 0, "the copies are more than one generation apart")
        same = valid[0] == valid[1] or valid[0][0] != valid[1][0]
        require(same, path, 0, "the copies of a generation differ")
    return max(valid)


def read_bounds(path: str, uuid: bytes, strict: bool) -> Bounds:
    name = os.path.join(path, "bounds")
    require(os.path.exists(name), name, 0, "there is none")
    fields = read_dual_slot(name, BOUNDS, b"JLOGBND\n", uuid, strict)
    generation, first, *mark, reservation, closed_segment, closed_offset, closed_sequence, reserved = fields
    closed = (closed_segment, closed_offset, closed_sequence)
    require(not any(reserved), name, 104, "reserved bytes are not 0")
    require(NONE not in closed or set(closed) == {NONE}, name, 80, "the closed end is half none")
    return Bounds(generation, first, tuple(mark), reservation, None if NONE in closed else closed)


def read_positions(path: str, group: str, uuid: bytes, strict: bool) -> dict[str, Position]:
    folder = os.path.join(path, group)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = {}
    for name in names:
        if not name.startswith("."):  # no subscriber has such a name: it is a file that is being made
            fields = read_dual_slot(os.path.join(folder, name), POSITION, b"JLOGPOS\n", uuid, strict)
            found[name] = Position(*fields)
    return found


def boot_id() -> bytes:
    """Zeros where it cannot be read."""
    try:
        return bytes.fromhex(read_file("/proc/sys/kernel/random/boot_id").decode().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def is_written_to(path: str) -> bool:
    """Returns whether a writing process holds its slot's byte of `lock`."""
    flock = struct.Struct("hhxxxxqqixxxx")
    try:
        with open(os.path.join(path, "lock"), "rb") as file:
            asked = flock.pack(fcntl.F_WRLCK, os.SEEK_SET, SLOT_BYTES_AT, SLOT_BYTES, 0)
            found = flock.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
            return bool(found[0] != fcntl.F_UNLCK)
    except FileNotFoundError:
        return False


def read_slot(image: bytes, uuid: bytes) -> Slot:
    generation, segment, offset, first, previous_offset, capacity, crc, word, reserved = SLOT.unpack(image)
    problem = None
    if crc != crc32c(uuid + image[:44]):
        problem = "the slot's CRC does not match"
    elif reserved:
        problem = "the slot's reserved field is not 0"
    return Slot(generation, segment, offset, first, previous_offset, capacity, word & 0xFFFFFFFF, word >> 32, problem)


def read_page(path: str, uuid: bytes) -> Page | None:
    """None where no control page of this journal stands."""
    name = os.path.join(path, "precommit")
    if not os.path.exists(name):
        return None
    with open(name, "rb") as file:
        page, bodies, found = file.read(PAGE_BYTES), file.read(), os.fstat(file.fileno())
    if len(page) < PAGE_BYTES:
        return None
    magic, layout, status, page_uuid, boot, device, inode, capacity, _, _ = PAGE_HEAD.unpack_from(page)
    if magic != b"JLOGPAGE" or layout != LAYOUT or page_uuid != uuid:
        return None
    slots = [read_slot(page[at : at + SLOT.size], uuid) for at in (PAGE_SLOTS_AT, PAGE_SLOTS_AT + SLOT.size)]
    direct, reservation, durable, generation, unwritten = (
        struct.unpack_from("<Q", page, at)[0]
        for at in (PAGE_DIRECT_AT, PAGE_RESERVATION_AT, PAGE_DURABLE_AT, PAGE_GENERATION_AT, PAGE_UNWRITTEN_AT)
    )
    incarnation, new_inode, new_end = struct.unpack_from("<QQQ", page, PAGE_INCARNATION_AT)
    counting = [slots[number & 1] for number in (generation, unwritten) if number in (generation, generation - 1) and number]
    this_boot = (any(boot) and boot == boot_id()) or is_written_to(path)
    here = status == 1 and this_boot and (device, inode) == (found.st_dev, found.st_ino)
    return Page(
        path=name,
        current=here,
        generation=generation,
        direct=direct,
        unwritten=unwritten,
        reservation_limit=reservation,
        durable_end=durable,
        capacity=capacity_of(counting, bodies, capacity),
        new_inode=new_inode * (incarnation & 1),
        new_end=new_end,
        slots=slots,
        immutable=page[PAGE_IMMUTABLE_AT : PAGE_IMMUTABLE_AT + BLOCK_HEADER.size],
        bodies=bodies,
    )


def capacity_of(slots: list[Slot], bodies: bytes, stated: int) -> int:
    """The stated one, which no checksum covers; or the one of the file's size, where only with that the bodies are whole."""
    for capacity in (stated, len(bodies) // 2):
        found = [bodies[(slot.generation & 1) * capacity :][: slot.used] for slot in slots]
        if all(not slot.used or crc32c(body) == slot.body_crc for slot, body in zip(slots, found, strict=True)):
            return capacity
    return stated


# --- Blocks and records ------------------------------------------------------------------------------------------


class File:
    """Ranges of a file, through a window, so that small blocks do not cost a system call each."""

    WINDOW_BYTES = 1 << 20

    def __init__(self, path: str) -> None:
        self.path, self.start, self.window = path, 0, b""

    def read(self, offset: int, size: int) -> bytes:
        at = offset - self.start
        if not 0 <= at <= at + size <= len(self.window):
            with open(self.path, "rb") as file:
                file.seek(offset)
                self.start, self.window, at = offset, file.read(max(size, self.WINDOW_BYTES)), 0
        return self.window[at : at + size]


def block_at(file: File, uuid: bytes, segment: int, offset: int, *, whole: bool) -> Block:
    """The block at this place. `whole`: its body's CRC is looked at too."""

    def wants(holds: bool, reason: str) -> None:
        require(holds, file.path, offset, reason)

    image = file.read(offset, BLOCK_HEADER.size)
    wants(len(image) == BLOCK_HEADER.size and image[:4] == BLOCK_MAGIC, "there is no block here")
    block = block_of(image, file.path, uuid, segment, offset)
    if whole:
        stored = file.read(offset + BLOCK_HEADER.size, block.stored_bytes)
        wants(crc32c(stored) == block.stored_crc, "the stored body's CRC does not match")
    return block


def block_of(image: bytes, path: str, uuid: bytes, segment: int, offset: int, at: int | None = None) -> Block:
    """Returns the fields of the header that belongs to this place. `at`: its offset in the file, if it is elsewhere."""

    def wants(holds: bool, reason: str) -> None:
        require(holds, path, offset if at is None else at, reason)

    magic, kind, codec, flags, crc, *fields = BLOCK_HEADER.unpack(image)
    wants(magic == int.from_bytes(BLOCK_MAGIC, "little"), "no block's header stands here")
    block = Block(path, segment, offset, kind, codec, flags, *fields)
    covered = uuid + struct.pack("<QQ", segment, offset) + image[:8] + bytes(4) + image[12:]
    wants(crc == crc32c(covered), "the block header's CRC does not match")
    known = kind in (RECORDS, STATE) and codec in (PLAIN, LZ4) and not flags & ~(HAS_STATE | EARLIEST)
    wants(known, f"kind {kind}, codec {codec}, flags {flags} are not all known")
    sound = block.raw_bytes <= RAW_BYTES_MAX and block.raw_bytes // 255 <= block.stored_bytes
    wants(sound, f"{block.stored_bytes} stored bytes may not stand for {block.raw_bytes}")
    same = (block.raw_bytes, block.raw_crc) == (block.stored_bytes, block.stored_crc)
    wants(same or codec != PLAIN, "an uncompressed body is not stored as it is")
    return block


def raw_body(block: Block, file: File | None = None) -> bytes:
    at = block.offset + BLOCK_HEADER.size
    stored = (file or File(block.path)).read(at, block.stored_bytes)
    require(len(stored) == block.stored_bytes, block.path, at, "the file ends within the block's body")
    require(crc32c(stored) == block.stored_crc, block.path, at, "the stored body's CRC does not match")
    if block.codec == PLAIN:
        return stored
    raw = bytearray(block.raw_bytes)
    try:
        size = cramjam.lz4.decompress_block_into(stored, raw, output_len=block.raw_bytes)
    except cramjam.DecompressionError as error:
        raise OracleError(block.path, at, f"LZ4 cannot decompress the body: {error}") from None
    sized = size == block.raw_bytes
    require(sized, block.path, at, f"the body decompresses to {size} bytes, not {block.raw_bytes}")
    require(crc32c(bytes(raw)) == block.raw_crc, block.path, at, "the decompressed body's CRC does not match")
    return bytes(raw)


Change = tuple[bytes, "bytes | None"]  # of the state; None deletes
_SHORT = struct.Struct("<II").unpack_from
_LONG = struct.Struct("<IIIII").unpack_from


def decode_records(raw: bytes, base_us: int, sequence: int) -> tuple[list[Record], list[Change]]:
    """All of a body, which must end with a record. ValueError where it is not what the format allows."""
    records: list[Record] = []
    changes: list[Change] = []
    at, end = 0, len(raw)
    while at < end:
        if end - at < 8:
            raise ValueError(f"the record at byte {at} of the body is cut off")
        begin = at
        tag, delta_us = _SHORT(raw, at)
        if not tag & TAG_LONG:
            at += 8 + (tag & SHORT_VALUE_MAX)
            record = Record(sequence, base_us + delta_us, None, raw[begin + 8 : at], [], tag & TAG_EXPLICIT != 0)
        else:
            try:
                at, time_us, key, value, headers = decode_long(raw, at, base_us + delta_us)
            except ValueError as error:
                raise ValueError(f"the record at byte {begin} of the body: {error}") from None
            if tag & TAG_STATE:
                assert key is not None
                changes.append((key, value))
                continue
            record = Record(sequence, time_us, key, value, headers, tag & TAG_EXPLICIT != 0)
        if at > end or record.timestamp_us >= 2**63:
            raise ValueError(f"the record at byte {begin} reaches beyond the body, or its time beyond 64 bits")
        records.append(record)
        sequence += 1
    return records, changes


def decode_long(raw: bytes, at: int, time_us: int) -> tuple[int, int, bytes | None, bytes | None, list[Any]]:
    """End, time, key, value and headers of the long record at `at`."""
    if len(raw) - at < 20:
        raise ValueError("it is cut off")
    tag, _, value_bytes, key_bytes, headers_bytes = _LONG(raw, at)
    at += 20
    if tag & TAG_ZERO:
        raise ValueError(f"reserved bits of its tag {tag:#010x} are set")
    if max(value_bytes, key_bytes, headers_bytes) > FIELD_BYTES_MAX:
        raise ValueError("a part of it is longer than 1 GiB")
    if (tag & TAG_NULL and value_bytes) or (not tag & TAG_KEY and key_bytes):
        raise ValueError("a null value or key has a length")
    if tag & TAG_STATE and (not tag & TAG_KEY or headers_bytes or tag & (TAG_EXPLICIT | TAG_ABSOLUTE)):
        raise ValueError("a state record has a key, no headers and no time of its own")
    if tag & TAG_ABSOLUTE:
        if len(raw) - at < 8:
            raise ValueError("it is cut off")
        (time_us,) = struct.unpack_from("<q", raw, at)
        at += 8
    end = at + key_bytes + headers_bytes + value_bytes
    if end > len(raw):
        raise ValueError("it reaches beyond the body")
    key = raw[at : at + key_bytes] if tag & TAG_KEY else None
    at += key_bytes
    headers = decode_headers(raw[at : at + headers_bytes])
    value = None if tag & TAG_NULL else raw[end - value_bytes : end]
    return end, time_us, key, value, headers


def decode_headers(raw: bytes) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    at = 0
    while at < len(raw):
        if len(raw) - at < 8:
            raise ValueError("a header is cut off")
        name_bytes, value_bytes = _SHORT(raw, at)
        value_at = at + 8 + name_bytes
        at = value_at + (0 if value_bytes == NULL_BYTES else value_bytes)
        if at > len(raw):
            raise ValueError("a header reaches beyond the headers")
        name = raw[value_at - name_bytes : value_at].decode()
        headers.append((name, None if value_bytes == NULL_BYTES else raw[value_at:at]))
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"it has {len(headers)} headers")
    return headers


def decode_block(block: Block, file: File | None = None) -> tuple[list[Record], list[Change]]:
    """Offsets in its errors are the block's: what is compressed has no place of its own in the file."""
    try:
        return decode_records(raw_body(block, file), block.base_time_us, block.first_sequence)
    except ValueError as error:
        raise OracleError(block.path, block.offset, str(error)) from None


def decode_open(block: OpenBlock) -> tuple[list[Record], list[Change]]:
    try:
        return decode_records(block.raw, block.base_time_us, block.first_sequence)
    except ValueError as error:
        raise OracleError(block.path, block.body_at, str(error)) from None


# --- Where the journal ends --------------------------------------------------------------------------------------


class Walk:
    """Walks from segment to segment and block to block, and fills in the contents.

    While the control page is current it says where the end is, and every block before that must be there; else the end
    is that of the valid prefix, and what was synced must lie before it."""

    def __init__(self, contents: Contents) -> None:
        self.contents, self.uuid, self.page = contents, contents.uuid, contents.page
        self.later: list[Segment] = []
        self.place: Slot | None = None  # where the blocks end, while the page says it
        if self.page and self.page.current:
            slot = self.place = self.checked_slot(self.page.generation)
            if self.page.immutable_slot is not None:
                slot = self.place = self.checked_slot(self.page.unwritten)
            name = os.path.join(contents.path, f"{slot.segment:020d}.seg")
            if self.page.new_inode and os.stat(name).st_ino == self.page.new_inode:
                self.place = replace(slot, offset=self.page.new_end, previous_offset=0)

    def checked_slot(self, generation: int) -> Slot:
        assert self.page is not None
        slot, at = self.page.slots[generation & 1], PAGE_SLOTS_AT + SLOT.size * (generation & 1)
        require(slot.problem is None, self.page.path, at, str(slot.problem))
        require(slot.generation == generation, self.page.path, at, "the slot is of another generation")
        return slot

    def run(self) -> None:
        contents = self.contents
        self.later = self.kept_segments()
        while self.later:
            segment = self.later.pop(0)
            contents.segments.append(segment)
            following = self.walk_segment(segment)
            if following is None:
                break
            contents.leftovers += [s.path for s in self.later if s.first_sequence < following.first_sequence]
            self.later = self.later[self.later.index(following) :]
        self.note_end()
        contents.leftovers += [s.path for s in self.later]
        if self.place is None:
            self.require_nothing_synced_behind()
        else:
            self.require_previous_block(self.place)
        self.add_bodies()
        for left in self.later if self.place else ():
            lost = left.first_sequence < contents.next_sequence
            require(not lost, left.path, 0, "the segment begins before the journal's end, and is not the open one")

    def note_end(self) -> None:
        last = self.contents.segments[-1]
        self.contents.end = (last.first_sequence, last.end_offset, last.end_sequence)

    def kept_segments(self) -> list[Segment]:
        contents, first = self.contents, self.contents.bounds.first_sequence
        found = []
        for name in sorted(name for name in os.listdir(contents.path) if re.fullmatch(r"[0-9]{20}\.seg", name)):
            path = os.path.join(contents.path, name)
            # What a power loss has left of a roll is not a part of the journal, nor what it has brought back of a segment that
            # retention had removed; a missing link is found by the walk, and below.
            number = int(name[:20])
            lenient = self.place is None or number > self.place.segment or number < first
            if lenient and not begins_whole(path, self.uuid):
                contents.leftovers.append(path)
            else:
                found.append(read_segment_header(path, self.uuid))
        require(found, contents.path, 0, "there is no segment")
        start = 0  # what is before was removed, and is here because the unlinking was cut short
        for i in range(1, len(found)):
            if found[i - 1].first_sequence < first >= found[i].previous_end_sequence:
                start = i
        contents.leftovers += [segment.path for segment in found[:start]]
        begin = found[start]
        missing = begin.previous_segment != NONE and begin.previous_end_sequence > first
        require(not missing, begin.path, 48, f"the segment before it, with record {first}, is missing")
        contents.first_sequence = max(first, begin.previous_end_sequence)
        return found[start:]

    def walk_segment(self, segment: Segment) -> Segment | None:
        """Fills in its blocks and its end; the segment that goes on there, or None."""
        file, here = File(segment.path), segment.first_sequence
        stop = self.stop_of(segment)
        successors = {
            (later.previous_end_offset, later.previous_end_sequence): later
            for later in reversed(self.later)
            if later.previous_segment == here
        }
        offset, sequence = SEGMENT_HEADER.size, here
        while ((offset, sequence) not in successors) if stop is None else (offset < stop[0]):
            try:
                block = block_at(file, self.uuid, here, offset, whole=stop is None)
                wanted = f"the block begins with sequence {block.first_sequence}, not with {sequence}"
                require(block.first_sequence == sequence, segment.path, offset, wanted)
                first = offset == SEGMENT_HEADER.size
                wanted = "the first block of a segment, and no other, is of kind STATE"
                require((block.kind == STATE) == first, segment.path, offset, wanted)
            except OracleError:
                if stop is None and offset > SEGMENT_HEADER.size:
                    break
                raise
            segment.blocks.append(block)
            offset, sequence = block.end_offset, sequence + block.record_count
        segment.end_offset, segment.end_sequence = offset, sequence
        if stop is None:
            return successors.get((offset, sequence))
        wanted = f"the blocks end here with sequence {sequence}, not at {stop}"
        require((offset, sequence) == stop, segment.path, offset, wanted)
        return self.later[0] if self.place and here != self.place.segment else None

    def stop_of(self, segment: Segment) -> tuple[int, int] | None:
        """Where its blocks end, if that is known: what the page or the next segment says."""
        if self.place is None:
            return None
        if segment.first_sequence == self.place.segment:
            return self.place.offset, self.place.first_sequence
        require(self.later, segment.path, 0, f"the open segment {self.place.segment} is missing")
        following = self.later[0]
        linked = following.previous_segment == segment.first_sequence
        require(linked, following.path, 48, "the segment before it is missing")
        return following.previous_end_offset, following.previous_end_sequence

    def require_nothing_synced_behind(self) -> None:
        """Neither the mark nor a block beyond the end may have known that more was synced: that would be damage, not a
        torn tail."""
        last = self.contents.segments[-1]
        mark = synced_mark_of(self.contents)
        require(mark <= self.contents.end, last.path, last.end_offset, f"no block, though all to {mark} is synced")
        for segment in [last, *self.later]:
            file, probe = File(segment.path), File(segment.path)
            at = last.end_offset if segment is last else 0
            while window := file.read(at, File.WINDOW_BYTES):
                for found in re.finditer(BLOCK_MAGIC, window):
                    durable_end = durable_end_at(probe, self.uuid, segment.first_sequence, at + found.start())
                    wanted = f"no block, though one in {segment.path} says that all to {durable_end} is synced"
                    require(durable_end <= last.end_sequence, last.path, last.end_offset, wanted)
                at += len(window) - (3 if len(window) == File.WINDOW_BYTES else 0)

    def require_previous_block(self, slot: Slot) -> None:
        self.require_previous_offset(slot, self.contents.segments[-1].blocks[-1].offset)

    def require_previous_offset(self, slot: Slot, offset: int) -> None:
        assert self.page is not None
        at = PAGE_SLOTS_AT + SLOT.size * (slot.generation & 1) + 32
        known = slot.previous_offset in (0, offset)
        require(known, self.page.path, at, "previous_offset is not the last block's")

    def add_bodies(self) -> None:
        """The immutable block and the open one where the page is current; else what begins exactly at the end or has more than
        the last block, and what begins exactly after that."""
        page, contents = self.page, self.contents
        if page is None:
            return
        if self.place is None:
            found = self.salvaged(contents.end) or self.longer_than_last()
            if found is not None:
                following = self.salvaged(found.end)
                contents.immutable_block, contents.open_block = (found, following) if following else (None, found)
            return
        if (self.place.segment, self.place.offset, self.place.first_sequence) != contents.end:
            return
        slot = self.place
        if page.immutable_slot is not None:
            contents.immutable_block, slot = self.immutable_block(page, self.place), page.slot
        contents.open_block, problem = self.block_in(page, slot)
        require(problem is None, page.path, page.body_at(page.generation & 1), str(problem))
        if contents.unwritten_blocks == [] and page.direct == page.generation:
            self.add_direct_block()

    def immutable_block(self, page: Page, slot: Slot) -> OpenBlock:
        """Its header, its slot and its body agree, and the open block begins where it ends."""
        at, body_at = PAGE_IMMUTABLE_AT, page.body_at(slot.generation & 1)
        header = block_of(page.immutable, page.path, self.uuid, slot.segment, slot.offset, at)
        block, problem = self.block_in(page, slot)
        require(block is not None, page.path, body_at, problem or "the immutable block is empty")
        assert block is not None
        records, _ = decode_open(block)
        latest_us = max((record.timestamp_us for record in records), default=NO_TIME)
        plain = (header.kind, header.codec, header.has_state) == (RECORDS, PLAIN, False)
        begins = (header.first_sequence, header.base_time_us) == (block.first_sequence, block.base_time_us)
        holds = (header.record_count, header.raw_bytes) == (len(records), len(block.raw))
        durable = header.durable_end <= header.first_sequence
        require(plain, page.path, at + 4, "the immutable block is not a plain block of records")
        require(header.raw_crc == crc32c(block.raw), page.path, at + 16, "the immutable block has another body")
        require(holds, page.path, at + 20, "the immutable block does not hold what its word says")
        require(begins, page.path, at + 32, "the immutable block does not begin as its slot and body do")
        require(latest_us <= header.max_timestamp_us, page.path, at + 48, f"a record is of {latest_us} us")
        require(durable, page.path, at + 64, "durable_end is beyond the immutable block's beginning")
        follows = (page.slot.segment, page.slot.offset, page.slot.first_sequence) == block.end
        slot_at = PAGE_SLOTS_AT + SLOT.size * (page.generation & 1)
        require(follows, page.path, slot_at, "the open block does not begin where the immutable one ends")
        self.require_previous_offset(page.slot, slot.offset)
        return block

    def salvaged(self, end: tuple[int, int, int]) -> OpenBlock | None:
        """Whose slot is intact and begins there, with a whole body."""
        assert self.page is not None
        for slot in self.page.slots:
            if slot.problem is None and (slot.segment, slot.offset, slot.first_sequence) == end:
                block, _ = self.block_in(self.page, slot)
                if block is not None:
                    return block
        return None

    def longer_than_last(self) -> OpenBlock | None:
        """The body of the last block's place, if that block has the first of its records only: it takes its place."""
        last = self.contents.segments[-1]
        block = last.blocks[-1]
        synced = (block.segment, block.offset) < synced_mark_of(self.contents)[:2]
        if synced or block.kind == STATE or block.has_state:
            return None
        found, raw = self.salvaged((block.segment, block.offset, block.first_sequence)), raw_body(block)
        longer = found is not None and len(found.raw) > len(raw) and found.raw.startswith(raw)
        if found is None or not longer or found.base_time_us != block.base_time_us:
            return None
        last.blocks.pop()
        last.end_offset, last.end_sequence = block.offset, block.first_sequence
        self.note_end()
        return found

    def block_in(self, page: Page, slot: Slot) -> tuple[OpenBlock | None, str | None]:
        """The block whose slot this is, or what is wrong with its body. Neither where it is empty."""
        parity = slot.generation & 1
        body = page.body(parity, slot.used)
        fits = slot.used == 0 or BASE_BYTES < slot.used == len(body) <= slot.capacity
        if not fits or crc32c(body) != slot.body_crc:
            return None, "the body is not what the word says"
        if not slot.used:
            return None, None
        (base_us,) = struct.unpack_from("<q", body)
        place = (slot.segment, slot.offset, slot.first_sequence, slot.capacity)
        found = OpenBlock(page.path, *place, base_us, 0, body[BASE_BYTES:], page.body_at(parity))
        return found._replace(record_count=len(decode_open(found)[0])), None

    def add_direct_block(self) -> None:
        """Whole at its place though nobody has published it: the next to take the lock will."""
        last = self.contents.segments[-1]
        try:
            block = block_at(File(last.path), self.uuid, last.first_sequence, last.end_offset, whole=True)
        except OracleError:
            return
        if block.first_sequence == last.end_sequence:
            last.blocks.append(block)
            last.end_offset, last.end_sequence = block.end_offset, last.end_sequence + block.record_count
            self.note_end()


def begins_whole(path: str, uuid: bytes) -> bool:
    """Returns whether a segment exists: its header and its first block."""
    try:
        header = read_segment_header(path, uuid)
        block_at(File(path), uuid, header.first_sequence, SEGMENT_HEADER.size, whole=True)
    except OracleError:
        return False
    return True


def durable_end_at(file: File, uuid: bytes, segment: int, offset: int) -> int:
    """Returns the synced end that a whole block at this place has noted; 0 without one."""
    try:
        return block_at(file, uuid, segment, offset, whole=True).durable_end
    except OracleError:
        return 0


def read_segment_header(path: str, uuid: bytes) -> Segment:
    image = File(path).read(0, SEGMENT_HEADER.size)
    require(len(image) == SEGMENT_HEADER.size, path, 0, "the segment's header is cut off")
    check_structure(path, 0, image, b"JLOGSEG\n", uuid, 16)
    *_, epoch, first, previous, end_offset, end_sequence, created_us, replacements, reserved = SEGMENT_HEADER.unpack(image)
    named = int(os.path.basename(path)[:20])
    require(first == named, path, 40, f"the segment begins with sequence {first}, unlike its name")
    require(not any(reserved), path, 88, "reserved bytes are not 0")
    if previous == NONE:
        require((end_offset, end_sequence) == (0, 0), path, 56, "there is no segment before it, but an end of it")
    else:
        orderly = previous <= end_sequence <= first and previous < first and end_offset > SEGMENT_HEADER.size
        require(orderly, path, 48, "what it says of the segment before cannot be")
    size = os.path.getsize(path)
    return Segment(path, first, epoch, previous, end_offset, end_sequence, created_us, replacements, size)


def load(path: str | os.PathLike[str], *, strict: bool, page: bool = True) -> Contents:
    path = os.fspath(path)
    meta = read_meta(path)
    uuid = bytes.fromhex(meta["uuid"])
    epochs = [(epoch["epoch"], epoch["first_sequence"]) for epoch in meta["epochs"]]
    bounds = read_bounds(path, uuid, strict)  # first, since the mark only grows
    contents = Contents(path, uuid, epochs, meta["options"], bounds, read_page(path, uuid))
    if contents.page is not None and not page:
        slot = contents.page.slot
        contents.page.current &= slot.problem is None and slot.generation == contents.page.generation
    Walk(contents).run()
    for segment in contents.segments:
        gap = Gap(max(segment.previous_end_sequence, contents.first_sequence), segment.first_sequence)
        if gap.first_sequence < gap.next_sequence:
            contents.gaps.append(gap)
    contents.leftovers += [os.path.join(path, name) for name in sorted(os.listdir(path)) if not NAMES.fullmatch(name)]
    contents.subscribers = read_positions(path, "subscribers", uuid, strict)
    contents.checkpoints = read_positions(path, "checkpoints", uuid, strict)
    work = os.path.join(path, "work")
    names = sorted(os.listdir(work)) if os.path.isdir(work) else []
    contents.leftovers += [os.path.join(work, name) for name in names if not is_work(name, contents.subscribers)]
    return contents


def is_work(name: str, subscribers: Iterable[str]) -> bool:
    """Whether it is one of the two files of a shared subscriber, or what a killed process left of the second one, which the
    next one replaces."""
    subscriber, _, kind = name.removeprefix(".").rpartition(".")
    return kind in ("window", "work") and subscriber in subscribers


def apply_changes(state: dict[bytes, bytes], changes: list[Change]) -> None:
    for key, value in changes:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def read_journal(path: str | os.PathLike[str]) -> Contents:
    """All that the journal holds, records included, as a reader would see it now."""
    contents = load(path, strict=False)
    for block in contents.segments[-1].blocks:
        if block.has_state:
            apply_changes(contents.state, decode_block(block)[1])
    _ = contents.records
    return contents


# --- Checking ----------------------------------------------------------------------------------------------------


def check_journal(
    path: str | os.PathLike[str], max_bytes: int = 64 << 20, *, indexes: bool = True, page: bool = True
) -> Contents | None:
    """Raises OracleError at the first thing that the format does not allow. With more than `max_bytes` of bodies only
    the headers and a sample of the blocks are looked at, and None is returned. `indexes=False` ignores index files,
    which a power loss may leave wrong; with `page=False` the control page may be damaged, and is not current then."""
    contents = load(path, strict=True, page=page)
    if page:
        check_capacity(contents)
    blocks = contents.blocks
    sample = sum(block.raw_bytes for block in blocks) > max_bytes
    check_segments(contents)
    check_bounds(contents)
    check_positions(contents)
    if sample:
        check_sample(blocks)
        return None
    check_blocks(contents)
    if indexes:
        for segment in contents.segments[:-1]:
            check_index(contents, segment)
    return contents


def check_segments(contents: Contents) -> None:
    numbers = [number for number, _ in contents.epochs]
    newest = 0
    for segment in contents.segments:
        path = segment.path
        require(
            segment.epoch in numbers[newest:],
            path,
            32,
            f"epoch {segment.epoch} is not, or no longer, in force",
        )
        newest = numbers.index(segment.epoch)
        require(segment.first_sequence >= contents.epochs[newest][1], path, 32, "its epoch began after it")
        for block in segment.blocks:
            durable = block.durable_end <= block.first_sequence
            require(durable, path, block.offset + 64, "durable_end is beyond the block's beginning")
            timeless = block.record_count or block.max_timestamp_us == NO_TIME
            require(timeless, path, block.offset + 48, "without records it has a latest time")
            require(block.raw_bytes or block.kind == STATE, path, block.offset, "a block of records is empty")


AHEAD_US = 300_000_000


class Clock:
    """The clock's timestamps, which never run backwards within a segment, and each block's own promises. A segment may begin
    earlier where the newest time was more than 5 minutes ahead of the clock."""

    def __init__(self) -> None:
        self.latest_us = NO_TIME

    def begin_segment(self, first_us: int | None) -> None:
        if first_us is not None and first_us < self.latest_us - AHEAD_US:
            self.latest_us = first_us

    def check(self, where: Block | OpenBlock, records: list[Record]) -> None:
        for record in records:
            if not record.explicit:
                if record.timestamp_us < self.latest_us:
                    back = f"record {record.sequence} is of {record.timestamp_us} us, one before of {self.latest_us}"
                    raise OracleError(where.path, where.offset, f"the clock ran backwards: {back}")
                self.latest_us = record.timestamp_us

    def check_block(self, block: Block, records: list[Record], changes: list[Change]) -> None:
        path, offset = block.path, block.offset
        counted = len(records) == block.record_count
        require(counted, path, offset + 20, f"there are {len(records)} records, not {block.record_count}")
        told = bool(changes) == block.has_state
        require(told, path, offset + 6, "HAS_STATE does not say whether there are state records")
        latest_us = max((record.timestamp_us for record in records), default=NO_TIME)
        require(latest_us <= block.max_timestamp_us, path, offset + 48, f"a record is of {latest_us} us")
        earliest_us = min((record.timestamp_us for record in records), default=LAST_TIME)
        stated = block.flags & EARLIEST == 0 or (records and earliest_us >= block.earliest_us)
        require(stated, path, offset + 6, f"a record is of {earliest_us} us, before what EARLIEST says")
        if block.kind == STATE:
            keys = {key for key, value in changes if value is not None}
            require(len(keys) == len(changes), path, offset, "a STATE block deletes a key, or has one twice")
        self.check(block, records)


def check_blocks(contents: Contents) -> None:
    clock, state = Clock(), contents.state
    for segment in contents.segments:
        file = File(segment.path)
        clock.begin_segment(segment.blocks[0].clock_us if segment.blocks else None)
        for block in segment.blocks:
            records, changes = decode_block(block, file)
            clock.check_block(block, records, changes)
            if block.kind == STATE:
                # In a hole may have been lost what changed it, and in a file that was replaced it stood.
                told = (
                    segment is contents.segments[0]
                    or segment.previous_end_sequence < segment.first_sequence
                    or segment.replacements > 0
                )
                agrees = told or state == dict(changes)
                require(
                    agrees,
                    block.path,
                    block.offset,
                    "the state at the segment's head is not what came before",
                )
                state.clear()
            apply_changes(state, changes)
            size = sum(len(key) + len(value) for key, value in state.items())
            require(size <= STATE_BYTES_MAX, block.path, block.offset, f"the live state has {size} bytes")
    for block in contents.unwritten_blocks:
        records, changes = decode_open(block)
        require(not changes, block.path, block.body_at, "there is state in the pre-commit buffer")
        clock.check(block, records)


def check_capacity(contents: Contents) -> None:
    for block in contents.unwritten_blocks:
        fits = contents.page is not None and BASE_BYTES + len(block.raw) <= contents.page.capacity
        require(fits, block.path, 64, "a body has more bytes than the capacity")


def check_sample(blocks: list[Block]) -> None:
    """The first and last few, and some 64 between."""
    clock, step = Clock(), max(1, len(blocks) // 64)
    for i, block in enumerate(blocks):
        if i < 8 or i >= len(blocks) - 8 or i % step == 0:
            clock.check_block(block, *decode_block(block))


def check_bounds(contents: Contents) -> None:
    path, bounds, page = os.path.join(contents.path, "bounds"), contents.bounds, contents.page
    end, next_sequence = contents.end, contents.next_sequence
    first, reservation, closed = bounds.first_sequence, bounds.reservation_limit, bounds.closed
    require(first <= next_sequence, path, 40, f"first_sequence {first} is beyond the end {next_sequence}")
    require(reservation >= next_sequence, path, 72, f"the end {next_sequence} is beyond the reservation {reservation}")
    if closed is not None:
        # The next opening may have begun a segment there, and be killed before it took the note away.
        at_end = closed[2] == next_sequence and closed <= end
        # Or after a gap, and be killed before it noted that.
        last = contents.segments[-1]
        agrees = at_end or (next_sequence == last.first_sequence and closed[2] == last.previous_end_sequence)
        require(agrees, path, 80, f"the closed end {closed} is not where the journal ends, {end}")
    check_mark(contents, path)
    if page and page.current:
        require(page.reservation_limit <= reservation, page.path, PAGE_RESERVATION_AT, "the page reserves more than bounds")
        require(page.durable_end <= end[2], page.path, PAGE_DURABLE_AT, "durable_end is beyond the last block")


def synced_mark_of(contents: Contents) -> tuple[int, int, int]:
    """In a segment without records it may be a place in a file that had the name before."""
    segment, _, sequence = mark = contents.bounds.mark
    replaced = {found.first_sequence for found in contents.segments if found.replacements}
    return (segment, 0, sequence) if sequence == segment and segment in replaced else mark


def check_mark(contents: Contents, path: str) -> None:
    segment, offset, sequence = mark = synced_mark_of(contents)
    require(mark <= contents.end and sequence <= contents.end[2], path, 48, f"the mark {mark} is beyond the end")
    for found in contents.segments:
        if found.first_sequence == segment:
            places = {(block.offset, block.first_sequence) for block in found.blocks}
            places |= {(0, segment), (found.end_offset, found.end_sequence)}
            require((offset, sequence) in places, path, 48, f"no block begins or ends at the mark {mark}")
            return
    require(sequence <= contents.first_sequence, path, 48, f"the mark {mark} is in no segment")


def check_positions(contents: Contents) -> None:
    # Numbers that a power loss took are below the reservation until the next writer opens.
    current = contents.page is not None and contents.page.current
    limit = contents.next_sequence if current else max(contents.next_sequence, contents.bounds.reservation_limit)
    numbers = [number for number, _ in contents.epochs]
    for file, position in contents.positions.items():
        path, name = os.path.join(contents.path, file), file.partition("/")[2]
        control = any(unicodedata.category(letter) == "Cc" for letter in name)
        allowed = len(name.encode()) <= 200 and not control and not name.isdigit() and name not in ("begin", "end")
        require(allowed, path, 0, "no subscriber or checkpoint may have this name")
        require(position.epoch in numbers, path, 40, f"epoch {position.epoch} is not in journal.meta")
        require(position.sequence <= limit, path, 48, f"position {position.sequence} is beyond the end {limit}")


def check_index(contents: Contents, segment: Segment) -> None:
    path = f"{segment.path[:-4]}.idx"
    if not os.path.exists(path):
        return
    image = read_file(path)
    require(len(image) >= INDEX_HEADER.size, path, 0, "the index is cut off")
    check_structure(path, 0, image, b"JLOGIDX\n", contents.uuid, 16)
    *_, named, count = INDEX_HEADER.unpack_from(image)
    require(named == segment.first_sequence, path, 32, "the index is another segment's")
    sizes = [INDEX_HEADER.size + count * (INDEX_ENTRY.size + more) for more in (0, 8)]
    require(count >= 2 and len(image) in sizes, path, 40, f"{len(image)} bytes are not {count} entries")
    *entries, last = INDEX_ENTRY.iter_unpack(image[INDEX_HEADER.size : sizes[0]])
    earliest = [time_us for (time_us,) in struct.iter_unpack("<q", image[sizes[0] :])]
    latest_us, before = NO_TIME, {}
    for block in segment.blocks:
        before[block.offset] = (block.first_sequence, latest_us)
        latest_us = max(latest_us, block.max_timestamp_us)
    begin = next((block for block in segment.blocks if block.kind == RECORDS), segment.blocks[0])
    require(
        entries[0][1] == begin.offset,
        path,
        INDEX_HEADER.size,
        "the first entry is not the first block of records",
    )
    offset = -INDEX_EVERY_BYTES
    for i, (first, following, time_us) in enumerate(entries):
        at = INDEX_HEADER.size + i * INDEX_ENTRY.size
        found = before.get(following, "that there is no block")
        wanted = f"entry {i} says {(first, time_us)} of byte {following}, the segment {found}"
        require(found == (first, time_us), path, at, wanted)
        require(following - offset >= INDEX_EVERY_BYTES, path, at, f"entry {i} is too near the one before it")
        offset = following
    end = (segment.end_sequence, segment.end_offset, latest_us)
    require(last == end, path, sizes[0] - INDEX_ENTRY.size, f"the last entry is {last}, the segment's end {end}")
    for (_, following, _), time_us in zip([*entries, last], earliest, strict=False):
        later = [block.earliest_us for block in segment.blocks if block.record_count and block.offset >= following]
        wanted = min(later, default=LAST_TIME)
        require(time_us == wanted, path, sizes[0], f"of byte {following} on it says {time_us}, the blocks {wanted}")


# --- As a program ------------------------------------------------------------------------------------------------


def summary(contents: Contents) -> str:
    unwritten = sum(block.record_count for block in contents.unwritten_blocks)
    lines = [
        f"journal      {contents.path}",
        f"uuid         {contents.uuid.hex()}",
        f"sequences    {contents.first_sequence} to {contents.next_sequence}, {unwritten} in the buffer",
        f"blocks       {len(contents.blocks)} in {len(contents.segments)} segments",
        f"holes        {[tuple(gap) for gap in contents.gaps]}",
        f"state        {contents.state}",
        f"bounds       {contents.bounds}",
        *(f"{name:<12} {position.sequence}" for name, position in contents.positions.items()),
        *(f"left over    {path}" for path in contents.leftovers),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.oracle JOURNAL\n")
        return 2
    try:
        contents = check_journal(arguments[0], max_bytes=1 << 62)
    except OracleError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    assert contents is not None
    sys.stdout.write(summary(contents))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

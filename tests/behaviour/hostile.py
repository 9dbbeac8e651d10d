"""Files of a journal as an attacker makes them: any number in any field, under a right checksum."""

from __future__ import annotations

import json
import multiprocessing
import resource
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import google_crc32c

import jlog
import oracle
from crash.tampering import change

# Where the fields lie in each structure.
SEGMENT_HEADER = {
    "version": 8, "uuid": 16, "epoch": 32, "first_sequence": 40, "previous_segment": 48, "previous_end_offset": 56,
    "previous_end_sequence": 64,
}  # fmt: skip
BOUNDS = {
    "generation": 16, "uuid": 24, "first_sequence": 40, "mark_segment": 48, "mark_offset": 56, "mark_sequence": 64,
    "reservation_limit": 72, "closed_segment": 80, "closed_offset": 88, "closed_sequence": 96,
}  # fmt: skip
POSITION = {"generation": 16, "uuid": 24, "epoch": 40, "sequence": 48, "moved_us": 56}
INDEX = {"uuid": 16, "segment": 32, "entry_count": 40}
SLOT = {"generation": 0, "segment": 8, "offset": 16, "first_sequence": 24, "previous_offset": 32}
FIRST_BLOCK = oracle.SEGMENT_HEADER.size
SOME_TIME = datetime(2024, 1, 1, tzinfo=timezone.utc)
# More than what the tests' process has, and by far less than a sparse file of a terabyte says.
MEMORY_BYTES = 1 << 30


class Harm(Exception):
    """An effect that no file may have on a process that uses it."""


def crc32c(data: bytes) -> int:
    return int(google_crc32c.value(data))


def seal(path: Path, offset: int, size: int) -> None:
    """Makes the CRC right of the structure that stands there."""
    content = path.read_bytes()[offset : offset + size]
    change(path, offset + 12, struct.pack("<I", oracle.structure_crc(content)))


def set_fields(path: Path, offset: int, size: int, places: dict[str, int], **fields: int | bytes) -> None:
    """Changes fields of the structure at `offset`, whose CRC is right again then."""
    for name, value in fields.items():
        packed = value if isinstance(value, bytes) else struct.pack("<Q", value & (2**64 - 1))
        change(path, offset + places[name], packed)
    seal(path, offset, size)


def set_segment_header(path: Path, **fields: int | bytes) -> None:
    set_fields(path, 0, oracle.SEGMENT_HEADER.size, SEGMENT_HEADER, **fields)


def set_bounds(journal: Path, **fields: int | bytes) -> None:
    for at in (0, oracle.COPY_BYTES):
        set_fields(journal / "bounds", at, oracle.BOUNDS.size, BOUNDS, **fields)


def set_position(path: Path, **fields: int | bytes) -> None:
    for at in (0, oracle.COPY_BYTES):
        set_fields(path, at, oracle.POSITION.size, POSITION, **fields)


def set_index(path: Path, **fields: int | bytes) -> None:
    set_fields(path, 0, path.stat().st_size, INDEX, **fields)


def set_meta(journal: Path, change: Any) -> None:
    """`change`: the text after the first line, or what is to be done to its fields."""
    path = journal / "journal.meta"
    if isinstance(change, bytes):
        body = change
    else:
        fields = json.loads(path.read_bytes().partition(b"\n")[2])
        changed = change(fields)
        body = json.dumps(fields if changed is None else changed).encode()
    path.write_bytes(b"jlog 1 crc32c=%08x\n" % crc32c(body) + body)


def set_slot(journal: Path, parity: int, *, capacity: int | None = None, word: int | None = None, **fields: int) -> None:
    """A slot of the control page, whose CRC is right again then."""
    path = journal / "precommit"
    at = oracle.PAGE_SLOTS_AT + 64 * parity
    for name, value in fields.items():
        change(path, at + SLOT[name], struct.pack("<Q", value & (2**64 - 1)))
    if capacity is not None:
        change(path, at + 40, struct.pack("<I", capacity))
    if word is not None:
        change(path, at + 48, struct.pack("<Q", word))
    content = path.read_bytes()
    change(path, at + 44, struct.pack("<I", crc32c(content[16:32] + content[at : at + 44])))


class Block:
    """A block of a segment file: its header's fields by name, and its stored body."""

    FIELDS = (
        "magic", "kind", "codec", "flags", "header_crc", "stored_crc", "raw_crc", "record_count", "stored_bytes", "raw_bytes",
        "first_sequence", "base_time_us", "max_timestamp_us", "clock_us", "durable_end",
    )  # fmt: skip

    def __init__(self, path: Path, offset: int) -> None:
        content = path.read_bytes()
        self.path, self.offset = path, offset
        self.fields: dict[str, int] = dict(zip(self.FIELDS, oracle.BLOCK_HEADER.unpack_from(content, offset), strict=True))
        begin = offset + oracle.BLOCK_HEADER.size
        self.body = content[begin : begin + self.fields["stored_bytes"]]

    @property
    def end(self) -> int:
        return self.offset + oracle.BLOCK_HEADER.size + self.fields["stored_bytes"]

    def encode(self, **fields: int) -> bytes:
        """Header and body, with all checksums right."""
        found = {**self.fields, "stored_crc": crc32c(self.body), **fields}
        if found["codec"] == 0:
            found["raw_crc"] = found["stored_crc"]
        found["header_crc"] = 0
        content = self.path.read_bytes()
        header = oracle.BLOCK_HEADER.pack(*found.values())
        place = content[16:32] + struct.pack("<QQ", int(self.path.stem), self.offset)
        found["header_crc"] = crc32c(place + header)
        return oracle.BLOCK_HEADER.pack(*found.values()) + self.body

    def put(self, **fields: int) -> None:
        """Writes it to its place. Its sizes are those of its body."""
        if len(self.body) != self.fields["stored_bytes"]:
            sizes = {"stored_bytes": len(self.body)}
            if self.fields["codec"] == 0:
                sizes["raw_bytes"] = len(self.body)
            fields = {**sizes, **fields}
        change(self.path, self.offset, self.encode(**fields))


def blocks(path: Path) -> Iterator[Block]:
    offset, size = FIRST_BLOCK, path.stat().st_size
    while offset + oracle.BLOCK_HEADER.size <= size and path.read_bytes()[offset : offset + 4] == oracle.BLOCK_MAGIC:
        block = Block(path, offset)
        yield block
        offset = block.end


def segments(journal: Path) -> list[Path]:
    return sorted(journal.glob("*.seg"))


def every_way_in(path: Path, copy_to: Path) -> dict[str, Any]:
    """The calls that users may make on a journal that somebody sent them, by name; writing comes last."""

    def read(**arguments: Any) -> Any:
        with jlog.Reader(path, **arguments) as reader:
            return list(reader)

    def reader_calls(call: Any, **arguments: Any) -> Any:
        with jlog.Reader(path, **arguments) as reader:
            return call(reader)

    def read_all(reader: Any) -> int:
        found = 0
        while batch := reader.read():
            found += len(list(batch))
        return found

    def append() -> None:
        with jlog.Writer(path, create=False, lock_timeout=100) as writer:
            writer.append(b"more")
            writer.extend([b"much"] * 100, state={b"key": b"value"})
            writer.flush()
            writer.sync()

    def each_block() -> int:
        return sum(1 for _ in jlog.Journal(path).blocks())

    def times() -> list[Any]:
        return [
            (segment.written_us, segment.first_timestamp_us, segment.last_timestamp_us)
            for segment in jlog.Journal(path).segments()
        ]

    return {
        "iterate": read,
        "values": lambda: reader_calls(lambda reader: list(reader.values())),
        "read": lambda: reader_calls(read_all),
        "read at the end": lambda: reader_calls(lambda reader: reader.read(), start="end"),
        "read backward": lambda: reader_calls(lambda reader: reader.read_backward(3), start="end"),
        "arrow": lambda: reader_calls(lambda reader: [len(batch) for batch in reader.record_batches()]),
        "seek": lambda: reader_calls(lambda reader: reader.seek(3)),
        "follow": lambda: reader_calls(lambda reader: list(reader.follow(timeout=0))),
        "durable": lambda: read(durable_only=True),
        "subscriber": lambda: read(name="billing"),
        "checkpoint": lambda: read(start="noon"),
        "len": lambda: len(jlog.Journal(path)),
        "info": lambda: jlog.Journal(path).info(),
        "stats": lambda: jlog.Journal(path).stats(),
        "segments": times,
        "blocks": each_block,
        "state": lambda: jlog.Journal(path).state(),
        "holes": lambda: jlog.Journal(path).gaps(),
        "find": lambda: jlog.Journal(path).find(SOME_TIME),
        "verify": lambda: jlog.Journal(path).verify(),
        "clean": lambda: jlog.Journal(path).clean(dry_run=True),
        "backup": lambda: jlog.Journal(path).backup(copy_to),
        "dry repair": lambda: jlog.Journal.repair_at(path, dry_run=True),
        "append": append,
        "repair": lambda: jlog.Journal.repair_at(path),
        "append again": append,
    }


def _call(ways: dict[str, Callable[[], Any]], file_bytes: int | None, results: Any) -> None:
    """In a process of its own, with little memory: the name of what it begins with, then what came of it."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    for name, way in ways.items():
        results.send((name, None))
        try:
            found = way()
            results.send((name, ("returned", repr(found)[:200])))
        except (jlog.JournalError, OSError) as error:
            results.send((name, (type(error).__name__, str(error))))
        except Exception:  # noqa: BLE001 - which is what does harm
            results.send((name, ("other", traceback.format_exc())))
    results.send(None)


def outcomes(
    ways: dict[str, Callable[[], Any]], *, seconds: float = 60, file_bytes: int | None = None
) -> dict[str, tuple[str, str]]:
    """Returns the result of each call, in a process that writes no file beyond `file_bytes`. Harm where one ends it by a
    signal, does not come back, or raises an error that is not one of the journal or the operating system."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_call, args=(ways, file_bytes, sending))
    process.start()
    sending.close()
    found: dict[str, tuple[str, str]] = {}
    at = "the beginning"
    deadline = time.monotonic() + seconds
    try:
        while True:
            if not receiving.poll(max(0, deadline - time.monotonic())):
                raise Harm(f"{at} does not come back")
            message = receiving.recv()
            if message is None:
                break
            at, outcome = message
            if outcome is not None:
                found[at] = outcome
    except EOFError:
        process.join()
        raise Harm(f"{at}: the process ended with {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    others = {name: told for name, (kind, told) in found.items() if kind == "other"}
    if others:
        raise Harm("\n".join(f"{name}: {told}" for name, told in others.items()))
    return found

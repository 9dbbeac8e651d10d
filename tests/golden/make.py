"""Writes the golden journals of the format version that the installed jlog has, and what they hold: a version that has
been released is never made again, for its journals must stay readable as they are.

    python tests/golden/make.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import jlog
from jlog._core.format.constants import SEGMENT_VERSION

HERE = Path(__file__).parent
SMALL: dict[str, Any] = {"precommit": 4 << 10, "segment_bytes": 4 << 10}


def write(path: Path) -> jlog.Writer:
    """Every form of a record, state, positions, a cleaned segment, sealed ones with their indexes, and a buffer with
    records in it. The writer is left open."""
    writer = jlog.Writer(path, **SMALL)
    jlog.Journal(path).add_subscriber("billing")
    writer.extend([b"cleaned"] * 3, state={b"source": b"17", b"gone": b"x"})
    writer.roll()
    with jlog.Reader(path, "billing") as reader:
        list(reader)
        reader.commit()
    writer.append(b"plain")
    writer.append(b"")
    writer.append(None, key=b"tombstone")
    writer.append(bytes(range(256)), key=b"", headers=[("trace", b"1"), ("trace", None), ("größe", b"")])
    writer.append(b"before 1970", timestamp_us=-1)
    writer.append(b"far", timestamp_us=(1 << 63) - 1)
    writer.append(b"large " * 1000)
    writer.extend([b"a", b"b"], keys=[b"k", None], state={b"gone": None, b"": b"empty key"})
    writer.roll()
    writer.extend([b"%d" % number for number in range(20)], timestamps_us=range(1000, 1020))
    with jlog.Reader(path, "shipping", start=6) as reader:
        reader.checkpoint("before-batch")
        reader.read(max_records=3)
        reader.commit()
    writer.flush()
    writer.append(b"in the buffer", headers=[("h", b"v")])
    return writer


def killed(path: Path) -> None:
    child = os.fork()
    if child == 0:
        _writer = write(path)  # held, for one that is forgotten closes
        os._exit(0)
    os.waitpid(child, 0)
    for segment in path.glob("*.seg"):  # what is preallocated is zeros
        content = segment.read_bytes()
        os.truncate(segment, len(content.rstrip(b"\0")))


def text(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def described(path: Path) -> dict[str, Any]:
    journal = jlog.Journal(path)
    with jlog.Reader(path) as reader:
        records = [
            [
                record.sequence,
                record.timestamp_us,
                text(record.key),
                text(record.value),
                [[name, text(value)] for name, value in record.headers],
            ]
            for record in reader
        ]
    return {
        "uuid": journal.uuid,
        "first_sequence": journal.first_sequence,
        "next_sequence": journal.next_sequence,
        "segments": [segment.first_sequence for segment in journal.segments()],
        "state": {key.hex(): value.hex() for key, value in sorted(journal.state().items())},
        "subscribers": {name: position.sequence for name, position in journal.subscribers().items()},
        "checkpoints": {name: position.sequence for name, position in journal.checkpoints().items()},
        "records": records,
    }


def main() -> None:
    target = HERE / f"format-{SEGMENT_VERSION}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    write(target / "closed").close()
    killed(target / "killed")
    for name in ("closed", "killed"):
        expected = json.dumps(described(target / name), indent=1, ensure_ascii=False)
        (target / f"{name}.json").write_text(expected + "\n", encoding="utf-8")
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()

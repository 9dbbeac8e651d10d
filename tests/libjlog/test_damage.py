"""Every intact message of a damaged journal is imported, and every damaged place is told."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import exhaustive
from cli.command import run
from crash.tampering import change
from jlog._core.records.libjlog import Messages
from libjlog.clib import BEGIN_SECONDS, LZ4, PLAIN, CWriter, message, numbered, offsets, write_index
from libjlog.conftest import contents, import_all, import_quietly, subscribers, values

COUNT = 200
ENDINGS = [pytest.param(True, id="closed"), pytest.param(False, id="newest")]


def fill(source: Path, special: dict[int, bytes] | None = None, *, magic: int = PLAIN, closed: bool = True) -> list[bytes]:
    """Writes messages into one segment, and returns them."""
    writer = CWriter(source, magic=magic)
    found = [(special or {}).get(number, numbered(number)) for number in range(COUNT)]
    for number, value in enumerate(found):
        writer.write(value, BEGIN_SECONDS + number)
    if closed:
        writer.roll()
        writer.write(b"of the next segment", BEGIN_SECONDS + COUNT)
        found.append(b"of the next segment")
    return found


def overwrite(source: Path, at: int, content: bytes) -> None:
    change(source / "00000000", at, content)


def without(found: list[bytes], *numbers: int) -> list[bytes]:
    return [value for number, value in enumerate(found) if number not in numbers]


@pytest.mark.parametrize("closed", ENDINGS)
@pytest.mark.parametrize("magic", [PLAIN, LZ4])
@pytest.mark.parametrize("content", [bytes(4), bytes(16), b"\xff" * 16, b"\xff" * 4])
@pytest.mark.parametrize("number", [0, 1, 77, COUNT - 1])
def test_a_destroyed_header_costs_its_message_alone(
    number: int, content: bytes, magic: int, closed: bool, source: Path, journal: Path
) -> None:
    found = fill(source, magic=magic, closed=closed)
    at = offsets(source / "00000000")[number]
    overwrite(source, at, content)
    told = import_all(source, journal)
    assert values(journal) == without(found, number)
    assert len(told.damage) == 1
    assert told.damage[0].startswith(f"{source}/00000000: offset {at}: ")


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("numbers", [(10, 11), (10, 12), (10, 11, 12), (0, 2, 4), (50, 100, 150, 199), tuple(range(0, 200, 3))])
def test_each_of_many_damaged_places_is_told_and_all_between_them_is_imported(
    numbers: tuple[int, ...], indexed: bool, source: Path, journal: Path
) -> None:
    found = fill(source)
    places = offsets(source / "00000000")
    if indexed:
        write_index(source / "00000000")
    for number in numbers:
        overwrite(source, places[number], b"\xff" * 16)
    told = import_all(source, journal)
    assert values(journal) == without(found, *numbers)
    # Neighbours are one place.
    assert len(told.damage) == sum(1 for number in numbers if number - 1 not in numbers)


@pytest.mark.parametrize("length", [0, 5, 1 << 16, (1 << 31) + 7, (1 << 32) - 1])
@pytest.mark.parametrize("closed", ENDINGS)
def test_a_message_with_a_wrong_length_does_not_take_others_along(
    length: int, closed: bool, source: Path, journal: Path
) -> None:
    found = fill(source, {77: b"w" * 90}, closed=closed)
    overwrite(source, offsets(source / "00000000")[77] + 12, length.to_bytes(4, "little"))
    told = import_all(source, journal)
    assert len(told.damage) == 1
    read = values(journal)
    assert without(found, 77) == [value for value in read if value in found and value != found[77]]
    assert len(read) <= len(found)  # a shorter one cannot be told from a message: nothing has a checksum


def nested(count: int, *, seconds: int = BEGIN_SECONDS) -> bytes:
    """A payload with whole messages in it, as of somebody who keeps segments of libjlog in a journal of libjlog."""
    return (
        b"junk"
        + b"".join(message(PLAIN, "<", b"false %d" % number, seconds) for number in range(count))
        + b"the rest of it" * 3
    )


@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.parametrize("closed", ENDINGS)
def test_messages_inside_of_a_payload_are_not_believed(count: int, closed: bool, source: Path, journal: Path) -> None:
    special = {77: nested(count), 78: nested(count, seconds=BEGIN_SECONDS + 78)[4:]}
    found = fill(source, special, closed=closed)
    import_quietly(source, journal)
    assert values(journal) == found
    at = offsets(source / "00000000")[77]
    for damage in (bytes(4), b"\xff" * 4, bytes(16), b"\xff" * 20):
        shutil.rmtree(journal)
        overwrite(source, at, damage)
        told = import_all(source, journal)
        assert len(told.damage) == 1
        assert values(journal) == without(found, 77)


@pytest.mark.parametrize("count", [1, 2, 20])
def test_the_index_tells_false_messages_from_true_ones_whatever_their_times_are(
    count: int, source: Path, journal: Path
) -> None:
    found = fill(source, {77: nested(count, seconds=BEGIN_SECONDS + 77)})
    write_index(source / "00000000")
    overwrite(source, offsets(source / "00000000")[77], b"\xff" * 16)
    import_all(source, journal)
    assert values(journal) == without(found, 77)


def test_a_message_that_lz4_cannot_decompress_is_damage_and_the_next_one_is_not(source: Path, journal: Path) -> None:
    found = fill(source, {77: b"compressible" * 20}, magic=LZ4)
    at = offsets(source / "00000000")[77]
    overwrite(source, at + 20, b"\xff" * 10)
    told = import_all(source, journal)
    assert values(journal) == without(found, 77)
    size = offsets(source / "00000000")[78] - at
    reason = "a message cannot be decompressed to the 240 bytes that it states"
    assert told.damage == [f"{source}/00000000: offset {at}: {reason}; {size} bytes are left out"]


def test_two_neighbours_that_lz4_cannot_decompress_are_two_damaged_places(source: Path, journal: Path) -> None:
    found = fill(source, {77: b"compressible" * 20, 78: b"likewise" * 30, 79: b"and this" * 30}, magic=LZ4)
    places = offsets(source / "00000000")
    for number in (77, 78, 79):
        overwrite(source, places[number] + 20, b"\xff" * 10)
    assert len(import_all(source, journal).damage) == 3
    assert values(journal) == without(found, 77, 78, 79)


def test_a_damaged_place_in_the_buffer_is_told_with_its_offset_in_the_file(source: Path, journal: Path) -> None:
    writer = CWriter(source, precommit=10_000)
    for number in range(20):
        writer.write(numbered(number), BEGIN_SECONDS + number)
    at = 4 + sum(16 + len(numbered(number)) for number in range(7))
    content = (source / "pre_commit").read_bytes()
    (source / "pre_commit").write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    told = import_all(source, journal)
    assert values(journal) == without([numbered(number) for number in range(20)], 7)
    assert told.damage[0].startswith(f"{source}/pre_commit: offset {at}: ")


@pytest.mark.parametrize("size", [10, 100, 400])
@pytest.mark.parametrize("more", [1, 2, 5])
def test_a_message_without_its_body_in_the_buffer_costs_itself_alone(more: int, size: int, source: Path, journal: Path) -> None:
    """A writer that is killed between the two copies leaves a header alone, after which the next writer goes on."""
    writer = CWriter(source, precommit=10_000)
    writer.write(b"before", BEGIN_SECONDS)
    at = writer.used
    writer.write(b"x" * 300, BEGIN_SECONDS + 1)
    writer.used = at + 16
    told = import_all(source, journal)
    assert (told.damage, len(told.notes)) == ([], 1)
    for number in range(more):
        writer.write(b"y" * size, BEGIN_SECONDS + 2 + number)
    told = import_all(source, journal)
    assert values(journal) == [b"before"] + [b"y" * size] * more
    assert len(told.damage) == 1
    writer.flush()
    import_quietly(source, journal)
    assert values(journal) == [b"before"] + [b"y" * size] * more


def test_a_pointer_beyond_the_buffer_is_damage_and_its_messages_are_imported(source: Path, journal: Path) -> None:
    writer = CWriter(source, precommit=200)
    writer.write(b"one", BEGIN_SECONDS)
    writer.used = 0xFFFFFFF0
    told = import_all(source, journal)
    assert values(journal)[0] == b"one"
    assert "bytes more than it has" in told.damage[0]


@pytest.mark.parametrize("marker", [0, 50, 77, 78, 100, 200])
def test_a_subscriber_after_damage_may_read_again_and_never_skips(marker: int, source: Path, journal: Path) -> None:
    found = fill(source)
    CWriter(source).subscribe(b"one", 0, marker)
    overwrite(source, offsets(source / "00000000")[77], b"\xff" * 16)
    import_all(source, journal)
    at = subscribers(journal)["one"]
    assert at <= marker - (marker > 77)  # one of the messages that it has read is lost
    if marker <= 77:
        assert at == marker
    assert values(journal) == without(found, 77)


def test_a_subscriber_after_a_damaged_segment_stands_where_it_stood(source: Path, journal: Path) -> None:
    fill(source)
    CWriter(source).subscribe(b"one", 1, 1)
    overwrite(source, offsets(source / "00000000")[77], b"\xff" * 16)
    import_all(source, journal)
    assert subscribers(journal)["one"] == COUNT


def test_the_command_exits_with_3_and_changes_nothing_in_the_source(source: Path, journal: Path) -> None:
    fill(source)
    overwrite(source, offsets(source / "00000000")[77], b"\xff" * 16)
    before = contents(source)
    result = run("import", source, journal)
    assert (result.code, result.out) == (3, b"%s: 200 records and 0 subscribers imported\n" % bytes(journal))
    assert result.err.startswith(f"jlogtool: {source}/00000000: offset ")
    assert contents(source) == before


@pytest.mark.parametrize("seed", range(exhaustive.count(6, 200)))
def test_random_damage_costs_no_intact_message(seed: int, source: Path, journal: Path) -> None:
    """Headers are overwritten, and the messages after them stay whole."""
    dice = random.Random(seed)
    magic = dice.choice((PLAIN, LZ4))
    found = fill(source, magic=magic, closed=dice.random() < 0.5)
    places = offsets(source / "00000000")
    if dice.random() < 0.3:
        write_index(source / "00000000")
    damaged = dice.sample(range(COUNT), dice.choice((1, 2, 5, 30)))
    for number in damaged:
        overwrite(source, places[number], dice.choice((bytes(16), b"\xff" * 16, dice.randbytes(16), bytes(4))))
    import_all(source, journal)
    assert values(journal) == without(found, *damaged)


def test_a_chain_ends_where_less_than_a_header_is_left() -> None:
    messages = Messages(PLAIN, False, None)
    data = message(PLAIN, "<", b"one", 1) + message(PLAIN, "<", b"two", 2)[:10]
    assert messages.chain(data, 0, 10)[:2] == (19, 1)
    assert messages.header(data, 19) is None

"""docs/format.md: its worked example is the journal that its text says it is, and what the text forbids is refused.

The oracle is written from the document; here both meet bytes that nothing of jlog's wrote."""

import re
import struct
from pathlib import Path

import google_crc32c
import lz4.block
import pytest

import oracle
from oracle import NO_TIME, NONE, Gap, OracleError, Record, check_journal, read_journal

pytestmark = pytest.mark.damage  # what it makes, it hands to the oracle itself
DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"
UUID = bytes.fromhex("00112233445566778899aabbccddeeff")
EPOCH = 0x1122334455667788
SEGMENT = "00000000000000000000.seg"
NOW_US = 1_700_000_000_000_000
END_OFFSET = 320


# --- The worked example ------------------------------------------------------------------------------------------


def example() -> dict[str, str]:
    """The text of each file of the worked example."""
    text = DOCUMENT.read_text().partition("## A worked example")[2]
    return dict(re.findall(r"^`([^`]+)`[^\n]*:\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def dump_lines(text: str) -> list[tuple[int, bytes, str]]:
    found = re.findall(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) *(.*)$", text, re.MULTILINE)
    return [(int(offset, 16), bytes.fromhex(pairs), meaning) for offset, pairs, meaning in found]


def image(text: str) -> bytearray:
    lines = dump_lines(text)
    content = bytearray(lines[-1][0] + len(lines[-1][1]))
    for offset, found, _ in lines:
        content[offset : offset + len(found)] = found
    return content


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The worked example as files."""
    files = example()
    (tmp_path / "journal.meta").write_text(files["journal.meta"])
    copy = image(files["bounds"])
    (tmp_path / "bounds").write_bytes(copy.ljust(4096, b"\0") + copy)
    (tmp_path / SEGMENT).write_bytes(image(files[SEGMENT]))
    (tmp_path / "precommit").write_bytes(image(files["precommit"]).ljust(4096 + 2 * 4096, b"\0"))
    return tmp_path


def test_the_worked_example_is_a_journal_without_fault(journal):
    assert check_journal(journal) is not None


def test_the_worked_example_holds_the_records_of_the_text(journal):
    assert read_journal(journal).records == [
        Record(0, NOW_US, None, b"hello", [], False),
        Record(1, -1, b"k", None, [("n", b"v")], True),
        Record(2, NOW_US + 30, None, b"open", [], False),
    ]


def test_the_worked_example_has_the_state_and_end_of_the_text(journal):
    contents = read_journal(journal)
    assert contents.state == {b"offset": b"42"}
    assert contents.end == (0, END_OFFSET, 2)
    assert contents.next_sequence == 3
    assert contents.open_block is not None
    assert contents.bounds.reservation_limit == 1 << 24
    assert contents.epochs == [(EPOCH, 0)]
    assert contents.uuid == UUID


@pytest.mark.parametrize("name", ["bounds", SEGMENT, "precommit"])
def test_each_line_of_the_worked_example_states_its_bytes(name):
    offset = 0
    for at, found, meaning in dump_lines(example()[name]):
        assert at >= offset
        offset = at + len(found)
        if number := re.search(r" = (-?\w+)$", meaning):
            value = int(number[1], 0)
            assert int.from_bytes(found, "little", signed=value < 0) == value, meaning
        if quoted := re.search(r'"(.*)"', meaning):
            assert found == quoted[1].replace("\\n", "\n").encode(), meaning


@pytest.mark.parametrize("name", ["bounds", SEGMENT])
def test_the_worked_example_shows_every_byte_of_its_files(name):
    offset = 0
    for at, found, _ in dump_lines(example()[name]):
        assert at == offset
        offset += len(found)


@pytest.mark.parametrize(
    ("form", "size"),
    [
        (oracle.SEGMENT_HEADER, 96),
        (oracle.BLOCK_HEADER, 72),
        (oracle.BOUNDS, 128),
        (oracle.POSITION, 64),
        (oracle.INDEX_HEADER, 48),
        (oracle.INDEX_ENTRY, 24),
        (oracle.SLOT, 64),
    ],
)
def test_the_structures_have_the_sizes_that_the_text_gives(form, size):
    assert form.size == size


@pytest.mark.parametrize("name", ["journal.meta", "bounds", SEGMENT])
def test_every_byte_of_the_worked_example_is_under_a_checksum(journal, name):
    path = journal / name
    whole = path.read_bytes()
    covered = set(range(len(whole)))
    if name == "bounds":
        covered -= set(range(128, 4096))  # between the copies
    for offset in covered:
        damaged = bytearray(whole)
        damaged[offset] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(OracleError):
            check_damaged(journal)


def check_damaged(path: Path) -> None:
    """A segment's last block may be torn where nothing says that it was synced: then the buffer no longer fits."""
    contents = check_journal(path)
    assert contents is not None
    if contents.next_sequence != 3:
        raise OracleError(str(path), 0, "records are missing")


# --- A writer, from the document too ------------------------------------------------------------------------------


def crc32c(data: bytes) -> int:
    return google_crc32c.value(bytes(data))


def sealed(structure: bytes) -> bytes:
    """Returns the structure with its CRC, at offset 12."""
    return structure[:12] + struct.pack("<I", crc32c(structure[:12] + bytes(4) + structure[16:])) + structure[16:]


def short(value: bytes, delta_us: int = 0, *, explicit: bool = False) -> bytes:
    return struct.pack("<II", len(value) | explicit << 30, delta_us) + value


def long(tag: int, value: bytes = b"", key: bytes = b"", headers: bytes = b"", time_us: int | None = None) -> bytes:
    absolute = b"" if time_us is None else struct.pack("<q", time_us)
    lengths = struct.pack("<IIIII", tag | 1 << 31, 0, len(value), len(key), len(headers))
    return lengths + absolute + key + headers + value


def state_record(key: bytes, value: bytes | None) -> bytes:
    return long(1 << 29 | 1 << 27 | (value is None) << 28, value or b"", key)


class Image:
    """A segment as it grows."""

    def __init__(self, first: int = 0, previous: tuple[int, int, int] = (NONE, 0, 0), state: bytes = b"") -> None:
        fields = (b"JLOGSEG\n", 1, 0, UUID, EPOCH, first, *previous, NOW_US, bytes(16))
        self.content = sealed(struct.pack("<8sII16sQQQQQq16s", *fields))
        self.first = self.next = first
        self.block(state, 0, kind=2, has_state=bool(state))

    @property
    def end(self) -> tuple[int, int, int]:
        return self.first, len(self.content), self.next

    def block(
        self, raw: bytes, count: int, *, kind: int = 1, has_state: bool = False, compress: bool = False,
        base_us: int = NOW_US, latest_us: int = NOW_US, durable_end: int = 0, first: int | None = None,
    ) -> None:  # fmt: skip
        stored = lz4.block.compress(raw, store_size=False) if compress else raw
        at = self.first, len(self.content), self.next if first is None else first
        self.content += block_header(
            *at, stored, raw, count, kind=kind, codec=compress, has_state=has_state, base_us=base_us,
            latest_us=latest_us, durable_end=durable_end,
        ) + stored  # fmt: skip
        self.next += count

    def write(self, path: Path, tail: bytes = b"") -> None:
        (path / f"{self.first:020d}.seg").write_bytes(self.content + tail)


def write_dual_slot(path: Path, structure: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(sealed(structure).ljust(4096, b"\0") + sealed(structure))


def write_bounds(
    path: Path, *, first: int = 0, mark: tuple[int, int, int] = (0, 0, 0), reservation: int = 1 << 24,
    closed: tuple[int, int, int] = (NONE, NONE, NONE),
) -> None:  # fmt: skip
    fields = (b"JLOGBND\n", 1, 0, 9, UUID, first, *mark, reservation, *closed, bytes(24))
    write_dual_slot(path / "bounds", struct.pack("<8sIIQ16sQQQQQQQQ24s", *fields))


def write_position(path: Path, name: str, sequence: int, epoch: int = EPOCH) -> None:
    write_dual_slot(path / name, struct.pack("<8sIIQ16sQQq", b"JLOGPOS\n", 1, 0, 3, UUID, epoch, sequence, NOW_US))


def block_header(
    segment: int, offset: int, first: int, stored: bytes, raw: bytes, count: int, *, kind: int = 1, codec: int = 0,
    has_state: bool = False, base_us: int = NOW_US, latest_us: int = NOW_US, durable_end: int = 0,
) -> bytes:  # fmt: skip
    header = struct.pack(
        "<IBBHIIIIIIQqqqQ", 0x4B4C424A, kind, codec, has_state, 0, crc32c(stored), crc32c(raw), count,
        len(stored), len(raw), first, base_us, latest_us if count else NO_TIME, NOW_US, durable_end,
    )  # fmt: skip
    crc = crc32c(UUID + struct.pack("<QQ", segment, offset) + header)
    return header[:8] + struct.pack("<I", crc) + header[12:]


def write_page(
    path: Path, place: tuple[int, int, int], records: bytes = b"", *, before: bytes = b"", generation: int = 4,
    direct: int = 0, unwritten: int = 0, current: bool = True, **header: int,
) -> None:  # fmt: skip
    """The page of this boot and this very file, if it is to be current. `place`: of the block before, if there are records
    in `before`: one, or as many as `count` says; else of the open block."""
    name, content = path / "precommit", bytearray(4096 + 2 * 4096)
    name.write_bytes(content)
    found = name.stat()
    inode = found.st_ino + (not current)
    head = (b"JLOGPAGE", oracle.LAYOUT, 1, UUID, oracle.boot_id(), found.st_dev, inode, 4096, 1, 1 << 26)
    struct.pack_into("<8sII16s16sQQQQQ", content, 0, *head)
    struct.pack_into("<Q", content, 256, direct)
    struct.pack_into("<Q", content, 312, unwritten)
    struct.pack_into("<Q", content, 448, generation)
    if before:
        given = {"count": 1, "base_us": NOW_US, **header}
        content[832:904] = block_header(*place, before, before, **given)
        put_block(content, generation - 1, place, before, 0)
        place, previous = (place[0], place[1] + 72 + len(before), place[2] + given["count"]), place[1]
    put_block(content, generation, place, records, previous if before else 0)
    name.write_bytes(content)


def put_block(
    content: bytearray,
    generation: int,
    place: tuple[int, int, int],
    records: bytes,
    previous: int,
) -> None:
    """Its slot, and its body."""
    parity = generation & 1
    body = struct.pack("<q", NOW_US) + records if records else b""
    slot = struct.pack("<QQQQQI", generation, *place, previous, 4096)
    word = crc32c(body) << 32 | len(body)
    slot += struct.pack("<IQQ", crc32c(UUID + slot), word, 0)
    content[512 + 64 * parity : 576 + 64 * parity] = slot
    if body:
        begin = 4096 + 4096 * parity
        content[begin : begin + len(body)] = body


def write_index(path: Path, segment: int, entries: list[tuple[int, int, int]]) -> None:
    content = struct.pack("<8sII16sQQ", b"JLOGIDX\n", 1, 0, UUID, segment, len(entries))
    content += b"".join(struct.pack("<QQq", *entry) for entry in entries)
    (path / f"{segment:020d}.idx").write_bytes(sealed(content))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A directory with what every journal has, but no segment."""
    (tmp_path / "journal.meta").write_text(example()["journal.meta"])
    write_bounds(tmp_path)
    return tmp_path


def values(path: Path) -> list[bytes | None]:
    return [record.value for record in read_journal(path).records]


def refused(path: Path, reason: str) -> None:
    with pytest.raises(OracleError, match=reason):
        check_journal(path)


# --- What the text allows ----------------------------------------------------------------------------------------


def test_a_compressed_block_is_read(empty):
    segment = Image()
    segment.block(short(b"same" * 500) * 20, 20, compress=True)
    segment.write(empty)
    check_journal(empty)
    assert values(empty) == [b"same" * 500] * 20


def test_every_form_of_a_record_is_read(empty):
    segment = Image()
    headers = struct.pack("<II", 1, 2**32 - 1) + b"a" + struct.pack("<II", 0, 0)
    body = short(b"", 7) + short(b"e", 9, explicit=True) + long(1 << 27, b"v", b"", headers)
    segment.block(body + long(1 << 30 | 1 << 26, b"w", time_us=-(2**63)), 4, latest_us=NOW_US + 9)
    segment.write(empty)
    with pytest.raises(OracleError, match="clock ran backwards"):
        check_journal(empty)
    assert read_journal(empty).records == [
        Record(0, NOW_US + 7, None, b"", [], False),
        Record(1, NOW_US + 9, None, b"e", [], True),
        Record(2, NOW_US, b"", b"v", [("a", None), ("", b"")], False),
        Record(3, -(2**63), None, b"w", [], True),
    ]


def test_segments_are_linked_and_the_state_is_carried_over(empty):
    first = Image()
    first.block(short(b"0") + state_record(b"a", b"1") + state_record(b"b", b"2"), 1, has_state=True)
    first.block(state_record(b"a", None) + state_record(b"c", b""), 0, has_state=True)
    second = Image(1, first.end, state_record(b"b", b"2") + state_record(b"c", b""))
    second.block(short(b"1"), 1, durable_end=1)
    first.write(empty)
    second.write(empty, bytes(5000))
    write_index(empty, 0, [(0, 168, NO_TIME), (1, first.end[1], NOW_US)])
    write_position(empty, "subscribers/billing", 2)
    contents = check_journal(empty)
    assert contents is not None
    assert contents.state == {b"b": b"2", b"c": b""}
    assert [record.value for record in contents.records] == [b"0", b"1"]
    assert contents.subscribers["billing"].sequence == 2


def test_a_jump_that_the_header_states_is_a_hole(empty):
    first, second = Image(), Image(100, (0, 96 + 72 * 2 + 9, 1))
    first.block(short(b"0"), 1)
    second.block(short(b"1"), 1)
    first.write(empty)
    second.write(empty)
    contents = check_journal(empty)
    assert contents is not None
    assert contents.gaps == [Gap(1, 100)]
    assert [record.sequence for record in contents.records] == [0, 100]


def test_a_segment_below_what_retention_keeps_is_not_read(empty):
    first, second = Image(), Image(1, (0, 96 + 72 * 2 + 9, 1))
    first.block(short(b"0"), 1)
    second.block(short(b"1"), 1)
    first.write(empty)
    second.write(empty)
    write_bounds(empty, first=1)
    assert values(empty) == [b"1"]
    (empty / SEGMENT).unlink()
    check_journal(empty)
    assert values(empty) == [b"1"]
    write_bounds(empty, first=0)
    refused(empty, "missing")


def test_the_end_is_where_a_current_page_publishes_it(empty):
    segment = Image()
    segment.block(short(b"0"), 1)
    place = segment.end
    segment.block(short(b"killed after its write, before the switch"), 1)
    segment.write(empty, bytes(1000))
    write_page(empty, place, short(b"open"))
    check_journal(empty)
    assert values(empty) == [b"0", b"open"]


def test_a_whole_direct_block_counts_before_it_is_published(empty):
    segment = Image()
    place = segment.end
    segment.block(short(b"direct"), 1)
    segment.write(empty)
    write_page(empty, place, direct=4)
    check_journal(empty)
    assert values(empty) == [b"direct"]
    write_page(empty, place, direct=2)
    assert values(empty) == []


def test_the_file_of_a_killed_roll_is_not_a_part_of_the_journal(empty):
    segment = Image()
    segment.block(short(b"0"), 1)
    segment.write(empty)
    write_page(empty, segment.end)
    Image(1, segment.end).write(empty)
    (empty / "next.3.1").write_bytes(b"half a segment")
    contents = check_journal(empty)
    assert contents is not None
    assert len(contents.leftovers) == 2
    assert contents.next_sequence == 1


def test_the_page_of_another_boot_adds_its_body_only_at_the_end(empty):
    segment = Image()
    segment.block(short(b"0"), 1)
    segment.write(empty)
    write_page(empty, segment.end, short(b"open"), current=False)
    assert values(empty) == [b"0", b"open"]
    write_page(empty, (0, 168, 0), short(b"older"), current=False)
    assert values(empty) == [b"0"]


@pytest.mark.parametrize("generation", [4, 5])
@pytest.mark.parametrize("records", [b"", short(b"open")])
@pytest.mark.parametrize("at_its_place", [0, 20, None], ids=["nothing", "half", "all"])
def test_an_immutable_block_counts_wherever_its_writer_died(empty, generation, records, at_its_place):
    segment = Image()
    segment.block(short(b"0"), 1)
    place = segment.end
    content = segment.content
    segment.block(short(b"immutable"), 1)
    segment.content = (content + segment.content[len(content) :][:at_its_place]).ljust(1000, b"\0")
    segment.write(empty)
    write_page(
        empty, place, records, before=short(b"immutable"), generation=generation, unwritten=generation - 1,
        direct=generation,
    )  # fmt: skip
    contents = check_journal(empty)
    assert contents is not None
    assert contents.end == place
    assert contents.immutable_block is not None
    assert (contents.immutable_block.offset, contents.immutable_block.record_count) == (place[1], 1)
    assert contents.next_sequence == (3 if records else 2)
    assert values(empty) == [b"0", b"immutable", *([b"open"] if records else [])]


def test_an_intent_of_another_generation_is_of_no_immutable_block(empty):
    segment = Image()
    segment.block(short(b"0"), 1)
    segment.write(empty)
    for unwritten in (0, 2, 4, 5):
        write_page(empty, segment.end, short(b"open"), unwritten=unwritten)
        contents = check_journal(empty)
        assert contents is not None
        assert contents.immutable_block is None
        assert values(empty) == [b"0", b"open"]


@pytest.mark.parametrize("generation", [4, 5])
@pytest.mark.parametrize("unwritten", [0, 1])
def test_the_page_of_another_boot_adds_both_bodies(empty, generation, unwritten):
    segment = Image()
    segment.block(short(b"0"), 1)
    segment.write(empty)
    options = {
        "before": short(b"before"), "generation": generation, "unwritten": unwritten * (generation - 1), "current": False,
    }  # fmt: skip
    write_page(empty, segment.end, short(b"open"), **options)
    assert values(empty) == [b"0", b"before", b"open"]
    page = bytearray((empty / "precommit").read_bytes())
    body_at = 4096 + 4096 * (generation - 1 & 1)
    page[body_at + 12] ^= 1
    (empty / "precommit").write_bytes(page)
    assert values(empty) == [b"0"]
    page[body_at + 12] ^= 1
    page[4096 + 4096 * (generation & 1) + 12] ^= 1
    (empty / "precommit").write_bytes(page)
    assert values(empty) == [b"0", b"before"]
    segment.block(short(b"before"), 1)
    segment.write(empty)
    write_page(empty, (0, 168 + 72 + 9, 1), short(b"open"), **options)
    assert values(empty) == [b"0", b"before", b"open"]


def test_a_torn_tail_that_nothing_vouches_for_is_the_end(empty):
    segment = Image()
    segment.block(short(b"0"), 1)
    segment.write(empty, segment.content[96:130])
    check_journal(empty)
    assert values(empty) == [b"0"]


def test_a_segment_with_a_torn_first_block_is_not_there(empty):
    """A power loss leaves such a file."""
    first = Image(state=state_record(b"a", b"1"))
    first.block(short(b"0"), 1)
    first.write(empty)
    second = Image(1, first.end, state_record(b"a", b"1"))
    (empty / f"{1:020d}.seg").write_bytes(second.content[:100].ljust(4096, b"\0"))
    contents = read_journal(empty)
    assert contents.end == first.end
    assert contents.state == {b"a": b"1"}


def test_more_than_max_bytes_is_sampled(empty):
    segment = Image()
    for i in range(200):
        segment.block(short(b"%d" % i), 1)
    segment.write(empty)
    assert check_journal(empty, max_bytes=100) is None
    assert check_journal(empty) is not None


# --- What the text forbids ----------------------------------------------------------------------------------------


def write_segment(path: Path, body: bytes, count: int = 1, **options) -> Image:
    segment = Image()
    segment.block(body, count, **options)
    segment.write(path)
    return segment


@pytest.mark.parametrize(
    ("body", "count", "options", "reason"),
    [
        pytest.param(short(b"0"), 2, {}, "not 2", id="too few records"),
        pytest.param(short(b"0") + b"1", 1, {}, "cut off", id="half a record"),
        pytest.param(short(b"0")[:-1], 1, {}, "beyond the body", id="a short value beyond the body"),
        pytest.param(long(0, b"v")[:-1], 1, {}, "beyond the body", id="a long value beyond the body"),
        pytest.param(long(1, b"v"), 1, {}, "reserved bits", id="a reserved bit of the tag"),
        pytest.param(long(1 << 28, b"v"), 1, {}, "null", id="a null value with a length"),
        pytest.param(long(0, b"v", b"k"), 1, {}, "null", id="a null key with a length"),
        pytest.param(long(0, b"v", b"", b"head"), 1, {}, "header is cut off", id="half a header"),
        pytest.param(long(1 << 29, b"v"), 1, {}, "state record", id="state without a key"),
        pytest.param(state_record(b"k", b"v"), 0, {}, "HAS_STATE", id="state without its flag"),
        pytest.param(short(b"0"), 1, {"has_state": True}, "HAS_STATE", id="the flag without state"),
        pytest.param(b"", 0, {}, "empty", id="a block without records"),
        pytest.param(short(b"0", 1), 1, {}, "a record is of", id="a record later than max_timestamp_us"),
        pytest.param(short(b"0"), 1, {"durable_end": 1}, "durable_end", id="durable before it was written"),
        pytest.param(state_record(b"k", b"v" * 65536), 0, {"has_state": True}, "live state", id="too much state"),
    ],
)
def test_a_body_that_the_format_forbids_is_refused(empty, body, count, options, reason):
    write_segment(empty, body, count, **options)
    refused(empty, reason)


def test_a_clock_that_ran_backwards_is_refused(empty):
    """An explicit time is not."""
    write_segment(empty, short(b"0", 5) + short(b"1", 4, explicit=True), 2, latest_us=NOW_US + 5)
    check_journal(empty)
    write_segment(empty, short(b"0", 5) + short(b"1", 4), 2, latest_us=NOW_US + 5)
    refused(empty, "clock ran backwards")


def test_a_state_that_a_roll_has_lost_is_refused(empty):
    first = write_segment(empty, short(b"0") + state_record(b"a", b"1"), has_state=True)
    Image(1, first.end).write(empty)
    refused(empty, "not what came before")


def test_damage_before_the_mark_or_a_durable_end_is_refused(empty):
    segment = Image()
    segment.block(short(b"damaged"), 1)
    at = len(segment.content) - 1
    segment.block(short(b"later"), 1)
    segment.content = segment.content[:at] + b"D" + segment.content[at + 1 :]
    segment.write(empty)
    assert values(empty) == []
    write_bounds(empty, mark=(0, at + 1, 1))
    refused(empty, "synced")
    write_bounds(empty)
    segment.block(short(b"latest"), 1, durable_end=1)
    segment.write(empty)
    refused(empty, "synced")


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"first": 2}, "first_sequence 2"),
        ({"reservation": 0}, "beyond the reservation"),
        ({"mark": (0, 200, 1)}, "no block begins"),
        ({"closed": (0, 168, 0)}, "closed end"),
        ({"closed": (0, NONE, 0)}, "half none"),
    ],
)
def test_bounds_that_contradict_the_segments_are_refused(empty, bounds, reason):
    write_segment(empty, short(b"0"))
    write_bounds(empty, **bounds)
    refused(empty, reason)


@pytest.mark.parametrize(("sequence", "epoch", "reason"), [((1 << 24) + 1, EPOCH, "beyond the end"), (0, 5, "epoch 5")])
def test_a_position_that_cannot_be_is_refused(empty, sequence, epoch, reason):
    write_segment(empty, short(b"0"))
    write_position(empty, "checkpoints/before", sequence, epoch)
    refused(empty, reason)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(0, 168, NO_TIME), (1, 248, NOW_US)], "segment's end"),
        ([(0, 168, 0), (1, 249, NOW_US)], "entry 0"),
        ([(0, 96, NO_TIME), (1, 249, NOW_US)], "first block"),
        ([(1, 249, NOW_US)], "entries"),
    ],
)
def test_an_index_that_contradicts_its_segment_is_refused(empty, entries, reason):
    first = write_segment(empty, short(b"0"))
    Image(1, first.end).write(empty)
    write_index(empty, 0, entries)
    refused(empty, reason)
    check_journal(empty, indexes=False)


def test_a_chain_that_ends_before_a_current_page_is_refused(empty):
    segment = write_segment(empty, short(b"0"))
    write_page(empty, (0, segment.end[1] + 72, 2))
    refused(empty, "there is no block here")
    write_page(empty, segment.end, short(b"open"))
    body = bytearray((empty / "precommit").read_bytes())
    body[4096 + 16] ^= 1
    (empty / "precommit").write_bytes(body)
    refused(empty, "the body is not")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"base_us": NOW_US - 1}, "does not begin as"),
        ({"latest_us": NOW_US - 1}, "a record is of"),
        ({"durable_end": 2}, "durable_end"),
        ({"has_state": True}, "not a plain block"),
        ({"kind": 2}, "not a plain block"),
        ({"count": 2}, "does not hold"),
    ],
)
def test_an_immutable_header_that_contradicts_its_block_is_refused(empty, options, reason):
    segment = write_segment(empty, short(b"0"))
    write_page(empty, segment.end, before=short(b"immutable"), unwritten=3, **options)
    refused(empty, reason)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (832 + 8, "the block header's CRC"),
        (832, "no block's header"),
        (512 + 16, "slot's CRC"),
        (576 + 16, "slot's CRC"),
        (576 + 48, "the body is not"),
        (4096 + 4096 + 10, "the body is not"),
        (4096 + 10, "the body is not"),
    ],
)
def test_an_immutable_block_with_a_flipped_bit_is_refused(empty, at, reason):
    segment = write_segment(empty, short(b"0"))
    write_page(empty, segment.end, short(b"open"), before=short(b"immutable"), unwritten=3)
    page = bytearray((empty / "precommit").read_bytes())
    page[at] ^= 1
    (empty / "precommit").write_bytes(page)
    refused(empty, reason)


def test_an_open_block_not_after_the_immutable_one_is_refused(empty):
    segment = write_segment(empty, short(b"0"))
    write_page(empty, segment.end, before=short(b"immutable"), unwritten=3)
    page = bytearray((empty / "precommit").read_bytes())
    put_block(page, 4, (0, segment.end[1] + 72, 2), b"", 0)
    (empty / "precommit").write_bytes(page)
    refused(empty, "does not begin where the immutable one ends")


def test_a_newer_version_is_refused(empty):
    segment = Image()
    segment.content = sealed(segment.content[:8] + struct.pack("<II", 3, 0) + segment.content[16:96]) + segment.content[96:]
    segment.write(empty)
    write_page(empty, segment.end)
    refused(empty, "format version is 3")
    (empty / "journal.meta").write_text(example()["journal.meta"].replace("jlog 1", "jlog 2"))
    refused(empty, "format version is 2")

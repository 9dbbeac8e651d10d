"""Bytes that are not what was written are never returned as data: the records come back as they were, or an error
says where the damage is. Nothing crashes or hangs: every look is taken in another process."""

import os
import random
import struct

import pytest

import exhaustive
import jlog
from crash.tampering import change, copy, copy_of_killed, flip, open_body_at
from processes.units import read_all, values_of

pytestmark = pytest.mark.damage

SEED = 7
GENERATION_AT = 448
FLUSHED = 21  # records that stand in segments
FLIPS = exhaustive.count(10, 30)  # of each file, for each of the three journals


def build(path):
    """Small, with all sorts of blocks and files: three segments, indexes, state, a subscriber, a checkpoint."""
    writer = jlog.Writer(path, precommit=4 << 10, segment_bytes=4 << 10)
    unit = 0
    for turn in range(3):
        for _ in range(4):
            writer.append(values_of("w", unit, size=60)[0])
            unit += 1
        writer.extend([values_of("w", unit, 2, size=40)[part] for part in (0, 1)], state={b"turn": b"%d" % turn})
        unit += 1
        writer.append(b"", key=b"key", headers=[("name", b"value"), ("null", None)], timestamp_us=1 << 50)
        if turn < 2:
            writer.roll()
    with jlog.Reader(path, "billing") as reader:
        reader.read(5)
        reader.checkpoint("five")
        reader.read(3)
        reader.commit()
    return writer


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    """One that was synced and closed, and one that is still open: its last records are in the buffer. A copy of it is as
    after a power loss, or after a kill."""
    closed, live = tmp_path_factory.mktemp("closed") / "j", tmp_path_factory.mktemp("live") / "j"
    with build(closed) as writer:
        writer.sync()
    writer = build(live)
    writer.sync()
    writer.extend([values_of("w", 100 + i, size=50)[0] for i in range(4)])
    yield {"closed": closed, "lost power": live, "killed": live}
    writer.close()


def files_of(journal):
    return sorted(
        os.path.relpath(os.path.join(folder, name), journal) for folder, _, names in os.walk(journal) for name in names
    )


FILES = [
    "journal.meta",
    "bounds",
    "precommit",
    "00000000000000000000.seg",
    "00000000000000000007.seg",
    "00000000000000000014.seg",
    "00000000000000000000.idx",
    "00000000000000000007.idx",
    "subscribers/billing",
    "checkpoints/five",
]


def test_every_kind_of_file_is_damaged_here(journals):
    for journal in journals.values():
        assert files_of(journal) == sorted([*FILES, "lock"])


def expected_of(journal):
    return [[sequence, value.decode("latin-1")] for sequence, value in read_all(journal)]


def check_look(found, expected, flushed, where):
    """`flushed`: so many records stand in segments. Where the page is not valid any more the rest may be gone, as after
    a power loss."""
    records = found["records"]
    assert records == expected[: len(records)], where
    if "look_at_records" not in found:
        assert len(records) in (len(expected), flushed), where
    wanted = [value for _, value in expected]
    assert found.get("values", wanted) in (wanted, wanted[:flushed]), where
    backward = found.get("backward", expected)
    assert any(
        backward == (whole[len(whole) - len(backward) :] if "look_backward" in found else whole)  # those after the damage
        for whole in (expected, expected[:flushed])
    ), where
    assert found.get("state", {"turn": "2"}) == {"turn": "2"}, where
    if "subscriber" in found:
        billing = found["subscriber"]
        begins = billing[0][0] if billing else flushed
        assert billing in (expected[begins:], expected[begins:flushed]), where
        assert begins == 8, where


def damaged_in_turn(journal, tmp_path, spawn, name, places, which="closed"):
    """`places`: functions that damage the file. A process looks at it then, and once a writer has opened it."""
    expected = expected_of(journal)
    child = spawn()
    for where, damage in places:
        path = (copy_of_killed if which == "killed" else copy)(journal, tmp_path / "j")
        damage(path / name)
        check_look(child.call("look", str(path)), expected, FLUSHED, where)
        appended = child.call("write_on", str(path))
        found = child.call("look", str(path))
        if isinstance(appended, int):
            own = [record for record in found["records"] if record[0] == appended]
            found["records"] = [record for record in found["records"] if record[0] != appended]
            assert own in ([], [[appended, "appended after the damage"]]), where
            assert appended not in [sequence for sequence, _ in expected[:FLUSHED]], where
            for key in ("values", "backward", "subscriber"):
                if key in found:
                    found[key] = [entry for entry in found[key] if "appended after the damage" not in entry]
        check_look(found, expected, FLUSHED, where)


def flips_of(path, seed):
    chance, size = random.Random(seed), os.path.getsize(path)
    if path.name == "precommit":
        # The page's fields, and the open block's body as far as it is used.
        body_at = open_body_at(path.parent)
        offsets = [chance.randrange(640) for _ in range(FLIPS)] + [body_at + chance.randrange(240) for _ in range(FLIPS)]
    elif path.suffix == ".seg":
        size = min(size, len(path.read_bytes().rstrip(b"\0")))
        offsets = [chance.randrange(size) for _ in range(FLIPS)]
    elif path.name in ("bounds", "billing", "five"):
        offsets = [chance.choice((0, 4096)) + chance.randrange(128) for _ in range(FLIPS)]
        offsets = [offset for offset in offsets if offset < size]
    else:
        offsets = [chance.randrange(size) for _ in range(FLIPS)]
    return [(offset, chance.randrange(8)) for offset in offsets]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("which", ["closed", "lost power", "killed"])
def test_a_flipped_bit_is_never_returned_as_data(journals, spawn, tmp_path, which, name):
    journal = journals[which]
    places = [
        (f"byte {offset} bit {bit} of {name}", lambda file, offset=offset, bit=bit: flip(file, offset, bit))
        for offset, bit in flips_of(journal / name, f"{SEED} {which} {name}")
    ]
    damaged_in_turn(journal, tmp_path, spawn, name, places, which)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("which", ["closed", "lost power", "killed"])
def test_a_truncated_file_is_never_returned_as_data(journals, spawn, tmp_path, which, name):
    journal = journals[which]
    size = os.path.getsize(journal / name)
    chance = random.Random(f"{SEED} {which} {name}")
    lengths = {0, 1, size // 2, size - 1, *(chance.randrange(size) for _ in range(8))}

    def cut(file, length):
        os.truncate(file, length)

    places = [(f"{name} cut to {length}", lambda file, length=length: cut(file, length)) for length in sorted(lengths)]
    damaged_in_turn(journal, tmp_path, spawn, name, places, which)


@pytest.mark.parametrize("moved", [-2, -1, 1, 2, 1 << 40])
def test_a_false_generation_leads_to_no_other_record(journals, spawn, tmp_path, moved):
    def move(file):
        (generation,) = struct.unpack_from("<Q", file.read_bytes(), GENERATION_AT)
        change(file, GENERATION_AT, struct.pack("<Q", generation + moved))

    places = [(f"the generation moved by {moved}", move)]
    damaged_in_turn(journals["killed"], tmp_path, spawn, "precommit", places, "killed")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_never_an_empty_journal(journals, spawn, tmp_path, name):
    damaged_in_turn(journals["closed"], tmp_path, spawn, name, [(f"{name} removed", os.unlink)])


@pytest.mark.usefixtures("failpoints")
@pytest.mark.parametrize("read", [1, 3, 9, 15, 20, 30])
def test_an_unreadable_sector_is_damage_and_the_rest_is_checked(journals, spawn, tmp_path, read):
    """One of the reads fails, whichever that is."""
    path = copy(journals["closed"], tmp_path / "j")
    found = spawn(f"file.read=5@{read}").call("verify", str(path))
    assert found
    assert {reason for _, reason, _ in found} == {"the disk cannot read it"}
    assert sum(lost for _, _, lost in found) < FLUSHED
    assert spawn().call("verify", str(path)) == []

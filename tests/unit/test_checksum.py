"""CRC32C: right by the standard's vectors, by another package, and the same whichever way it is computed."""

import array
import platform
import random

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jlog._core.format.checksum import crc32c, crc32c_shift, crc32c_table, implementation

WAYS = pytest.mark.parametrize("way", [crc32c, crc32c_table], ids=["chosen", "table"])

# RFC 3720, B.4; the first is the check value of every catalogue of CRCs.
VECTORS = {
    "digits": (b"123456789", 0xE3069283),
    "zeros": (bytes(32), 0x8A9136AA),
    "ones": (b"\xff" * 32, 0x62A8AB43),
    "incrementing": (bytes(range(32)), 0x46DD794E),
    "decrementing": (bytes(reversed(range(32))), 0x113FDB5C),
    "iscsi read": (
        bytes.fromhex("01c00000" + "00000000" * 3 + "14000000000004000000001400000018" + "28000000000000000200000000000000"),
        0xD9963A56,
    ),
}

# Interleaving begins at 48 bytes and works through longer inputs in strides of 3 * 64 words.
INTERLEAVED_BYTES = 48
STRIDE_BYTES = 3 * 64 * 8
AROUND_BOUNDARIES = sorted(
    {
        max(0, boundary + offset)
        for boundary in [INTERLEAVED_BYTES]
        + [strides * STRIDE_BYTES + rest for strides in (1, 2, 3, 86) for rest in (0, INTERLEAVED_BYTES)]
        for offset in range(-9, 10)
    }
)

crcs = st.integers(0, 2**32 - 1)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def independent(data: bytes, crc: int = 0) -> int:
    return google_crc32c.extend(crc, data)


@WAYS
@pytest.mark.parametrize(("data", "expected"), VECTORS.values(), ids=VECTORS.keys())
def test_the_vectors_of_the_standard_come_out(way, data, expected):
    assert way(data) == expected


@WAYS
def test_nothing_changes_nothing(way):
    assert way(b"") == 0
    assert way(b"", 0xE3069283) == 0xE3069283


def test_the_instruction_is_used_where_the_cpu_has_it():
    with open("/proc/cpuinfo") as cpuinfo:
        listed = [line.partition(":")[2].split() for line in cpuinfo if line.startswith(("flags", "Features"))]
    features = set().union(*listed)
    expected = {"x86_64": ("sse4_2", "sse4.2"), "aarch64": ("crc32", "armv8")}
    feature, name = expected.get(platform.machine(), ("", ""))
    assert implementation == (name if feature in features else "table")


def test_instruction_and_table_agree_at_any_length_and_alignment():
    data = memoryview(noise(2 * STRIDE_BYTES + 64))
    for size in range(2 * STRIDE_BYTES + 50):
        start = size % 8
        piece = data[start : start + size]
        assert crc32c(piece, size) == crc32c_table(piece, size), (start, size)
    for start in range(8):
        for size in [*range(130), *range(STRIDE_BYTES - 9, STRIDE_BYTES + 58)]:
            piece = data[start : start + size]
            assert crc32c(piece, 0xFFFFFFFF) == crc32c_table(piece, 0xFFFFFFFF), (start, size)


def test_instruction_and_table_agree_where_vectors_take_over():
    """From 4,096 bytes on a CPU with vectors of 512 bits takes 256 bytes at once, and leaves the rest to the lanes."""
    data = memoryview(noise(9000))
    for size in [*range(4096 - 9, 4096 + 2 * 256 + 9), *range(8192 - 9, 8192 + 266)]:
        start = size % 64
        piece = data[start : start + size]
        assert crc32c(piece, size) == crc32c_table(piece, size), (start, size)


@WAYS
def test_crcs_around_the_interleaving_agree_with_another_package(way):
    for data in map(noise, AROUND_BOUNDARIES):
        assert way(data) == independent(data), len(data)
        assert way(data, 0x12345678) == independent(data, 0x12345678), len(data)


@WAYS
@given(data=st.binary(max_size=5000), crc=crcs)
def test_any_bytes_after_any_crc_agree_with_another_package(way, data, crc):
    assert way(data, crc) == independent(data, crc)


@WAYS
@given(data=st.binary(max_size=5000), cuts=st.lists(st.integers(0, 5000), max_size=6))
def test_a_crc_carried_over_splits_is_that_of_the_whole(way, data, cuts):
    crc, start = 0, 0
    for cut in [*sorted(cuts), 5000]:
        crc, start = way(data[start:cut], crc), cut
    assert crc == way(data)


def test_a_crc_carried_over_records_is_that_of_the_block():
    block = noise(128 * 1024)
    crc = 0
    for start in range(0, len(block), 108):
        crc = crc32c(block[start : start + 108], crc)
    assert crc == crc32c(block) == independent(block)


@WAYS
@given(data=st.binary(min_size=1, max_size=4000), bit=st.integers(0))
def test_every_flipped_bit_is_seen(way, data, bit):
    damaged = bytearray(data)
    bit %= 8 * len(data)
    damaged[bit // 8] ^= 1 << bit % 8
    assert way(damaged) != way(data)


@given(a=st.binary(max_size=3000), b=st.binary(max_size=3000))
def test_the_crc_of_a_join_is_the_shifted_first_and_the_second(a, b):
    assert crc32c(a + b) == crc32c_shift(crc32c(a), len(b)) ^ crc32c(b)


@given(crc=crcs, size=st.integers(0, 5000))
def test_a_shift_is_what_that_many_zero_bytes_do(crc, size):
    zeros = bytes(size)
    assert crc32c_shift(crc, size) == crc32c(zeros, crc) ^ crc32c(zeros)


@given(crc=crcs, first=st.integers(0, 2**63), second=st.integers(0, 2**63 - 1))
def test_shifts_add_up_at_any_length(crc, first, second):
    assert crc32c_shift(crc32c_shift(crc, first), second) == crc32c_shift(crc, first + second)


def test_a_shift_by_a_power_of_two_is_that_by_its_half_twice():
    for half in (2**log for log in range(63)):
        assert crc32c_shift(0xE3069283, 2 * half) == crc32c_shift(crc32c_shift(0xE3069283, half), half), half


def test_a_shift_does_not_change_nothing():
    assert crc32c_shift(0, 2**64 - 1) == 0
    assert crc32c_shift(0xE3069283, 0) == 0xE3069283


@WAYS
def test_every_contiguous_bytes_like_object_is_taken(way):
    numbers = array.array("Q", range(100))
    expected = way(numbers.tobytes())
    assert way(numbers) == way(memoryview(numbers)) == way(bytearray(numbers.tobytes())) == expected


@WAYS
def test_a_buffer_that_is_not_contiguous_is_refused(way):
    with pytest.raises(BufferError):
        way(memoryview(b"abcdef")[::2])
    with pytest.raises(TypeError):
        way("text")
    with pytest.raises(OverflowError):
        way(b"", 2**32)
    with pytest.raises(OverflowError):
        way(b"", -1)


@WAYS
def test_a_buffer_is_only_borrowed(way):
    data = bytearray(b"123456789")
    way(data)
    data.append(0)  # BufferError while somebody holds the buffer
    assert len(data) == 10

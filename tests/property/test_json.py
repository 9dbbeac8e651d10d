"""The core's parser of JSON finds what Python's json module finds, in values that are nearly right."""

from __future__ import annotations

import json
import math
import random

import pyarrow
import pytest

import exhaustive
from jlog.query import json_fields

FIELDS = [
    pyarrow.field(name, kind)
    for name, kind in (
        ("a", pyarrow.int64()),
        ("b", pyarrow.float64()),
        ("text", pyarrow.string()),
        ("d", pyarrow.bool_()),
        ("\u00e9\n", pyarrow.string()),
        ("", pyarrow.float64()),
    )
]
NAMES = [*(field.name for field in FIELDS), "aa", "other"]
CHARACTERS = ["a", '"', "\\", "\n", "\0", "\x7f", "\u00e9", "\u2028", "\U0001d11e", "/", "\ud834", "\udd1e", "b" * 9]
TYPED = b'{}[]",:\\0123eE+-.tfnu/ \t\n\r\x00\xff\xc3'
NUMBERS = [
    *("-0", "-0.0", "0e0", "1e5", "1E-3", "1e999", "-1e999", "5e-324", "0.1", "123456789.123456789", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("1" + "0" * 308, "1" + "0" * 309),
]
WRONG = [
    *("01", "-", "1.", ".5", "1e", "+1", "0x1", "1_0", "NaN", "Infinity", "-Infinity", "nul", "True", "'a'", "1 2", ""),
    *(r'"\x"', r'"\u12g4"', '"\t"', '"', '"\\', "[1,]", "[,1]", "[}", "{]", "[1 2]", '{"a":1,}', '{"a"}', "{1:2}"),
    "[" * 1100 + "]" * 1100,
]


def text(chance):
    return "".join(chance.choice(CHARACTERS) for _ in range(chance.randrange(12)))


def value(chance, depth=0):
    """The JSON of anything."""
    kind = chance.random()
    if depth < 4 and kind < 0.1:
        return "[" + ", ".join(value(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    if depth < 4 and kind < 0.2:
        return members(chance, depth + 1)
    if kind < 0.205:
        return chance.choice(WRONG)
    number = chance.choice([1, -1]) * chance.getrandbits(chance.randrange(1, 70))
    return chance.choice(
        [
            *(json.dumps(text(chance), ensure_ascii=ascii_only) for ascii_only in (True, False)),
            str(number),
            repr(chance.random() * 10.0 ** chance.randrange(-320, 305)),
            chance.choice(["true", "false", "null"]),
            chance.choice(NUMBERS),
        ]
    )


def members(chance, depth=0):
    space = chance.choice(["", "", " ", "\r\n\t"])
    pairs = []
    for _ in range(chance.randrange(8)):
        name = json.dumps(chance.choice(NAMES), ensure_ascii=chance.random() < 0.5)
        if chance.random() < 0.1:
            name = name.replace("a", "\\u0061")
        pairs.append(f"{name}{space}:{space}{value(chance, depth)}{space}")
    return "{" + space + f",{space}".join(pairs) + "}"


def damaged(chance, given):
    found = bytearray(given)
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(len(found) + 1)
        found[at : at + chance.randrange(3)] = bytes(chance.choices(TYPED, k=chance.randrange(2)))
    return bytes(found)


def is_same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("seed", range(exhaustive.count(4, 200)))
def test_each_value_gives_what_pythons_parser_gives(seed):
    chance = random.Random(seed)
    for _ in range(500):
        values = [members(chance).encode("utf-8", "surrogatepass") for _ in range(chance.randrange(1, 12))]
        values = [damaged(chance, found) if chance.random() < 0.3 else found for found in values]
        given = pyarrow.array([b"before", *values, chance.choice([None, b"", b"{}"])], pyarrow.binary()).slice(1)
        found, expected = json_fields._parsed(given, FIELDS), json_fields._by_python(given, FIELDS)
        for name, column in found.items():
            column.validate(full=True)
            rows = zip(given.to_pylist(), column.to_pylist(), expected[name].to_pylist(), strict=True)
            assert [row for row in rows if not is_same(*row[1:])] == [], name

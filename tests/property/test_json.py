"""A record's columns are what Python's json module finds in its value: alone, and with any neighbours in its batch."""

from __future__ import annotations

import json
import math
import random

import pyarrow
import pytest

import exhaustive
from jlog.query import json_columns

ITEMS = pyarrow.struct([("a", pyarrow.float64()), ("text", pyarrow.list_(pyarrow.string()))])
FIELDS = [
    pyarrow.field(name, kind)
    for name, kind in (
        ("a", pyarrow.int64()),
        ("b", pyarrow.float64()),
        ("text", pyarrow.string()),
        ("d", pyarrow.bool_()),
        ("\u00e9\n", pyarrow.string()),
        ("", pyarrow.float64()),
        ("big", pyarrow.uint64()),
        ("small", pyarrow.int8()),
        ("list", pyarrow.list_(pyarrow.int64())),
        ("large", pyarrow.large_list(pyarrow.large_string())),
        ("struct", ITEMS),
        ("structs", pyarrow.list_(ITEMS)),
        ("deep", pyarrow.list_(pyarrow.list_(pyarrow.float64()))),
        ("map", json_columns.ANY_FIELDS),
    )
]
NAMES = [*(field.name for field in FIELDS), "aa", "other"]
CHARACTERS = ["a", '"', "\\", "\n", "\0", "\x7f", "\u00e9", "\u2028", "\U0001d11e", "/", "\ud834", "\udd1e", "b" * 9]
TYPED = b'{}[]",:\\0123eE+-.tfnu/ \t\n\r\x00\xff\xc3'
NUMBERS = [
    *("-0", "-0.0", "0e0", "1e5", "1E-3", "1e999", "-1e999", "5e-324", "0.1", "123456789.123456789", "9007199254740993"),
    *("NaN", "Infinity", "-Infinity", "18446744073709551615", "18446744073709551616", "127", "128", "-128", "-129"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("1" + "0" * 308, "1" + "0" * 309),
]
WRONG = [
    *(
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "0x1",
        "1_0",
        "nan",
        "-NaN",
        "+Infinity",
        "Inf",
        "--Infinity",
        "nul",
        "True",
        "'a'",
        "1 2",
        "",
    ),
    *(r'"\x"', r'"\u12g4"', '"\t"', '"', '"\\', "[1,]", "[,1]", "[}", "{]", "[1 2]", '{"a":1,}', '{"a"}', "{1:2}"),
    "[" * 1100 + "]" * 1100,
]


def text(chance):
    return "".join(chance.choice(CHARACTERS) for _ in range(chance.randrange(12)))


def value(chance, depth=0):
    """The JSON of anything."""
    kind = chance.random()
    if depth < 4 and kind < 0.2:
        return "[" + ", ".join(value(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    if depth < 4 and kind < 0.4:
        return members(chance, depth + 1)
    if kind < 0.405:
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


def judged(given):
    """Returns the value as Python's json module reads it: an object, or nothing."""
    try:
        found = json.loads(given.decode())
    except (ValueError, RecursionError, AttributeError):  # also of None
        return {}
    return found if isinstance(found, dict) else {}


def fitted(found, kind):
    """Returns the value that a column of this type has for it."""
    types, is_number = pyarrow.types, isinstance(found, (int, float)) and not isinstance(found, bool)
    if types.is_list(kind) or types.is_large_list(kind):
        return [fitted(item, kind.value_type) for item in found] if isinstance(found, list) else None
    if types.is_struct(kind):
        return {part.name: fitted(found.get(part.name), part.type) for part in kind} if isinstance(found, dict) else None
    if types.is_map(kind):
        return {name: part for name, part in found.items() if has_no_surrogate(name)} if isinstance(found, dict) else None
    if types.is_boolean(kind):
        return found if isinstance(found, bool) else None
    if types.is_floating(kind):
        return float(found) if is_number and (isinstance(found, float) or abs(found) < 1 << 1024) else None
    if types.is_integer(kind):
        low, high = (-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1) if types.is_signed_integer(kind) else (0, 1 << 64)
        return found if is_number and isinstance(found, int) and low <= found < high else None
    return found if isinstance(found, str) and has_no_surrogate(found) else None


def has_no_surrogate(found):
    return found.encode("utf-8", "replace") == found.encode("utf-8", "surrogatepass")


def is_same(one, other):
    """A map has texts in JSON, which are read here."""
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (one == other and math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(part, other[name]) for name, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and one == other


def rows_of(values):
    """The rows of the core's columns."""
    columns = json_columns.columns_of(pyarrow.array(values, pyarrow.binary()), FIELDS)
    for column in columns:
        column.validate(full=True)
    rows = [
        dict(zip((field.name for field in FIELDS), row, strict=True))
        for row in zip(*(column.to_pylist() for column in columns), strict=True)
    ]
    return [
        row | {"map": None if row["map"] is None else {name: json.loads(text) for name, text in row["map"]}} for row in rows
    ]


@pytest.mark.parametrize("seed", range(exhaustive.count(4, 200)))
def test_a_row_is_what_pythons_parser_finds_in_its_value_alone_and_with_any_neighbours(seed):
    chance = random.Random(seed)
    for _ in range(60):
        values = [members(chance).encode("utf-8", "surrogatepass") for _ in range(chance.randrange(1, 12))]
        values = [damaged(chance, found) if chance.random() < 0.3 else found for found in values]
        values.append(chance.choice([None, b"", b"{}"]))
        together = rows_of([b"before", *values])[1:]
        for value, row in zip(values, together, strict=True):
            found = judged(value)
            expected = {field.name: fitted(found.get(field.name), field.type) for field in FIELDS}
            assert is_same(row, expected), value
            assert is_same(rows_of([value])[0], expected), value

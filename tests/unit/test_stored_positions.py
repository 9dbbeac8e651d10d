"""Source positions in a journal's state."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from jlog.flow.stored_positions import decode, encode

OFFSETS = st.integers(0, 2**63 - 1)


@st.composite
def one(draw):
    begin, moved = draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))
    found = {"offset": begin + moved, "topic_id": draw(st.sampled_from(["a" * 22, "b" * 22])), "begin": begin}
    if draw(st.booleans()):
        found["leader_epoch"] = draw(st.integers(0, 2**31))
        if draw(st.booleans()):
            found["passed"] = draw(st.integers(1, 2**40))
    if draw(st.booleans()):
        found["transform"] = True
    return found


PARTS = st.builds(lambda topic, number: f"{topic}/{number}", st.sampled_from(["orders", "a.b"]), st.integers(0, 100))
POSITIONS = st.dictionaries(PARTS, one())
OTHERS = st.dictionaries(st.sampled_from(["0123456789abcdef", "standby"]), st.fixed_dictionaries({"sequence": OFFSETS}))


def stored(state, rows):
    merged = {**state, **rows}
    return {key: row for key, row in merged.items() if row is not None}


@given(POSITIONS, OTHERS, POSITIONS, st.sets(PARTS))
def test_what_is_stored_is_what_is_read(first, others, then, removed):
    before = {**first, **others}
    state = stored({}, encode(before, before, {}))
    assert decode(state) == before
    after = {part: found for part, found in {**before, **then}.items() if part not in removed}
    state = stored(state, encode(after, {*then, *removed}, state))
    assert decode(state) == after


@given(POSITIONS)
def test_rows_of_an_earlier_version_are_replaced(found):
    state = {b"jlog.source:" + part.encode(): json.dumps(one).encode() for part, one in found.items()}
    assert decode(state) == found
    state = stored(state, encode(found, found, state))
    assert decode(state) == found
    assert not any(key.startswith(b"jlog.source:") for key in state)


def test_thousands_of_partitions_have_room():
    found = {
        f"orders/{number}": {"offset": 10**9 + number, "topic_id": "x" * 22, "begin": 0, "leader_epoch": 300}
        for number in range(3000)
    }
    found |= {
        f"clicks.{number}/0": {"offset": 10**6, "topic_id": "x" * 22, "begin": 0, "leader_epoch": 3} for number in range(200)
    }
    rows = encode(found, found, {})
    assert sum(len(key) + len(row) for key, row in rows.items() if row is not None) < 64 << 10
    assert sum(len(json.dumps(one)) for one in found.values()) > 200_000


def test_a_part_that_has_no_place_in_a_group_any_more_leaves_it():
    plain = {"offset": 5, "topic_id": "a", "begin": 0}
    state = {key: row for key, row in encode({"t/0": plain, "t/1": plain}, ["t/0", "t/1"], {}).items() if row is not None}
    more = {**plain, "else": 1}
    for key, row in encode({"t/0": more, "t/1": plain}, ["t/0"], state).items():
        state.pop(key, None) if row is None else state.update({key: row})
    assert decode(state) == {"t/0": more, "t/1": plain}

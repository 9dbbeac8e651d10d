"""Records gathered in a body, and appended together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import jlog
from jlog.writer import EncodedRecords, extend_body


@pytest.mark.parametrize(
    ("values", "headers", "error", "said"),
    [
        ([b"c", "text"], None, TypeError, "value"),
        ([b"c", b"d"], [None, [("name", "text")]], TypeError, "header"),
        ([b"c", b"d"], [None], ValueError, "headers has 1 entries and values has 2"),
        ([b"c", b"d"], [None] * 3, ValueError, "headers has 3 entries and values has 2"),
        ([b"c"], None, ValueError, "timestamps_us has 2 entries and values has 1"),
    ],
)
def test_columns_with_a_refused_record_add_nothing(
    tmp_path: Any, values: Any, headers: Any, error: type[Exception], said: str
) -> None:
    writer = jlog.Writer(tmp_path / "journal")
    body = EncodedRecords()
    body.add_columns([b"a"], [b"key"], [[("name", b"header")]], [5])
    with pytest.raises(error, match=said):
        body.add_columns(values, None, headers, [7, 8])
    body.add_columns([b"b"], None, None, None)
    with writer:
        assert extend_body(writer, body, {b"k": b"v"}) == 0
    with jlog.Reader(tmp_path / "journal") as reader:
        first, second = reader
        assert (first.value, first.key, first.headers) == (b"a", b"key", [("name", b"header")])
        assert (first.timestamp_us, second.value, second.key) == (5, b"b", None)


def test_a_body_is_appended_once_and_not_while_it_is_added_to(tmp_path: Any) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        body = EncodedRecords()

        def values() -> Iterator[bytes]:
            yield b"a"
            with pytest.raises(ValueError, match="another call uses it"):
                extend_body(writer, body)
            with pytest.raises(ValueError, match="another call uses it"):
                body.add_columns([b"b"], None, None, None)

        body.add_columns(values(), None, None, None)
        assert extend_body(writer, body) == 0
        for again in (lambda body: extend_body(writer, body), lambda body: body.add_columns([b"c"], None, None, None)):
            with pytest.raises(ValueError, match=r"already appended.*EncodedRecords"):
                again(body)
        assert writer.next_sequence == 1

"""Records encoded before they are appended."""

from __future__ import annotations

from typing import Any

import pytest

import jlog
from jlog._core.encode import Body


@pytest.mark.parametrize(
    ("values", "headers", "error"),
    [
        ([b"c", "text"], None, TypeError),
        ([b"c", b"d"], [None, [("name", "text")]], TypeError),
        ([b"c", b"d"], [None], IndexError),
    ],
)
def test_of_columns_with_a_record_that_is_refused_nothing_is_added(
    tmp_path: Any, values: Any, headers: Any, error: type[Exception]
) -> None:
    body = Body()
    body.add_columns([b"a"], [b"key"], [[("name", b"header")]], [5])
    with pytest.raises(error):
        body.add_columns(values, None, headers, [7, 8])
    body.add_columns([b"b"], None, None, None)
    with jlog.Writer(tmp_path / "journal") as writer:
        assert writer.extend_body(body, {b"k": b"v"}) == 0
    with jlog.Reader(tmp_path / "journal") as reader:
        first, second = reader
        assert (first.value, first.key, first.headers) == (b"a", b"key", [("name", b"header")])
        assert (first.timestamp_us, second.value, second.key) == (5, b"b", None)

"""Digests of what a Spark batch is made of."""

from __future__ import annotations

import pytest

from jlog.spark.checkpoint import digest_of

META = '{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}'


def text(*lines: str, version: str = "v1", at: int = 1) -> str:
    return "\n".join([version, META % at, *lines])


def test_settings_and_time_of_a_batch_do_not_count() -> None:
    assert digest_of(text("1", at=1), text("2", at=1)) == digest_of(text("1", at=2), text("2\n", at=3))
    assert len(digest_of(None, text("2"))) == 32


@pytest.mark.parametrize(
    ("begin", "end"), [(None, ["2"]), (["1"], ["3"]), (["0"], ["2"]), (["1", "2"], ["2"]), (["1"], ["2", "2"]), (["1"], ["12"])]
)
def test_another_begin_or_end_is_another_digest(begin: list[str] | None, end: list[str]) -> None:
    assert digest_of(None if begin is None else text(*begin), text(*end)) != digest_of(text("1"), text("2"))


def test_a_source_is_known_by_its_line_or_by_its_name() -> None:
    assert digest_of(None, text("1", "2")) != digest_of(None, text("2", "1"))
    assert digest_of(None, text("a:1", "b:2", version="v2")) == digest_of(None, text("b:2", "a:1", version="v2"))


@pytest.mark.parametrize("end", ["", "v1", "v1\n{}", "2\n{}\n1"])
def test_a_text_that_is_cut_short_is_refused(end: str) -> None:
    with pytest.raises(ValueError, match="not an offset file of Spark"):
        digest_of(None, end)

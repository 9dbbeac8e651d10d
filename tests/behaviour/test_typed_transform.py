"""A transform with a codec: its function sees objects and returns them, and what does not decode is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import jlog
from jlog.kafka import RecordRefused
from jlog.transform import transforming


class Order(msgspec.Struct):
    item: str
    cups: int


class Refund(msgspec.Struct):
    cups: int


CODEC = jlog.typed.json(Order)


@pytest.fixture
def orders(tmp_path):
    """A journal of five records, of which the second and the fourth do not decode."""
    path = str(tmp_path / "orders")
    with jlog.Writer(path) as writer:
        values = [
            b'{"item":"tea","cups":1}',
            b"two cups",
            b'{"item":"tea","cups":3}',
            b'{"item":"tea"}',
            b'{"item":"tea","cups":5}',
        ]
        writer.extend(values, keys=[b"table"] * 5, headers=[[("h", b"v")]] * 5)
    return path


def doubled(record: Any) -> Any:
    order = record.decoded
    return Order(order.item, 2 * order.cups)


def decoded(path: str, codec: Any = CODEC) -> list[Any]:
    with jlog.Reader(path, codec=codec) as reader:
        return [record.decoded for record in reader]


def test_records_that_do_not_decode_go_to_the_dead_letters_with_their_place(orders, tmp_path):
    sink, dead = str(tmp_path / "sink"), str(tmp_path / "dead")
    for _ in range(2):  # the second run has nothing to do
        jlog.transform(orders, sink, doubled, codec=CODEC, refused="dead-letter", dead_letter=dead)
    assert decoded(sink) == [Order("tea", 2), Order("tea", 6), Order("tea", 10)]
    with jlog.Reader(sink) as reader:
        assert [(record.key, list(record.headers)) for record in reader] == [(b"table", [("h", b"v")])] * 3
    with jlog.Reader(dead) as reader:
        letters = list(reader)
    assert [letter.value for letter in letters] == [b"two cups", b'{"item":"tea"}']
    for letter, sequence in zip(letters, (1, 3), strict=True):
        reason = dict(letter.headers)["jlog.refused"].decode()
        assert reason.startswith("the transform raised DecodeError")
        assert f"record {sequence}" in dict(letter.headers)["jlog.record"].decode() + reason


def test_a_record_that_does_not_decode_stops_a_transform_without_dead_letters(orders, tmp_path):
    sink = str(tmp_path / "sink")
    with pytest.raises(RecordRefused, match="DecodeError") as refused:
        jlog.transform(orders, sink, doubled, codec=CODEC)
    assert refused.value.sequence == 1
    assert isinstance(refused.value.__cause__, jlog.DecodeError)
    assert decoded(sink) == [Order("tea", 2)]
    assert jlog.transform(orders, sink, doubled, codec=CODEC, refused="skip").records == 4
    assert len(decoded(sink)) == 3


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_whose_text_cannot_be_made_makes_a_dead_letter_too(orders, tmp_path):
    def function(record: Any) -> Any:
        raise Unsayable

    dead = str(tmp_path / "dead")
    jlog.transform(orders, str(tmp_path / "sink"), function, refused="dead-letter", dead_letter=dead)
    with jlog.Reader(dead) as reader:
        reasons = {dict(letter.headers)["jlog.refused"] for letter in reader}
    assert reasons == {b"the transform raised Unsayable: (its __str__ raises)"}


def test_the_function_may_return_what_every_function_may_return(orders, tmp_path):
    """Objects of another class get its header, in place of the one that the record had."""
    both = jlog.typed.json(Order, Refund)
    sink, again = str(tmp_path / "sink"), str(tmp_path / "again")

    def several(record: Any) -> Any:
        order = record.decoded
        return {1: None, 3: [order, Refund(order.cups), record], 5: record.value}[order.cups]

    jlog.transform(orders, sink, several, codec=both, refused="skip")
    assert decoded(sink, both) == [Order("tea", 3), Refund(3), Order("tea", 3), Order("tea", 5)]
    jlog.transform(sink, again, lambda record: Refund(record.decoded.cups), codec=both)
    assert decoded(again, both) == [Refund(3), Refund(3), Refund(3), Refund(5)]
    with jlog.Reader(again) as reader:
        assert all([name for name, _ in record.headers].count("jlog.type") == 1 for record in reader)


def test_an_object_that_the_codec_refuses_is_refused(orders, tmp_path):
    with pytest.raises(RecordRefused, match=r"record 0.*TypeError"):
        jlog.transform(orders, str(tmp_path / "sink"), lambda record: Refund(record.decoded.cups), codec=CODEC)


def test_a_codec_that_cannot_ask_its_service_makes_no_dead_letter(orders, tmp_path):
    """The flow tries again until the service is there."""

    class Asking:
        asked = 0

        def encode(self, value):
            return CODEC.encode(value)

        def decode(self, record):
            Asking.asked += 1
            if Asking.asked in (2, 3):
                raise ConnectionError("the registry is away")
            return CODEC.decode(record)

    sink, dead = str(tmp_path / "sink"), str(tmp_path / "dead")
    said: list[str] = []
    flow = transforming(
        orders, sink, doubled, codec=Asking(), refused="dead-letter", dead_letter=dead, until_end=True, on_event=said.append
    )
    stats = flow.run()
    assert stats.retries == 2
    assert any("the registry is away; trying again" in line for line in said)
    assert decoded(sink) == [Order("tea", 2), Order("tea", 6), Order("tea", 10)]
    assert len(jlog.Journal(dead)) == 2


def test_a_trial_says_what_would_be_refused(orders, tmp_path):
    said: list[str] = []
    flow = transforming(
        orders, str(tmp_path / "sink"), doubled, codec=CODEC, trial=True, refused="skip", until_end=True, on_event=said.append
    )
    flow.run()
    assert len([line for line in said if "DecodeError" in line]) == 2
    assert not (tmp_path / "sink").exists()

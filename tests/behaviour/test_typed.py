"""Typed records: objects in place of bytes, by a codec."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import hashlib
import json
import math
import pickle
import re
import threading
import weakref
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest

import jlog
from jlog import typed
from jlog.typed import shapes


class Order(msgspec.Struct):
    item: str
    total: int
    note: str | None = None


class Refund(msgspec.Struct, frozen=True):
    order: int


@dataclasses.dataclass
class Delivery:
    street: str
    parcels: list[int]
    at: datetime


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    balance: Decimal
    picture: bytes = b""
    since: datetime


class Tree(msgspec.Struct):
    below: list[Tree] | None
    size: tuple[int, str]


class OtherTree(msgspec.Struct):
    below: list[OtherTree] | None
    size: tuple[str, int]


ONE = Order("tea", 3)
OBJECTS = [
    ONE,
    Delivery("Long Lane", [1, 2], datetime(2026, 11, 26, 4, 5, 6, 7, tzinfo=timezone.utc)),
    Customer(fullName="Ann", balance=Decimal("1.10"), since=datetime(2026, 1, 1, tzinfo=timezone.utc)),
]
FORMS = [typed.json, typed.msgpack]


@pytest.fixture(params=FORMS, ids=["json", "msgpack"])
def form(request: pytest.FixtureRequest) -> Any:
    return request.param


def write(path: Path, codec: Any, *objects: object) -> None:
    with jlog.Writer(path, codec=codec) as writer:
        for each in objects:
            writer.append(each)


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: type(thing).__name__)
def test_objects_come_back_as_they_were_written(tmp_path: Path, form: Any, thing: object) -> None:
    codec = form(type(thing))
    with jlog.Writer(tmp_path / "j", codec=codec) as writer:
        assert writer.append(thing, key=b"k", headers={"level": b"high"}) == 0
        assert writer.extend([thing, thing], keys=[b"a", b"b"], headers=[None, {"level": b"low"}]) == 1
        assert asyncio.run(writer.append_durable(thing, key=b"d")) == 3
        assert writer.append(thing, id=b"once") == writer.append(thing, id=b"once") == 4
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        records = list(reader)
        assert [record.decoded for record in records] == [thing] * 5
        assert [record.key for record in records] == [b"k", b"a", b"b", b"d", None]
        assert records[0].headers == [("level", b"high")]
        assert all(type(record.value) is bytes for record in records)
        reader.seek(0)
        assert reader.read().decoded() == [thing] * 5


def test_json_is_what_any_program_reads(tmp_path: Path) -> None:
    write(tmp_path / "j", typed.json(Order), ONE)
    with jlog.Reader(tmp_path / "j") as reader:
        assert [json.loads(value) for value in reader.values()] == [{"item": "tea", "total": 3, "note": None}]


def test_one_type_may_be_any_that_msgspec_knows(tmp_path: Path, form: Any) -> None:
    for number, (type_, thing) in enumerate(
        [(dict, {"a": 1}), (dict[str, list[int]], {"a": [1]}), (int | str, "x"), (list[Order], [ONE])]
    ):
        write(tmp_path / str(number), form(type_), thing)
        with jlog.Reader(tmp_path / str(number), codec=form(type_)) as reader:
            assert [record.decoded for record in reader] == [thing]


def test_objects_of_several_types_are_told_apart_by_a_header(tmp_path: Path, form: Any) -> None:
    things = [ONE, Refund(7), *OBJECTS]
    codec = form(Order, Refund, Delivery, Customer)
    write(tmp_path / "j", codec, *things)
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        records = list(reader)
    assert [record.decoded for record in records] == things
    assert [dict(record.headers)["jlog.type"] for record in records[:2]] == [b"Order", b"Refund"]


def test_a_journal_of_one_type_goes_on_with_several(tmp_path: Path, form: Any) -> None:
    write(tmp_path / "j", form(Order), ONE)
    write(tmp_path / "j", form(Order, Refund), Refund(1), ONE)
    with jlog.Reader(tmp_path / "j", codec=form(Order, Refund)) as reader:
        assert [record.decoded for record in reader] == [ONE, Refund(1), ONE]
    with jlog.Reader(tmp_path / "j", codec=form(Order)) as reader:
        first, second, third = reader
        assert first.decoded == third.decoded == ONE
        with pytest.raises(jlog.DecodeError, match=r"of the type 'Refund', which .* does not have"):
            assert second.decoded


def test_what_does_not_decode_is_an_error_with_its_place_and_the_reader_goes_on(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "j"
    write(path, form(Order), ONE)
    with jlog.Writer(path) as writer:
        writer.append(b"\xc1 not one")
    write(path, form(Order), ONE)
    with jlog.Reader(path, "billing", codec=form(Order)) as reader:
        decoded, errors = [], []
        for record in reader:
            try:
                decoded.append(record.decoded)
            except jlog.DecodeError as error:
                errors.append(error)
                assert record.value == b"\xc1 not one"
        assert decoded == [ONE, ONE]
        assert [(error.path, error.sequence) for error in errors] == [(str(path), 1)]
        assert isinstance(errors[0], (jlog.JournalError, ValueError))
        assert isinstance(errors[0].__cause__, msgspec.DecodeError)
        assert f"{path}: record 1 cannot be decoded: " in str(errors[0])
        assert str(pickle.loads(pickle.dumps(errors[0]))) == str(errors[0])
        assert reader.position == 3
        reader.seek(0)
        batch = reader.read()
        with pytest.raises(jlog.DecodeError, match="record 1 "):
            batch.decoded()
        assert [record.sequence for record in batch] == [0, 1, 2]
        reader.commit()


def test_a_tombstone_is_none_on_both_sides(tmp_path: Path, form: Any) -> None:
    with jlog.Writer(tmp_path / "j", codec=form(Order, Refund)) as writer:
        writer.append(None, key=b"gone")
        writer.extend([None, ONE])
    with jlog.Reader(tmp_path / "j", codec=form(Order, Refund)) as reader:
        batch = reader.read()
        assert batch.decoded() == [None, None, ONE]
        assert [record.headers for record in batch[:2]] == [[], []]


def test_an_object_that_readers_could_not_decode_is_not_stored(tmp_path: Path, form: Any) -> None:
    with jlog.Writer(tmp_path / "j", codec=form(Order)) as writer:
        with pytest.raises(ValueError, match=r"readers could not decode .*Expected `int`, got `str`"):
            writer.append(Order("tea", "three"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"\(Order\) stores no Refund"):
            writer.extend([ONE, Refund(1)])
        with pytest.raises(TypeError, match="stores no bytes"):
            writer.append(b"{}")
        with pytest.raises(ValueError, match="headers has 1 entries and values has 2"):
            writer.extend([ONE, ONE], headers=[None])
        assert writer.next_sequence == 0
        assert writer.append(ONE) == 0


class Reading(pydantic.BaseModel):
    celsius: float


def test_a_model_that_pydantic_would_not_read_again_is_not_stored(tmp_path: Path, form: Any) -> None:
    changed = Reading(celsius=1)
    changed.celsius = "warm"  # type: ignore[assignment]
    with jlog.Writer(tmp_path / "j", codec=form(Reading)) as writer:
        for wrong in (Reading(celsius=float("nan")), changed):
            with pytest.warns() if wrong is changed else nullcontext():
                with pytest.raises(ValueError, match="readers could not decode Reading"):
                    writer.append(wrong)
        assert writer.append(Reading(celsius=1)) == 0


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr
    cached: str = pydantic.Field(default="", exclude=True)


@dataclasses.dataclass
class Price:
    cents: float | None
    tags: list[str] = dataclasses.field(default_factory=list)


class Pet(msgspec.Struct):
    name: str


class Dog(Pet):
    breed: str = ""


class Owner(msgspec.Struct):
    pets: list[Pet]


@pytest.mark.parametrize(
    ("thing", "place"),
    [
        (Login(user="ann", password=pydantic.SecretStr("hunter2")), "password"),
        (Owner([Pet("tom"), Dog("rex", "collie")]), "pets.1"),
    ],
)
def test_an_object_that_readers_would_not_get_back_is_not_stored(tmp_path: Path, form: Any, thing: Any, place: str) -> None:
    with jlog.Writer(tmp_path / "j", codec=form(type(thing))) as writer:
        with pytest.raises(ValueError, match=f"its field '{place}' would come back as another value") as caught:
            writer.append(thing)
        assert "hunter2" not in str(caught.value)
        assert writer.next_sequence == 0
    with jlog.Writer(tmp_path / "j", codec=form(type(thing), check=False)) as writer:
        writer.append(thing)


def test_a_nan_is_stored_only_where_it_comes_back(tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "json", codec=typed.json(Price)) as writer:
        for wrong in (math.nan, math.inf):
            with pytest.raises(ValueError, match="its field 'cents'"):
                writer.append(Price(wrong))
    write(tmp_path / "msgpack", typed.msgpack(Price), Price(math.nan))
    with jlog.Reader(tmp_path / "msgpack", codec=typed.msgpack(Price)) as reader:
        assert math.isnan(next(iter(reader)).decoded.cents)


def test_a_tuple_in_place_of_a_list_and_what_a_model_excludes_are_no_change(tmp_path: Path, form: Any) -> None:
    write(tmp_path / "price", form(Price), Price(1.5, ("a", "b")))  # type: ignore[arg-type]
    model = pydantic.create_model("Seen", at=(int, pydantic.Field(default=0, exclude=True)), name=(str, ...))
    write(tmp_path / "seen", form(model), model(at=5, name="x"))


def test_every_way_of_reading_decodes(tmp_path: Path) -> None:
    path, codec = tmp_path / "j", typed.json(Order)
    write(path, codec, *(Order("tea", number) for number in range(5)))

    async def followed(reader: jlog.Reader) -> list[int]:
        return [record.decoded.total async for record in reader.follow_async(timeout=0)]

    with jlog.Reader(path, codec=codec) as reader:
        assert [record.decoded.total for record in reader.follow(timeout=0)] == [0, 1, 2, 3, 4]
        assert [record.decoded.total for record in reader.read_backward(2)] == [4, 3]
        reader.seek(0)
        assert asyncio.run(followed(reader)) == [0, 1, 2, 3, 4]
        reader.seek(0)
        assert [record.decoded.total for record in reader.follow(timeout=0, pace=1e9)] == [0, 1, 2, 3, 4]
        reader.seek(0)
        batch = reader.read()
        assert (batch[1].decoded.total, batch[-1].decoded.total) == (1, 4)
        assert [record.decoded.total for record in batch[1:3]] == [1, 2]
        assert len(batch.values()) == len(batch) == batch.to_arrow().num_rows == 5
        assert [record.decoded.total for record in reader.read_backward(9)] == [4, 3, 2, 1, 0]
        assert len(list(reader.values())) == 5


def test_an_archive_decodes_too(tmp_path: Path) -> None:
    path, codec, url = tmp_path / "j", typed.json(Order), f"file://{tmp_path}/archive"
    with jlog.Writer(path, codec=codec, retention=jlog.Retention(archive=url)) as writer:
        writer.append(ONE)
        writer.roll()
        jlog.Journal(path).add_subscriber("billing", "end")
        jlog.Journal(path).clean()
        writer.append(Order("tea", 4))
    with jlog.Reader(path, archive=True, codec=codec) as reader:
        assert [record.decoded.total for record in reader] == [3, 4]
        assert [record.decoded.total for record in reader.read_backward(2)] == [4, 3]
    with jlog.Reader(url, codec=codec) as reader:
        assert reader.read().decoded() == [ONE]


@pytest.mark.parametrize("duplicate", [lambda thing: pickle.loads(pickle.dumps(thing)), copy.copy, copy.deepcopy])
def test_records_batches_and_writers_are_pickled_with_their_codec(tmp_path: Path, form: Any, duplicate: Any) -> None:
    codec = form(Order, Refund)
    with jlog.Writer(tmp_path / "j", codec=codec) as writer:
        writer.append(ONE)
        with duplicate(writer) as other:
            assert other.append(Refund(2)) == 1
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        batch = duplicate(reader.read())
    assert batch.decoded() == [ONE, Refund(2)]
    record = duplicate(batch[0])
    assert record.decoded == ONE
    assert record == batch[0]


class Keeping:
    """A codec that keeps the records that it decodes."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, record: Any) -> Any:
        self.kept.append(record)
        return record.value


def test_records_with_a_codec_cost_the_collector_nothing_and_close_no_circle_with_it(tmp_path: Path) -> None:
    codec = Keeping()
    write(tmp_path / "j", codec, b"a", b"b")
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        record, batch = next(iter(reader)), reader.read()
    assert not gc.is_tracked(record)
    assert [record.decoded, *batch.decoded(), batch[0].decoded] == [b"a", b"b", b"b"]
    assert [kept.value for kept in codec.kept] == [b"a", b"b", b"b"]
    freed = weakref.ref(codec)
    del codec, reader, record, batch
    gc.collect()
    assert freed() is None


def test_a_record_without_a_codec_says_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "j", typed.json(Order), ONE)
    with jlog.Reader(tmp_path / "j") as reader:
        batch = reader.read()
        for decode in (batch.decoded, lambda: batch[0].decoded):
            with pytest.raises(jlog.JournalError, match="open it with codec="):
                decode()


def test_types_that_cannot_be_told_apart_are_refused(form: Any) -> None:
    other = msgspec.defstruct("Order", ["item"])
    for types, message in [
        ((), "needs a type"),
        ((Order, other), "the name 'Order'"),
        ((Order, dict[str, int]), "is not a class"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            form(*types)


def model(base: Any, **fields: Any) -> Any:
    """Returns a class Order of this kind. A field is a type, or a type and its default."""
    if base is pydantic.BaseModel:
        given = {name: field if isinstance(field, tuple) else (field, ...) for name, field in fields.items()}
        return pydantic.create_model("Order", **given)
    given = [(name, *field) if isinstance(field, tuple) else (name, field) for name, field in fields.items()]
    if base is msgspec.Struct:
        return msgspec.defstruct("Order", given)
    return dataclasses.make_dataclass(
        "Order", [(*one[:2], *(dataclasses.field(default=each) for each in one[2:])) for one in given]
    )


@pytest.fixture(params=[msgspec.Struct, dataclasses.dataclass, pydantic.BaseModel], ids=["struct", "dataclass", "pydantic"])
def base(request: pytest.FixtureRequest) -> Any:
    return request.param


BEFORE = {"item": str, "cups": int, "size": (str | None, None)}


@pytest.mark.parametrize(
    "changed",
    [
        {**BEFORE, "note": (str, "")},
        {"item": str, "cups": int},
        {"cups": int, "item": str, "size": (None | str, "small")},
    ],
    ids=["an optional field more", "an optional field less", "another order"],
)
def test_a_change_that_every_reader_can_decode_is_let_through(tmp_path: Path, form: Any, base: Any, changed: Any) -> None:
    old, new = model(base, **BEFORE), model(base, **changed)
    for type_ in (old, new, old):
        write(tmp_path / "j", form(type_), type_(item="tea", cups=2))
    for type_ in (old, new):
        with jlog.Reader(tmp_path / "j", codec=form(type_)) as reader:
            assert [thing.cups for thing in reader.read().decoded()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"note": str, **BEFORE}, "the field 'note' is required and was not"),
        ({"item": str}, "the field 'cups' was required and is not any more"),
        ({**BEFORE, "cups": (int, 1)}, "the field 'cups' was required and is not any more"),
        ({**BEFORE, "cups": str}, 'the field \'cups\' has changed from "integer" to "string"'),
        ({**BEFORE, "size": (int | None, None)}, "the field 'size' has changed"),
        ({**BEFORE, "item": list[str]}, "the field 'item' has changed"),
    ],
)
def test_a_change_that_some_reader_could_not_decode_is_a_conflict(
    tmp_path: Path, form: Any, base: Any, changed: Any, difference: str
) -> None:
    path, old, new = tmp_path / "j", model(base, **BEFORE), model(base, **changed)
    write(path, form(old), old(item="tea", cups=2))
    state = jlog.Journal(path).state()
    with pytest.raises(jlog.SchemaConflict, match=re.escape(difference)) as caught:
        jlog.Writer(path, codec=form(new))
    assert str(path) in str(caught.value)
    assert jlog.Journal(path).state() == state
    assert jlog.Journal(path).next_sequence == 1
    write(path, form(new, allow_changes=True))
    with pytest.raises(jlog.SchemaConflict):
        jlog.Writer(path, codec=form(old))
    write(path, form(new))


def test_a_field_that_has_gone_does_not_come_back_with_another_type(tmp_path: Path, form: Any) -> None:
    for fields in (BEFORE, {"item": str, "cups": int}):
        write(tmp_path / "j", form(model(msgspec.Struct, **fields)))
    with pytest.raises(jlog.SchemaConflict, match="the field 'size' has changed"):
        jlog.Writer(tmp_path / "j", codec=form(model(msgspec.Struct, **{**BEFORE, "size": (int, 1)})))


class Pair(NamedTuple):
    debit: int
    credit: int


def swapped(type_: Any) -> Any:
    """Another version of the class, with its fields in the other order."""
    names = list(type_.__annotations__)[::-1]
    if issubclass(type_, msgspec.Struct):
        return msgspec.defstruct(type_.__name__, [(name, int) for name in names], array_like=True)
    return NamedTuple(type_.__name__, [(name, int) for name in names])


class Position(msgspec.Struct, array_like=True):
    lat: int
    lon: int


@pytest.mark.parametrize("type_", [Pair, Position])
@pytest.mark.parametrize("inside", [lambda type_: type_, lambda type_: dict[str, list[type_]]], ids=["itself", "inside"])
def test_fields_of_one_type_do_not_change_places_in_an_array(tmp_path: Path, form: Any, type_: Any, inside: Any) -> None:
    write(tmp_path / "j", form(inside(type_)))
    write(tmp_path / "j", form(inside(type_)))
    with pytest.raises(jlog.SchemaConflict, match="stored as an array, whose fields have changed from"):
        jlog.Writer(tmp_path / "j", codec=form(inside(swapped(type_))))


def test_fields_of_a_pydantic_array_do_not_change_places(tmp_path: Path, form: Any) -> None:
    old, new = (pydantic.create_model("Booking", pair=(type_, ...)) for type_ in (Pair, swapped(Pair)))
    write(tmp_path / "j", form(old))
    with pytest.raises(jlog.SchemaConflict, match="whose fields have changed"):
        jlog.Writer(tmp_path / "j", codec=form(new))


def test_many_releases_of_a_large_model_take_no_more_room_than_their_fields(tmp_path: Path, form: Any, base: Any) -> None:
    names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(500)]
    sizes = []
    for release in range(12):
        fields: dict[str, Any] = {**BEFORE, **{f"f{name}": (int, 0) for name in names[release:]}}
        write(tmp_path / "j", form(model(base, **fields)))
        sizes.append(sum(map(len, jlog.Journal(tmp_path / "j").state().values())))
    assert sizes == [sizes[0]] * len(sizes)
    with pytest.raises(jlog.SchemaConflict, match="has changed"):
        jlog.Writer(tmp_path / "j", codec=form(model(base, **{**BEFORE, f"f{names[0]}": (str, "")})))


def test_the_schemas_of_earlier_versions_are_still_compared(tmp_path: Path) -> None:
    """They were stored whole, one for each release."""
    old, new = model(msgspec.Struct, **BEFORE), model(msgspec.Struct, **{**BEFORE, "note": (str, "")})
    before = [{"form": "json", "schema": msgspec.json.schema(type_)} for type_ in (old, new)]
    key = b"jlog.types:"
    with jlog.Writer(tmp_path / "j") as writer:
        writer.extend([], state={key: zlib.compress(json.dumps(before).encode())})
    write(tmp_path / "j", typed.json(old))
    with pytest.raises(jlog.SchemaConflict, match="the field 'note' has changed"):
        jlog.Writer(tmp_path / "j", codec=typed.json(model(msgspec.Struct, **{**BEFORE, "note": (int, 0)})))


def test_a_change_deep_inside_is_found_and_a_type_may_hold_itself(tmp_path: Path, form: Any) -> None:
    write(tmp_path / "j", form(Tree), Tree([Tree(None, (1, "m"))], (2, "l")))
    write(tmp_path / "j", form(Tree))
    with pytest.raises(jlog.SchemaConflict, match="the field 'size' has changed"):
        jlog.Writer(tmp_path / "j", codec=form(OtherTree))
    strict = msgspec.defstruct("Old", [("item", str)], forbid_unknown_fields=True)
    more = msgspec.defstruct("Old", [("item", str), ("note", str, "")], forbid_unknown_fields=True)
    write(tmp_path / "strict", form(strict))
    with pytest.raises(jlog.SchemaConflict, match="the fields 'note' come or go, and unknown fields are forbidden"):
        jlog.Writer(tmp_path / "strict", codec=form(more))


def test_what_differs_as_a_choice_differs_as_a_field_too(tmp_path: Path, form: Any) -> None:
    left, right = pydantic.create_model("Left", x=(int, ...)), pydantic.create_model("Right", x=(str, ...))
    write(tmp_path / "j", form(pydantic.create_model("Both", pair=(tuple[left | right, left], ...))))
    new = pydantic.create_model("Both", pair=(tuple[right | left, right], ...))
    with pytest.raises(jlog.SchemaConflict, match="has changed"):
        jlog.Writer(tmp_path / "j", codec=form(new))


def test_a_type_that_stands_at_many_places_is_compared_once(tmp_path: Path) -> None:
    whole: Any = int
    for level in range(40):
        whole = msgspec.defstruct(f"Level{level}", [("left", whole), ("right", whole)])
    shape = shapes.shape_of("json", whole)
    assert shape
    assert shapes.difference(shape, copy.deepcopy(shape)) is None


class Point:
    @classmethod
    def read(cls, value: object) -> object:
        return cls() if value == "origin" else value


class Place(pydantic.BaseModel, arbitrary_types_allowed=True):
    point: Annotated[Point, pydantic.BeforeValidator(Point.read), pydantic.PlainSerializer(lambda _: "origin")]


def test_a_model_without_a_schema_is_stored_and_not_compared(tmp_path: Path, form: Any) -> None:
    write(tmp_path / "j", form(Place), Place(point=Point()))
    write(tmp_path / "j", form(Place))
    with jlog.Reader(tmp_path / "j", codec=form(Place)) as reader:
        assert isinstance(next(iter(reader)).decoded.point, Point)
    assert jlog.Journal(tmp_path / "j").state() == {}


def test_json_and_messagepack_do_not_mix_and_neither_does_the_first_of_several_types(tmp_path: Path) -> None:
    write(tmp_path / "j", typed.json(Order), ONE)
    with pytest.raises(jlog.SchemaConflict, match="it was stored as json"):
        jlog.Writer(tmp_path / "j", codec=typed.msgpack(Order))
    with pytest.raises(jlog.SchemaConflict):
        jlog.Writer(tmp_path / "j", codec=typed.json(Refund, Order))
    write(tmp_path / "j", typed.json(Order, Refund), Refund(1))
    with pytest.raises(jlog.SchemaConflict):
        jlog.Writer(tmp_path / "j", codec=typed.json(Order, msgspec.defstruct("Refund", [("order", str)])))
    with jlog.Writer(tmp_path / "j") as writer:  # the types are those of the codec, and bind nobody else
        writer.append(b"anything")


def test_of_two_writers_that_open_at_once_only_one_gets_its_type_in(tmp_path: Path, form: Any) -> None:
    """All open an empty journal at the same moment, each with a type that no other one's reader can decode."""
    path, writers = tmp_path / "j", 4
    jlog.Journal.create(path)
    together = threading.Barrier(writers)

    def open_one(number: int) -> bool:
        codec = form(model(msgspec.Struct, **{f"field_{number}": int}))
        together.wait()
        try:
            jlog.Writer(path, codec=codec).close()
        except jlog.SchemaConflict:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        assert sum(pool.map(open_one, range(writers))) == 1


def test_a_schema_that_the_journals_state_cannot_hold_is_refused_with_a_way_out(tmp_path: Path) -> None:
    wide = msgspec.defstruct("Wide", [(f"f{hashlib.sha256(b'%d' % n).hexdigest()}", int) for n in range(4_000)])
    with pytest.raises(jlog.RecordTooLarge, match=r"schema of json\(Wide\) is stored.*at most 65536.*or json\(dict\)"):
        jlog.Writer(tmp_path / "journal", codec=typed.json(wide))
    with jlog.Writer(tmp_path / "journal", codec=typed.json(dict)) as writer:  # the first one is closed
        writer.append({"a": 1})


def test_the_shapes_survive_a_roll_and_retention(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with jlog.Writer(path, codec=typed.json(Order)) as writer:
        for _ in range(3):
            writer.append(ONE)
            writer.roll()
        jlog.Journal(path).add_subscriber("billing", "end")
        jlog.Journal(path).clean()
        assert jlog.Journal(path).first_sequence > 0
    with pytest.raises(jlog.SchemaConflict):
        jlog.Writer(path, codec=typed.json(Refund))


class Reversed:
    """A codec as a user writes one: two functions, and a header of its own."""

    def encode(self, value: str) -> tuple[bytes, list[tuple[str, bytes]]]:
        return value[::-1].encode(), [("direction", b"backward")]

    def decode(self, record: Any) -> str:
        assert dict(record.headers)["direction"] == b"backward"
        text: str = record.value.decode()
        return text[::-1]


def test_a_codec_is_any_object_with_encode_and_decode(tmp_path: Path) -> None:
    with jlog.open_writer(tmp_path / "j", codec=Reversed()) as writer:
        writer.append("abc", headers=iter([("a", b"1")]))
    with jlog.open_reader(tmp_path / "j", codec=Reversed()) as reader:
        (record,) = reader.read()
        assert (record.value, record.decoded) == (b"cba", "abc")
        assert record.headers == [("a", b"1"), ("direction", b"backward")]
    with jlog.Writer(tmp_path / "j") as plain:
        plain.append(b"cba")
    with jlog.Reader(tmp_path / "j", start=1, codec=Reversed()) as own:
        with pytest.raises(jlog.DecodeError, match="record 1 cannot be decoded: KeyError: 'direction'"):
            assert next(iter(own)).decoded


class Fixed:
    """A codec whose functions go wrong."""

    def __init__(self, stored: object) -> None:
        self.stored = stored

    def encode(self, value: object) -> Any:
        return self.stored

    def decode(self, record: Any) -> None:
        raise MemoryError


@pytest.mark.parametrize("stored", [None, (None, []), (b"", [], 1), ()])
def test_a_codec_that_returns_no_bytes_makes_no_tombstone(tmp_path: Path, stored: object) -> None:
    with jlog.Writer(tmp_path / "j", codec=Fixed(stored)) as writer:
        for append in (writer.append, lambda value: writer.extend([value])):
            with pytest.raises(TypeError, match=re.escape(f"must return bytes, or bytes and headers to add, not {stored!r}")):
                append("object")
        assert writer.next_sequence == 0


def test_a_record_for_which_there_is_no_memory_is_no_dead_letter(tmp_path: Path) -> None:
    write(tmp_path / "j", Fixed(b"sound"), "object")
    with jlog.Reader(tmp_path / "j", codec=Fixed(b"")) as reader, pytest.raises(MemoryError):
        assert next(iter(reader)).decoded


def tasks(path: Path, codec: Any) -> Iterator[jlog.Task]:
    with jlog.open_worker(path, "billing", codec=codec, dead_letters=path.with_name("letters")) as worker:
        yield from worker.tasks(timeout=0)


def test_a_worker_decodes_and_what_does_not_decode_is_a_dead_letter_at_once(tmp_path: Path, form: Any) -> None:
    path, codec = tmp_path / "j", form(Order)
    write(path, codec, ONE)
    with jlog.Writer(path) as writer:
        writer.append(b"\xc1 not one", key=b"k", headers={"a": b"b"})
    write(path, codec, ONE)
    done, errors = [], []
    for task in tasks(path, codec):
        try:
            with task:
                done.append(task.decoded)
        except jlog.DecodeError as error:
            errors.append((error.path, error.sequence))
    assert (done, errors) == ([ONE, ONE], [(str(path), 1)])
    with jlog.Reader(tmp_path / "letters") as reader:
        (letter,) = reader
    assert (letter.value, letter.key, letter.headers[0]) == (b"\xc1 not one", b"k", ("a", b"b"))
    assert b"DecodeError" in (dict(letter.headers)["jlog.work.reason"] or b"")
    assert jlog.Journal(path).subscribers()["billing"].lag == 0


def test_another_type_does_not_take_the_place_of_the_first_one(tmp_path: Path) -> None:
    """Records without the header of their type are taken for the first type, also by readers of before."""
    order = dataclasses.make_dataclass("Order", [("id", int)])
    refund = dataclasses.make_dataclass("Refund", [("id", int)])
    changed = dataclasses.make_dataclass("Order", [("id", str)])
    both, one = tmp_path / "both", tmp_path / "one"
    jlog.Writer(both, codec=jlog.typed.json(order, refund)).close()
    for codec in (jlog.typed.json(refund), jlog.typed.json(changed), jlog.typed.json(refund, order)):
        with pytest.raises(jlog.SchemaConflict):
            jlog.Writer(both, codec=codec)
    jlog.Writer(both, codec=jlog.typed.json(order)).close()
    jlog.Writer(both, codec=jlog.typed.json(order, refund)).close()
    jlog.Writer(one, codec=jlog.typed.json(order)).close()
    with pytest.raises(jlog.SchemaConflict, match=r"first of its types \(Order\), and not for Refund"):
        jlog.Writer(one, codec=jlog.typed.json(refund, order))
    jlog.Writer(one, codec=jlog.typed.json(order, refund)).close()


@pytest.mark.parametrize("codec", [5, Order])
def test_what_is_not_a_codec_is_refused_at_once(tmp_path: Path, codec: Any) -> None:
    path = tmp_path / "j"
    jlog.Writer(path).close()
    for make in (jlog.Writer, partial(jlog.Reader, name="r"), partial(jlog.Worker, name="w")):
        with pytest.raises(TypeError, match=r"codec must be an object with .*, such as jlog\.typed\.json\("):
            make(path, codec=codec)

"""ValueIterator fills a bytes object again only if nobody else refers to it."""

import ctypes
import gc
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jlog

COUNT = 50
VALUES = [b"%0100d" % number for number in range(COUNT)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    with jlog.open_writer(path) as writer:
        writer.extend(VALUES)
    return path


class Holder:
    value: bytes


def holder(value: bytes) -> Holder:
    made = Holder()
    made.value = value
    return made


def suspended(value: bytes) -> Iterator[bytes]:
    yield b""
    yield value


def held_by_a_generator(value: bytes) -> Iterator[bytes]:
    made = suspended(value)
    next(made)
    return made


# How something refers to a value, and how the value is taken out of it again.
WAYS: dict[str, tuple[Callable[[bytes], object], Callable[..., bytes]]] = {
    "list": (lambda value: [value], lambda found: found[0]),
    "tuple": (lambda value: (value,), lambda found: found[0]),
    "set": (lambda value: {value}, lambda found: found.pop()),
    "key": (lambda value: {value: None}, lambda found: next(iter(found))),
    "attribute": (holder, lambda found: found.value),
    "memoryview": (memoryview, bytes),
    "slice of a memoryview": (lambda value: memoryview(value)[:], bytes),
    "closure": (lambda value: lambda: value, lambda found: found()),
    "generator": (held_by_a_generator, next),
    "py_object": (ctypes.py_object, lambda found: found.value),
    "c_char_p": (ctypes.c_char_p, lambda found: found.value),
    "iterator": (lambda value: iter((value,)), next),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_is_referred_to_never_changes(journal: Path, way: str) -> None:
    hold, take = WAYS[way]
    with jlog.open_reader(journal) as reader:
        held = [hold(value) for value in reader.values()]
    assert [take(found) for found in held] == VALUES


def test_each_value_alone_is_kept_while_others_are_reused(journal: Path) -> None:
    for kept in range(COUNT):
        with jlog.open_reader(journal) as reader:
            value = next(itertools.islice(reader.values(), kept, None))
            rest = reader.values()
            assert all(found == VALUES[kept + 1 + number] for number, found in enumerate(rest))
        assert value == VALUES[kept]


def test_the_tuples_of_zip_and_pairwise_keep_their_values(journal: Path) -> None:
    with jlog.open_reader(journal) as reader:
        assert [pair[1] for pair in zip(range(COUNT), reader.values(), strict=True)] == VALUES
    with jlog.open_reader(journal) as reader:
        assert list(itertools.pairwise(reader.values())) == list(itertools.pairwise(VALUES))
    with jlog.open_reader(journal) as reader:
        values = reader.values()
        assert list(zip(values, values, strict=True)) == list(zip(VALUES[::2], VALUES[1::2], strict=True))
    with jlog.open_reader(journal) as reader:
        first, second = itertools.tee(reader.values())
        assert list(first) == list(second) == VALUES


def test_a_value_that_another_thread_holds_never_changes(journal: Path) -> None:
    handed_over: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    found = []

    def keep() -> None:
        while (value := handed_over.get()) is not None:
            found.append(bytearray(value))  # copied here, perhaps long after the loop has gone on

    thread = threading.Thread(target=keep)
    thread.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with jlog.open_reader(journal) as reader:
            for value in reader.values():
                handed_over.put(value)
                del value
    finally:
        sys.setswitchinterval(before)
        handed_over.put(None)
        thread.join()
    assert found == VALUES


def test_a_collection_meanwhile_changes_no_value(journal: Path) -> None:
    cycles = []
    with jlog.open_reader(journal) as reader:
        for value in reader.values():
            cycle: list[object] = [value]
            cycle.append(cycle)
            cycles.append(cycle[0])
            del value, cycle
            gc.collect(0)
    assert cycles == VALUES


def test_the_loop_refers_to_a_value_that_it_looks_at(journal: Path) -> None:
    with jlog.open_reader(journal) as reader:
        values = reader.values()
        for number, value in enumerate(values):
            length, hashed = len(value), hash(value)
            if number + 1 < COUNT:
                assert next(itertools.islice(jlog_values(journal), number + 1, None)) == VALUES[number + 1]
            assert (value, length, hashed) == (VALUES[number], 100, hash(VALUES[number]))


def jlog_values(journal: Path) -> Iterator[bytes | None]:
    with jlog.open_reader(journal) as reader:
        yield from reader.values()


def test_a_refilled_value_has_its_own_length_and_hash(tmp_path: Path) -> None:
    values = [b"x" * (20 - number % 16) + b"%d" % number for number in range(200)]
    with jlog.open_writer(tmp_path / "journal") as writer:
        writer.extend(values)
    with jlog.open_reader(tmp_path / "journal") as reader:
        for value, expected in zip(reader.values(), values, strict=True):
            assert value is not None
            assert (hash(value), len(value), value, {expected: 1}[value]) == (hash(expected), len(expected), expected, 1)

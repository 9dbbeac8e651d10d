"""Whatever happens to its files: after a repair the journal is sound, and every record whose block was whole is there under
its sequence. Nothing is invented."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import exhaustive
import jlog
import oracle
from crash.ruins import JOURNALS, Whole, check, check_goes_on, snapshot, unchanged
from crash.tampering import flip, zero

pytestmark = pytest.mark.damage


@pytest.fixture(scope="module", params=JOURNALS)
def whole(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    make, copying = JOURNALS[request.param]
    writer = make(folder / "j")
    yield Whole(folder / "j", copying, folder / "scratch")
    if writer is not None:
        writer.close()


def layout_of(page):
    return int.from_bytes(page.read_bytes()[8:12], "little")


def files_of(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != "lock")


@st.composite
def blows(draw, path):
    """[(file, what is done to it, with which numbers)]"""
    files = files_of(path)
    segments = [name for name in files if name.endswith(".seg")]
    found = []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from([*files, *segments, *segments]))
        size = os.path.getsize(path / name)
        if name.endswith(".seg"):
            size = len((path / name).read_bytes().rstrip(b"\0"))
        how = draw(st.sampled_from(["flip", "flip", "cut", "zero", "delete", "empty"]))
        at = draw(st.integers(0, max(size - 1, 0)))
        more = draw(st.integers(0, 7)) if how == "flip" else draw(st.integers(1, 400))
        found.append((name, how, at, more))
    return found


def strike(path, name, how, at, more):
    file = path / name
    if not file.exists():
        return
    size = file.stat().st_size
    if how == "delete":
        file.unlink()
    elif how == "empty" or at >= size:
        os.truncate(file, 0)
    elif how == "cut":
        os.truncate(file, at)
    elif how == "zero":
        zero(file, at, min(more, size - at))
    else:
        flip(file, at, more)


@settings(
    max_examples=int(os.environ.get("JLOG_REPAIRS", exhaustive.count(15, 100))),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_every_record_of_a_whole_block_survives_any_repair(whole, tmp_path_factory, data):
    path = whole.ruin(tmp_path_factory.getbasetemp() / "ruin")
    done = data.draw(blows(path))
    for blow in done:
        strike(path, *blow)
    survivors = whole.survivors(path)
    struck = {name for name, *_ in done}
    try:
        with unchanged(path):
            foreseen = jlog.Journal.repair_at(path, dry_run=True)
    except jlog.UnsupportedFormat:
        if layout_of(path / "precommit") <= oracle.LAYOUT:
            raise
        return  # a page of a newer layout looks the same, and is left alone
    before = snapshot(path)
    report = jlog.Journal.repair_at(path)
    assert report.ok, report
    assert [damage.path for damage in report.damage] == [damage.path for damage in foreseen.damage]
    assert bool(report.damage) >= bool(report.lost)
    if not foreseen.actions:
        assert snapshot(path) == before
    found = check(whole, path, survivors, whole.positions.keys() - struck, as_found=not report.actions)
    with unchanged(path):
        assert not jlog.Journal.repair_at(path).actions
    check_goes_on(whole, path, found)


@pytest.mark.parametrize(
    "blows_",
    [
        [("checkpoints/nine", "empty", 0, 1), ("precommit", "flip", 520, 0), ("precommit", "flip", 584, 0)],  # both slots
        [("precommit", "zero", 0, 66)],  # the page is not recognised, and its bodies are where the file's size puts them
        [("precommit", "zero", 59, 7), ("00000000000000000000.idx", "flip", 0, 0)],  # no capacity, and something to repair
    ],
    ids=["slots", "no head", "no capacity"],
)
def test_records_of_a_damaged_page_survive_the_next_writer(whole, tmp_path_factory, blows_):
    path = whole.ruin(tmp_path_factory.getbasetemp() / "ruin")
    for blow in blows_:
        strike(path, *blow)
    survivors = whole.survivors(path)
    report = jlog.Journal.repair_at(path)
    struck = {name for name, *_ in blows_}
    found = check(whole, path, survivors, whole.positions.keys() - struck, as_found=not report.actions)
    check_goes_on(whole, path, found)


def test_nothing_hangs_on_the_capacity_in_the_page(whole, tmp_path_factory):
    path = whole.ruin(tmp_path_factory.getbasetemp() / "ruin")
    strike(path, "precommit", "zero", 64, 8)
    survivors = whole.survivors(path)
    report = jlog.Journal.repair_at(path)
    assert report.ok, report
    found = check(whole, path, survivors, whole.positions, as_found=not report.actions)
    check_goes_on(whole, path, found)

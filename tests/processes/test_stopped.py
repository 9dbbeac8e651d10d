"""One process is stopped, anywhere, or holds a lock and does not let go of it: every public call of the others ends within
its lock_timeout, with a result or JournalLocked. Once the stopped one goes on all that was acknowledged is there.

`make test` stops it at a choice of the failpoints, `pytest --exhaustive` at every one.
"""

import pytest

import exhaustive
import jlog
from crash.test_kills import COMPRESSING, WRITING
from jlog._core.system.lock import RANGES, LockFile
from processes.children import Raised, word_of
from processes.units import check_units

pytestmark = pytest.mark.usefixtures("failpoints")

LIMIT = 0.02  # seconds for each call; one that does not keep to it hangs, and Child gives up
SYNC_LEADS, SYNC_STUCK = 340, 392  # where they lie in the control page
# Calls that take no lock which a stopped process could hold, or leave that work to the next call.
WAITS_FOR_NOBODY = {
    "read",
    "commit",
    "commit and clean",
    "open a reader",
    "stats",
    "segments",
    "verify",
    "info",
    "close again",
}
QUICK = [
    ("none", "append.encoded"),
    ("none", "close.before_write"),
    ("none", "roll.renamed"),
    ("none", "file.sync"),
    ("lz4", "compress.copied"),
]
ALL = [("none", point) for point in WRITING] + [("lz4", point) for point in COMPRESSING]
REPLACING = ["replace.intent", "replace.renamed", "replace.rotated"]
INGESTING = ["ingest.linked", "ingest.completed", "roll.completed", "roll.renamed"]
TAKING_OVER = ["takeover.proved", "takeover.taken", "takeover.derived"]


def wrong_outcomes(child, waits_for_nobody=()):
    """Checks its calls: each returns a result, or raises JournalLocked where it may wait for another process."""
    return {
        name: outcome
        for name, outcome in child.outcomes.items()
        if outcome != "done" and (name in waits_for_nobody or not outcome.startswith("JournalLocked: "))
    }


def few(points, count=1):
    return [point if number < count else exhaustive.only(point) for number, point in enumerate(points)]


@pytest.fixture
def all_calls_end(spawn, tmp_path, victim):
    """Checks the calls of a process that has the journal open and of one that opens it. Returns what they acknowledged."""
    places = str(tmp_path / "j"), str(tmp_path / "backup"), LIMIT
    known, stranger = spawn(), spawn()
    known.call("prepare_calls", *places)

    def make():
        known.call("make_calls")
        stranger.call("make_calls_of_a_stranger", *places)
        for child in (known, stranger):
            assert not wrong_outcomes(child, WAITS_FOR_NOBODY)
        return known.acknowledged + stranger.acknowledged

    return make


def is_stopped(child, point, *call):
    child.call("arm", f"{point}=stop@1")
    child.start(*call)
    child.is_stopped()


def all_is_there(path, *acknowledged):
    first = jlog.Journal(path).first_sequence
    check_units(path, [unit for units in acknowledged for unit in units], first_sequence=first)
    assert jlog.Journal(path).verify().ok


@pytest.mark.parametrize(("compression", "point"), [stop if stop in QUICK else exhaustive.only(*stop) for stop in ALL])
def test_a_writer_stopped_at_work_delays_by_the_limit_only(victim, all_calls_end, tmp_path, compression, point):
    victim.call("open_writer", "changing", str(tmp_path / "j"), {"compression": compression})
    is_stopped(victim, point, "work", "victim", 30, "direct")
    acknowledged = all_calls_end()
    victim.goes_on()
    all_is_there(tmp_path / "j", victim.acknowledged, acknowledged)


@pytest.mark.parametrize("point", few(REPLACING))
def test_one_stopped_in_a_replacement_delays_by_the_limit_only(victim, all_calls_end, tmp_path, point):
    victim.call("roll", "victim")
    is_stopped(victim, point, "store", "victim", 300)
    acknowledged = all_calls_end()
    victim.goes_on()
    all_is_there(tmp_path / "j", victim.acknowledged, acknowledged)


@pytest.mark.parametrize("point", few(INGESTING))
def test_one_stopped_in_an_ingestion_delays_by_the_limit_only(spawn, victim, all_calls_end, tmp_path, point):
    ingesting = spawn()
    ingesting.call("open_writer", "ingesting", str(tmp_path / "j"), {"segment_bytes": 256 << 10})
    ingesting.call("append", "ingesting", 2)
    ingesting.call("build", "ingesting")
    is_stopped(ingesting, point, "ingest", "ingesting")
    acknowledged = all_calls_end()
    try:
        ingesting.goes_on()
    except Raised as error:
        if error.kind != "AssertionError":  # the others appended meanwhile: nothing was ingested
            raise
    all_is_there(tmp_path / "j", victim.acknowledged, ingesting.acknowledged, acknowledged)


@pytest.mark.parametrize("point", few(TAKING_OVER))
def test_one_stopped_in_a_takeover_delays_by_the_limit_only(spawn, victim, all_calls_end, tmp_path, point):
    taker = spawn()
    taker.call("open_writer", "taker", str(tmp_path / "j"), {})
    victim.call("arm", "roll.renamed=kill@1")
    victim.dies("work", "victim", 10, "direct")
    is_stopped(taker, point, "append", "taker")
    acknowledged = all_calls_end()
    taker.goes_on()
    all_is_there(tmp_path / "j", victim.acknowledged, taker.acknowledged, acknowledged)


@pytest.mark.parametrize("point", few(["file.write", "file.sync", "file.sync_directory", "file.read"]))
def test_one_stopped_in_open_or_close_delays_by_the_limit_only(spawn, victim, tmp_path, point):
    """Alone: nobody has the journal open, and nobody can open it. Another journal of the same process is another matter."""
    path, opening, other = tmp_path / "j", spawn(), spawn()
    victim.kill()
    is_stopped(opening, point, "come_and_go", "opening", str(path), 1)
    other.call("make_calls_of_a_stranger", str(path), str(tmp_path / "backup"), LIMIT)
    assert not wrong_outcomes(other)
    opening.goes_on()
    all_is_there(path, victim.acknowledged, opening.acknowledged, other.acknowledged)


@pytest.mark.parametrize("name", RANGES)
def test_a_lock_held_for_ever_delays_by_the_limit_only(victim, all_calls_end, tmp_path, name):
    holder = LockFile(str(tmp_path / "j" / "lock"))
    if name == "writers":
        holder.acquire(RANGES[name], shared=True)
    else:
        assert holder.acquire(RANGES[name], timeout=0)
    acknowledged = all_calls_end()
    holder.close()
    victim.call("work", "victim", 6, "direct")
    all_is_there(tmp_path / "j", victim.acknowledged, acknowledged)


def test_a_journal_that_cannot_be_opened_delays_no_other_journal(victim, spawn, tmp_path):
    path, child = tmp_path / "j", spawn()
    victim.kill()
    holder = LockFile(str(path / "lock"))
    assert holder.acquire(RANGES["open"], timeout=0)
    child.call("open_in_a_thread", "waiting", str(path))
    child.call("come_and_go", "other", str(tmp_path / "other"), 2)
    assert "JournalLocked" in child.call("fails_to_open", str(path), 0.01)
    holder.close()
    child.call("join")
    child.call("append", "waiting", 2)
    check_units(path, [*victim.acknowledged, *[unit for unit in child.acknowledged if unit.writer == "waiting"]])


def test_only_the_first_sync_waits_for_one_stopped_in_fdatasync(victim, spawn, tmp_path):
    """The one that has waited in vain says so in the page, for as long as that lead lasts."""
    path, others = tmp_path / "j", [spawn(), spawn()]
    for i, other in enumerate(others):
        other.call("open_writer", f"o{i}", str(path), {})
    is_stopped(victim, "file.sync", "sync", "victim")
    leads = word_of(path, SYNC_LEADS)
    assert word_of(path, SYNC_STUCK) != leads
    others[0].call("append", "o0")
    others[0].call("sync", "o0")
    for i, other in enumerate(others):
        other.call("append", f"o{i}", 3)
        other.call("sync", f"o{i}")
        assert word_of(path, SYNC_STUCK) == leads == word_of(path, SYNC_LEADS), "they sync beside it at once"
    victim.goes_on()
    others[0].call("append", "o0")
    others[0].call("sync", "o0")
    assert word_of(path, SYNC_LEADS) == leads + 1, "the note is void, and the next one leads"
    check_units(path, victim.acknowledged + others[0].acknowledged + others[1].acknowledged)

"""append(value, id=...): an id that is known already appends nothing, in any process, and after any kill."""

import asyncio
import shutil
import threading
import time
from datetime import timedelta

import pytest

import jlog
from behaviour.journals import SMALL, values
from elsewhere import run_python
from jlog._core.system.lock import NEVER
from jlog.storage.ids import StoredIds, write_ids
from jlog.storage.meta import read_meta
from jlog.writer.ids import Ids

MANY_SEGMENTS = {"segment_bytes": 4 << 10, "precommit": 4 << 10}


@pytest.fixture(params=[0, 4 << 10], ids=["direct", "buffer"])
def options(request):
    return {**SMALL, "precommit": request.param}


def test_a_second_append_of_an_id_returns_the_first_sequence(path, options):
    with jlog.Writer(path, **options) as writer:
        assert writer.append(b"a", id=b"1") == 0
        assert writer.append(b"b", id=b"2") == 1
        assert writer.append(b"plain") == 2
        assert writer.append(b"another value", id=b"1") == 0
        assert writer.append(b"b", key=b"k", headers={"h": b"v"}, timestamp_us=5, id=b"2") == 1
        assert writer.next_sequence == 3
    assert values(path) == [b"a", b"b", b"plain"]


def test_the_record_has_its_id_beside_its_other_headers(path, options):
    with jlog.Writer(path, **options) as writer:
        writer.append(b"v", key=b"k", headers={"h": b"v"}, timestamp_us=5, id=bytearray(b"\x00\xff"))
        writer.append(None, headers=[("h", None)], id=b"x" * 255)
        writer.append(b"plain", headers={"jlog.id": None})
    with jlog.Reader(path) as reader:
        first, second, plain = list(reader)
    assert (first.id, first.key, first.value, first.timestamp_us) == (b"\x00\xff", b"k", b"v", 5)
    assert first.headers == [("jlog.id", b"\x00\xff"), ("h", b"v")]
    assert (second.id, second.value, plain.id) == (b"x" * 255, None, None)


@pytest.mark.parametrize("wrong", [b"", b"x" * 256])
def test_an_id_has_1_to_255_bytes(path, wrong):
    with jlog.Writer(path) as writer:
        with pytest.raises(ValueError, match="an id has 1 to 255 bytes"):
            writer.append(b"v", id=wrong)
        with pytest.raises(TypeError, match="id must be bytes, not str"):
            writer.append(b"v", id="text")
        with pytest.raises(ValueError, match=r"the header jlog.id holds the id"):
            writer.append(b"v", id=b"1", headers={"jlog.id": b"2"})
        assert writer.next_sequence == 0


def test_every_writer_knows_the_ids_of_all_others(path, options):
    with jlog.Writer(path, **options) as one, jlog.Writer(path, **options) as other:
        for number in range(300):
            writer, again = (one, other) if number % 3 else (other, one)
            sequence = writer.append(b"%d" % number, id=b"%d" % number)
            one.append(b"plain")
            assert again.append(b"again", id=b"%d" % number) == sequence
    assert [value for value in values(path) if value != b"plain"] == [b"%d" % number for number in range(300)]


def test_a_writer_that_opens_the_journal_later_knows_them(path, options):
    for number in range(5):
        with jlog.Writer(path, **options) as writer:
            assert [writer.append(b"v", id=b"%d" % known) for known in range(number + 1)] == list(range(number + 1))


def test_the_last_ids_are_known_whatever_is_appended_between(path):
    with jlog.Writer(path, dedup=3) as writer:
        for number in range(4):
            writer.append(b"v", id=b"%d" % number)
            writer.extend([b"plain"] * 100)
    with jlog.Writer(path) as writer:
        assert [writer.append(b"v", id=b"%d" % number) for number in (1, 2, 3)] == [101, 202, 303]
        assert writer.append(b"v", id=b"0") == 404, "it is older than the last three"


def test_an_id_is_known_for_a_time(path):
    with jlog.Writer(path, dedup=timedelta(hours=1)) as writer:
        assert writer.append(b"v", id=b"1") == 0
        assert writer.append(b"v", id=b"1", timestamp_us=5) == 0
    with jlog.Writer(path) as writer:
        assert writer.append(b"v", id=b"1") == 0
    with jlog.Writer(path, dedup=timedelta(microseconds=1)) as writer:
        began = time.time_ns()
        while time.time_ns() < began + 10_000:
            pass
        assert writer.append(b"v", id=b"1") == 1


@pytest.fixture
def two_hours_later(monkeypatch):
    later_us = time.time_ns() // 1000 + 2 * 3_600_000_000
    for module in ("jlog.storage.ids", "jlog.writer.ids"):
        monkeypatch.setattr(f"{module}.now_us", lambda: later_us)


def test_an_ids_age_counts_from_its_append_whatever_time_the_record_carries(path, request):
    with jlog.Writer(path, dedup=timedelta(hours=1)) as one:
        one.append(b"the first of its block")
        request.getfixturevalue("two_hours_later")
        assert one.append(b"v", id=b"1", timestamp_us=5) == 1
        with jlog.Writer(path) as two:
            assert two.append(b"v", id=b"1", timestamp_us=5) == 1
        assert one.append(b"v", id=b"1", timestamp_us=5) == 1
    with jlog.Writer(path) as writer:
        assert writer.append(b"v", id=b"1", timestamp_us=5) == 1


def test_the_next_time_of_the_clock_says_how_old_an_id_is_at_most(path, request):
    with jlog.Writer(path, dedup=timedelta(hours=1)) as writer:
        writer.append(b"v", id=b"1", timestamp_us=5)
        writer.append(b"of this time")
        request.getfixturevalue("two_hours_later")
        assert writer.append(b"v", id=b"1") == 2


def test_ids_that_came_from_elsewhere_are_looked_for_by_when_they_were_appended(path):
    with jlog.Writer(path, dedup=timedelta(hours=1)) as writer:
        writer.append(b"v", headers=[("jlog.id", b"1")], timestamp_us=5)
        writer.append(b"v", timestamp_us=5)
    with jlog.Writer(path) as writer:
        assert writer.append(b"v", id=b"1") == 0


def test_ids_of_records_that_a_restore_has_lost_do_not_count(path, tmp_path):
    """The file of ids stayed, or was copied later than the records."""
    with jlog.Writer(path) as writer:
        writer.extend([b"v"] * 50)
    jlog.Journal(path).backup(tmp_path / "copy")
    with jlog.Writer(path) as writer:
        writer.extend([b"v"] * 10)
    entries = [(b"kept", 7, time.time_ns() // 1000), (b"lost", 55, time.time_ns() // 1000)]
    write_ids(str(path), read_meta(str(path)), StoredIds(60, entries))
    shutil.copy(path / "ids", tmp_path / "copy" / "ids")
    with jlog.Writer(tmp_path / "copy") as writer:
        writer.extend([b"v"] * 20)
        assert writer.append(b"v", id=b"kept") == 7
        assert writer.append(b"v", id=b"lost") == 70


def test_another_writers_option_holds_for_those_that_are_open(path):
    with jlog.Writer(path) as writer:
        for number in range(3):
            writer.append(b"v", id=b"%d" % number)
        with jlog.Writer(path, dedup=1):
            pass
        assert writer.append(b"v", id=b"3") == 3
        assert writer.append(b"v", id=b"0") == 4
    assert jlog.Journal(path).options.dedup == 1


@pytest.mark.parametrize("wrong", [0, -1, 10_000_001, timedelta(0), True, 1.5, "1"])
def test_a_wrong_dedup_is_refused(path, wrong):
    with pytest.raises((TypeError, ValueError), match="dedup must be"):
        jlog.Writer(path, dedup=wrong)


def test_the_id_of_a_removed_record_is_known(path):
    with jlog.Writer(path, **MANY_SEGMENTS, retention=jlog.Retention(delete_read=False, max_bytes=1)) as writer:
        for number in range(200):
            assert writer.append(b"v" * 100, id=b"%d" % number) == number
        writer.roll()
        jlog.Journal(path).clean()
        assert jlog.Journal(path).first_sequence == 200
        assert writer.append(b"v", id=b"0") == 0
    with jlog.Writer(path) as later:
        assert [later.append(b"v", id=b"%d" % number) for number in range(200)] == list(range(200))


def test_a_writer_that_has_missed_a_cleaning_knows_the_ids_of_what_it_has_not_seen(path):
    with jlog.Writer(path, **MANY_SEGMENTS) as one, jlog.Writer(path) as other:
        one.append(b"v", id=b"first")
        for number in range(200):
            other.append(b"v" * 100, id=b"%d" % number)
        with jlog.Writer(path, retention=jlog.Retention(delete_read=False, max_bytes=1)) as last:
            last.roll()
        jlog.Journal(path).clean()
        assert [one.append(b"v", id=b"%d" % number) for number in range(200)] == list(range(1, 201))


@pytest.mark.parametrize("damage", ["removed", "cut", "flipped", "another journal's"])
def test_without_the_file_of_ids_those_of_the_records_are_known(path, tmp_path, damage):
    with jlog.Writer(path) as writer:
        for number in range(10):
            writer.append(b"v", id=b"%d" % number)
    file = path / "ids"
    content = bytearray(file.read_bytes())
    if damage == "removed":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:20])
    elif damage == "flipped":
        content[33] ^= 1
        file.write_bytes(content)
    else:
        with jlog.Writer(tmp_path / "other") as other:
            other.append(b"v", id=b"1")
        file.write_bytes((tmp_path / "other" / "ids").read_bytes())
    with jlog.Writer(path) as writer:
        assert [writer.append(b"v", id=b"%d" % number) for number in range(10)] == list(range(10))
        assert writer.append(b"v", id=b"new") == 10


def test_a_backup_has_the_ids_of_removed_records(path, tmp_path):
    with jlog.Writer(path, **MANY_SEGMENTS, retention=jlog.Retention(delete_read=False, max_bytes=1)) as writer:
        for number in range(200):
            writer.append(b"v" * 100, id=b"%d" % number)
        writer.roll()
        jlog.Journal(path).clean()
    jlog.Journal(path).backup(tmp_path / "copy")
    with jlog.Writer(tmp_path / "copy") as copy:
        assert copy.append(b"v", id=b"7") == 7


def test_a_copy_whose_records_end_before_its_ids_gives_no_number_of_another_record(path):
    """As `cp -a` may leave it: the file `ids` was copied after the segments."""
    with jlog.Writer(path) as writer:
        writer.append(b"v", id=b"kept")
    write_ids(str(path), read_meta(str(path)), StoredIds(50, [(b"kept", 0, 0), (b"lost", 40, 0)]))
    with jlog.Writer(path) as writer:
        assert writer.append(b"v", id=b"lost") == 1
        assert writer.append(b"v", id=b"kept") == 0


def test_records_that_came_from_elsewhere_with_an_id_are_known(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"v", b"w"], headers=[{"jlog.id": b"1"}, None])
        assert writer.append(b"v", id=b"1") == 0
        assert writer.append(b"v", id=b"2") == 2


def test_with_sync_append_a_known_id_returns_once_its_record_is_durable(path):
    with jlog.Writer(path) as writer:
        writer.append(b"v", id=b"1")
        assert jlog.Journal(path).stats().durable_end == 0
        with jlog.Writer(path, sync="append") as strict:
            assert strict.append(b"v", id=b"1") == 0
            assert jlog.Journal(path).stats().durable_end == 1


def test_append_durable_takes_an_id(path):
    async def append():
        return await asyncio.gather(*(writer.append_durable(b"v", id=b"%d" % (number % 10)) for number in range(50)))

    with jlog.Writer(path) as writer:
        assert asyncio.run(append()) == list(range(10)) * 5
        assert jlog.Journal(path).stats().durable_end == 10


def test_threads_append_each_id_once(path, options):
    found = {}
    with jlog.Writer(path, **options) as writer, jlog.Writer(path) as plain:
        began = threading.Barrier(5)

        def append(thread):
            began.wait()
            found[thread] = [writer.append(b"%d" % number, id=b"%d" % number) for number in range(200)]

        def append_plain():
            began.wait()
            for _ in range(500):
                plain.append(b"plain")

        threads = [threading.Thread(target=append, args=(thread,)) for thread in range(4)]
        threads.append(threading.Thread(target=append_plain))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found[0] == found[1] == found[2] == found[3]
    assert [value for value in values(path) if value != b"plain"] == [b"%d" % number for number in range(200)]


def test_a_child_of_a_fork_knows_the_ids_of_its_parent_and_the_parent_those_of_the_child(path):
    run_python(f"""
writer = jlog.Writer({str(path)!r})
writer.append(b"v", id=b"parent")
writer.append(b"v")
with jlog.Writer({str(path)!r}) as other:
    other.append(b"v", id=b"other")
assert writer.append(b"v", id=b"other") == 2
pid = os.fork()
if pid == 0:
    assert writer.append(b"v", id=b"parent") == 0
    with jlog.Writer({str(path)!r}) as other:
        assert other.append(b"v", id=b"child") == 3
    assert writer.append(b"v", id=b"child") == 3
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert writer.append(b"v", id=b"child") == 3
""")


def test_a_full_disk_at_the_first_id_appends_nothing(path):
    run_python(f"""
with jlog.Writer({str(path)!r}) as writer:
    os.mkdir({str(path)!r} + "/.ids")
    os.mkdir({str(path)!r} + "/.ids/x")
    try:
        writer.append(b"v", id=b"1")
    except OSError:
        pass
    else:
        raise AssertionError
    assert writer.next_sequence == 0
    shutil.rmtree({str(path)!r} + "/.ids")
    assert writer.append(b"v", id=b"1") == 0
""")


def test_ids_that_were_loaded_from_an_empty_journal_see_what_others_append_first(path):
    with jlog.Writer(path) as writer, jlog.Writer(path) as other:
        ids = Ids(str(path), NEVER)
        other.append(b"v", id=b"1")
        assert ids.append(writer, b"v", None, None, None, b"1", NEVER) == 0
        ids.close()

"""After a backup was restored, numbers come again. What others have stored of the lost records does not count for new ones."""

import shutil

import pytest

import jlog
from behaviour.journals import values
from jlog.flow.journals import JournalSource
from jlog.positions import query_owners
from jlog.storage.epochs import ForeignPosition
from jlog.storage.meta import read_meta
from jlog.transform import transforming
from jlog.working.dead_letters import _letters_in
from jlog.working.retry import retry


@pytest.fixture
def dead(tmp_path):
    return tmp_path / "dead"


@pytest.fixture
def target(tmp_path):
    jlog.Journal.create(tmp_path / "target")
    return tmp_path / "target"


def back_up(path, target):
    jlog.Journal(path).backup(target)


def restore(target, path):
    shutil.rmtree(path)  # the disk dies
    shutil.copytree(target, path)


def reject(path, dead, *records):
    with jlog.Writer(path) as writer, jlog.Worker(path, "s", dead_letters=dead) as worker:
        writer.extend(records)
        for task in worker.take(len(records) + 10, timeout=0):
            task.reject("invalid")


def test_a_record_that_has_the_number_of_a_lost_one_gets_its_own_dead_letter(path, dead, tmp_path):
    reject(path, dead, b"A", b"B")
    back_up(path, tmp_path / "backup")
    reject(path, dead, b"lost")
    restore(tmp_path / "backup", path)
    reject(path, dead, b"new")
    assert values(dead) == [b"A", b"B", b"lost", b"new"]


def test_a_worker_that_was_there_before_the_new_epoch_began_knows_it(path, dead, tmp_path):
    with jlog.Writer(path) as writer:
        writer.append(b"kept")
    back_up(path, tmp_path / "backup")
    reject(path, dead, b"lost")
    restore(tmp_path / "backup", path)
    with jlog.Worker(path, "s", dead_letters=dead) as worker, jlog.Writer(path) as writer:
        writer.append(b"new")
        for task in worker.take(2):
            task.reject("invalid")
    assert values(dead) == [b"kept", b"lost", b"kept", b"new"]  # the backup does not know that the first one was finished


def test_restored_dead_letters_take_those_of_records_that_come_after(path, dead, tmp_path):
    reject(path, dead, b"A")
    back_up(dead, tmp_path / "backup")
    reject(path, dead, b"B")
    restore(tmp_path / "backup", dead)
    reject(path, dead, b"C")
    assert values(dead) == [b"A", b"C"]


def test_a_letter_that_has_the_number_of_a_lost_one_is_put_back(path, dead, target, tmp_path):
    reject(path, dead, b"A")
    assert retry(dead, target) == 1
    back_up(dead, tmp_path / "backup")
    reject(path, dead, b"B", b"C")
    assert retry(dead, target) == 2
    for more in (b"D", b"E"):  # the second time no journal knows the epoch that the first time began
        restore(tmp_path / "backup", dead)
        reject(path, dead, more)
        assert retry(dead, target) == 1
        assert retry(dead, target) == 0
    assert values(target) == [b"A", b"B", b"C", b"D", b"E"]


def test_new_letters_go_into_a_restored_journal_and_lost_ones_on_request(path, dead, target, tmp_path):
    reject(path, dead, b"A")
    assert retry(dead, target) == 1
    back_up(target, tmp_path / "backup")
    reject(path, dead, b"B", b"C")
    assert retry(dead, target) == 2
    restore(tmp_path / "backup", target)
    assert retry(dead, target) == 0
    jlog.Journal(dead).set_subscriber("work-retry", "begin")
    reject(path, dead, b"D")
    assert retry(dead, target) == 3
    assert values(target) == [b"A", b"B", b"C", b"D"]


def test_a_number_of_an_earlier_version_counts_below_the_present_epoch(path, tmp_path):
    with jlog.Writer(path) as writer:
        writer.extend([b"x"] * 10)
    assert _letters_in(b"[2, 3, 12]", read_meta(str(path)))[1] == [
        str(ForeignPosition.of(read_meta(str(path)), sequence)) for sequence in (4, 13)
    ]
    back_up(path, tmp_path / "backup")
    with jlog.Writer(tmp_path / "backup") as writer:
        writer.extend([b"y"] * 10)
    meta = read_meta(str(tmp_path / "backup"))
    assert len(meta.epochs) == 2
    assert _letters_in(b"[2, 3, 12]", meta) == (2, [str(ForeignPosition.of(meta, 4))])


def refuse_all(path, target, dead):
    def refuse(record):
        raise ValueError(record.value)

    jlog.transform(path, target, refuse, refused="dead-letter", dead_letter=dead)


@pytest.mark.parametrize("sink_too", [False, True])
def test_a_refused_record_that_has_the_number_of_a_lost_one_gets_its_own_dead_letter(path, dead, tmp_path, sink_too):
    """A transform notices that its source was restored, where the sink was not, and goes on where it is told to."""
    target = tmp_path / "clean"
    with jlog.Writer(path) as writer:
        writer.append(b"A")
    refuse_all(path, target, dead)
    back_up(path, tmp_path / "backup")
    back_up(target, tmp_path / "sink")
    for more in (b"lost", b"B"):
        with jlog.Writer(path) as writer:
            writer.append(more)
        if more == b"B" and not sink_too:
            with pytest.raises(jlog.JournalError, match="ends with 0"):
                refuse_all(path, target, dead)
            transforming(path, target, lambda record: record).set_position(1)
        refuse_all(path, target, dead)
        if more == b"lost":
            restore(tmp_path / "backup", path)
            if sink_too:
                restore(tmp_path / "sink", target)
    assert values(dead) == [b"A", b"lost", b"B"]


def test_a_topic_with_records_that_its_journal_lost_cannot_have_standbys_any_more(path, tmp_path):
    """A standby takes a record with a number that it has for one that was sent again."""
    with jlog.Writer(path) as writer:
        writer.extend([b"A", b"B"])
    back_up(path, tmp_path / "backup")
    with jlog.Writer(path) as writer:
        writer.append(b"lost")
    source = JournalSource(path, "mirror", for_standby=True)
    source.read(3, 0)
    stored = source.source_positions()
    source.close()
    restore(tmp_path / "backup", path)
    with jlog.Writer(path) as writer:
        writer.append(b"C")
    source = JournalSource(path, "mirror", for_standby=True)
    with pytest.raises(jlog.JournalError, match="ends with 1"):
        source.resume(stored)
    with pytest.raises(jlog.JournalError, match="make new standbys"):
        source.positions_at(2, None, stored)
    source.close()


def test_a_subscriber_of_a_query_is_free_in_a_copy(path, tmp_path):
    jlog.Journal.create(path)
    jlog.Journal(path).add_subscriber("lake")
    assert query_owners.claim(str(path), "lake", "first", None).query == "first"
    shutil.copytree(path, tmp_path / "copy")
    with jlog.Writer(tmp_path / "copy") as writer:
        writer.append(b"x")
    assert query_owners.owner_of(str(tmp_path / "copy"), "lake") is None
    assert query_owners.claim(str(tmp_path / "copy"), "lake", "second", None).query == "second"
    assert query_owners.owner_of(str(tmp_path / "copy"), "lake").query == "second"
    assert query_owners.owner_of(str(path), "lake").query == "first"


def test_a_claim_of_an_earlier_version_holds(path):
    jlog.Journal.create(path)
    (path / "work").mkdir()
    (path / "work" / "lake.query").write_text('{"query": "first", "checkpoint": null, "host": "h", "since": "s"}')
    assert query_owners.owner_of(str(path), "lake").query == "first"

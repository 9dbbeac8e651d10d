"""A durable ack survives a power loss, and it writes the same amount however many records are unfinished."""

import json
import logging

import pytest

import jlog
from jlog._core.format.checksum import crc32c
from jlog.positions import work_files
from jlog.storage.meta import read_meta


@pytest.fixture
def file(path):
    return path / "work" / "s.work"


def fill(path, count):
    with jlog.Writer(path) as writer:
        writer.extend([b"%d" % number for number in range(count)])


def sequences(tasks):
    return [task.sequence for task in tasks]


def lose_the_window(path):
    """As a power loss does."""
    (path / "work" / "s.window").unlink()


def left(path, **options):
    with jlog.Worker(path, "s", **options) as worker:
        return sequences(worker.take(10_000, timeout=0))


def identity(file):
    return file.stat().st_ino, file.stat().st_size


@pytest.mark.parametrize("delayed", [10, 3000])
def test_a_durable_ack_writes_as_much_beside_many_delayed_records(path, file, delayed):
    fill(path, delayed + 20)
    with jlog.Worker(path, "s") as worker:
        for task in worker.take(delayed, timeout=0):
            task.nack(delay=3600)
        tasks = worker.take(20, timeout=0)
        tasks[0].ack(durable=True)
        inode, size = identity(file)
        for task in tasks[1:]:
            task.ack(durable=True)
        assert identity(file)[0] == inode
        assert identity(file)[1] - size < 19 * 100
    lose_the_window(path)
    assert left(path) == list(range(delayed))


def test_a_rejection_with_a_dead_letter_does_not_list_the_unfinished_records(path, file, tmp_path):
    fill(path, 3020)
    with jlog.Worker(path, "s", dead_letters=tmp_path / "dead") as worker:
        for task in worker.take(3000, timeout=0):
            task.nack(delay=3600)
        tasks = worker.take(20, timeout=0)
        tasks[0].reject("bad")
        inode, size = identity(file)
        for task in tasks[1:]:
            task.reject("bad")
        assert identity(file)[0] == inode
        assert identity(file)[1] - size < 19 * 100
        state = next(iter(jlog.Journal(tmp_path / "dead").state().values()))
        assert len(json.loads(state)) == 2  # the number of rewinds, and the last letter


def test_records_that_were_passed_later_keep_the_order_of_their_key(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"x"] * 8, [b"a", b"b"] * 4)
    with jlog.Worker(path, "s", order="key") as worker:
        for _ in range(2):
            for task in worker.take(2, timeout=0):
                task.ack(durable=True)
    lose_the_window(path)
    with jlog.Worker(path, "s") as worker:
        assert sequences(worker.take(10, timeout=0)) == [4, 5]  # one of each key


def finish_all_but_the_first(path, count):
    """The first record holds the committed position, which would tell too what is finished."""
    fill(path, count + 1)
    with jlog.Worker(path, "s") as worker:
        for task in worker.take(count, timeout=0)[1:]:
            task.ack(durable=True)


def test_a_torn_last_line_does_not_count_and_the_next_sync_replaces_the_file(path, file):
    finish_all_but_the_first(path, 4)
    content = file.read_bytes()
    lose_the_window(path)
    file.write_bytes(content[:-3])  # the inode is the same
    with jlog.Worker(path, "s") as worker:
        tasks = worker.take(10, timeout=0)
        assert sequences(tasks) == [0, 3, 4]
        tasks[1].ack(durable=True)
    lose_the_window(path)
    assert left(path) == [0, 4]


def test_wherever_a_power_loss_cuts_the_file_the_lines_before_count(path, file):
    finish_all_but_the_first(path, 5)
    content = file.read_bytes()
    meta = read_meta(str(path))
    first = content.index(b"\n", content.index(b"\n") + 1) + 1
    for cut in range(first, len(content)):
        file.write_bytes(content[:cut])
        lines = content[first:cut].count(b"\n")
        copy = work_files.read(str(path), meta, "s")
        finished = set(range(copy.next_sequence)) - {entry[0] for entry in copy.unfinished}
        assert finished == set(range(1, 1 + lines))


def test_a_damaged_line_before_others_is_told_and_loses_no_record(path, file, caplog):
    finish_all_but_the_first(path, 5)
    lines = file.read_bytes().split(b"\n")
    assert len(lines) == 2 + 4 + 1
    lines[3] = lines[3].replace(b"finished", b"finishes")
    lose_the_window(path)
    file.write_bytes(b"\n".join(lines))
    with caplog.at_level(logging.WARNING):
        assert left(path) == [0, 2, 3, 4, 5]
    assert "line 4 has another checksum" in caplog.text


def test_more_finishes_than_the_window_remembers_are_all_synced(path, file):
    fill(path, 5_005)
    with jlog.Worker(path, "s") as worker:
        worker.sync_finishes()
        before = identity(file)
        worker.ack(worker.take(5_000, timeout=0), durable=True)
        assert identity(file)[0] != before[0]
    lose_the_window(path)
    assert left(path) == list(range(5_000, 5_005))


def test_the_lines_do_not_become_much_longer_than_the_copy(path, file, monkeypatch):
    monkeypatch.setattr(work_files, "LINES_BYTES_MIN", 500)
    fill(path, 100)
    with jlog.Worker(path, "s") as worker:
        for task in worker.take(100, timeout=0):
            task.ack(durable=True)
            assert file.stat().st_size < 4_500
    lose_the_window(path)
    assert left(path) == []


def test_options_of_another_worker_keep_what_is_finished(path):
    fill(path, 5)
    for number in range(3):
        with jlog.Worker(path, "s", max_attempts=3 + number) as worker:
            worker.take(1, timeout=0)[0].ack(durable=True)
    lose_the_window(path)
    assert left(path) == [3, 4]


def test_a_file_of_version_1_is_read(path, file):
    fill(path, 6)
    with jlog.Worker(path, "s") as worker:
        worker.ack(worker.take(2, timeout=0), durable=True)
    fields = json.loads(file.read_bytes().split(b"\n")[1])
    body = json.dumps(fields | {"next_sequence": 5, "unfinished": [[3, 0, 2]]}).encode()
    file.write_bytes(b"jlog work 1 crc32c=%08x\n%b" % (crc32c(body), body))
    lose_the_window(path)
    assert left(path) == [3, 5]

"""What may happen to a mirror and to its broker: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import threading

import pytest

import jlog
from behaviour.elsewhere import run_with_mount, small_disk
from crash.tampering import another_boot, newest_segment, zero
from jlog.kafka import Capture, Fenced, Mirror, status, verify
from kafka.processes import Process, discard, run_to_end
from kafka.witness import Witness, fields_of_journal, numbered, wait_until

KILLS = 30
RECORDS = 1_000_000


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def processes():
    started = []

    def start(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield start
    discard(started)


def fill(journal, records, first=0):
    with jlog.Writer(journal) as writer:
        for at in range(first, first + records, 1000):
            writer.extend(numbered(min(1000, first + records - at), at))


def position(journal):
    """Of the next record to be mirrored, as the last transaction has left it."""
    return max((at.sequence for at in jlog.Journal(journal).subscribers().values()), default=0)


def is_captured(journal):
    try:
        return len(jlog.Journal(journal)) > 0
    except jlog.JournalNotFound:
        return False


# --- The mirror is killed, stopped, or there twice ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_mirror_killed_thirty_times_delivers_a_million_records_once(
    journal, url, witness, topic, processes
):
    fill(journal, RECORDS)
    chance = random.Random(0)
    ended_by_themselves = 0
    for _ in range(KILLS):
        mirror = processes("to-kafka", journal, url, "--rate", 40_000)
        ended_by_themselves += not mirror.runs_for(chance.uniform(0.5, 2.5))
        mirror.kill()
    assert ended_by_themselves == 0
    assert 0 < position(journal) < RECORDS, "the kills were not within the records"
    run_to_end("to-kafka", journal, url)
    witness.check_numbered(topic, RECORDS)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_capture_killed_at_random_has_every_message_once(journal, url, witness, topic, processes):
    records = 200_000
    witness.make(topic)
    witness.produce(topic, numbered(records), transactions=1000)
    chance = random.Random(1)
    for _ in range(10):
        capture = processes("from-kafka", url, journal, "--rate", 20_000)
        assert capture.runs_for(chance.uniform(0.5, 2))
        capture.kill()
    run_to_end("from-kafka", url, journal)
    with jlog.Reader(journal) as reader:
        assert list(reader.values()) == numbered(records)
    assert verify(journal, url).compared == records


def test_a_second_mirror_of_the_same_subscriber_is_refused(journal, url, witness, topic, processes):
    fill(journal, 10)
    first = processes("to-kafka", journal, url)
    wait_until(lambda: position(journal) == 10)
    code, said = processes("to-kafka", journal, url).wait()
    assert code == 1
    assert "is read by another Reader" in said
    fill(journal, 10, 10)
    wait_until(lambda: position(journal) == 20)
    assert first.end() == (0, "")
    witness.check_numbered(topic, 20)


def test_a_second_mirror_under_another_name_takes_over_and_the_first_ends(
    journal, url, witness, topic, processes
):
    fill(journal, 10)
    first = processes("to-kafka", journal, url)
    wait_until(lambda: position(journal) == 10)
    owner = status(journal, url).owner["pid"]
    second = processes("to-kafka", journal, url, "--subscriber", "another")
    wait_until(lambda: status(journal, url).owner["pid"] != owner)
    fill(journal, 20, 10)
    code, said = first.wait()
    assert code == 1
    assert "has taken over" in said
    wait_until(lambda: position(journal) == 30)
    assert second.end() == (0, "")
    witness.check_numbered(topic, 30)


def test_a_stopped_mirror_that_wakes_after_another_has_gone_on_adds_nothing(
    journal, url, witness, topic, processes
):
    """It is stopped in the middle of a transaction."""
    fill(journal, 50_000)
    stopped = processes("to-kafka", journal, url, "--rate", 10_000)
    wait_until(lambda: position(journal) > 0)
    stopped.pause()
    run_to_end("to-kafka", journal, url, "--subscriber", "another")
    stopped.resume()
    code, said = stopped.wait()
    assert code == 1
    assert "has taken over" in said
    witness.check_numbered(topic, 50_000)


def test_of_two_mirrors_in_turns_each_record_comes_from_one(journal, url, witness, topic):
    """Every step of one fences the other, which is told so and begins anew where the topic stands."""
    with jlog.Writer(journal) as writer:
        mirrors = [Mirror(journal, url, subscriber=name) for name in ("a", "b")]
        try:
            mirrors[0].step()
            mirrors[1].step()
            writer.extend(numbered(10))
            with pytest.raises(Fenced):
                mirrors[0].step()
            assert mirrors[1].step() == 10
        finally:
            for mirror in mirrors:
                mirror.close()
    witness.check_numbered(topic, 10)


def test_sigterm_commits_what_is_under_way_and_ends_with_0(journal, url, witness, topic, processes):
    fill(journal, 100_000)
    mirror = processes("to-kafka", journal, url, "--rate", 20_000)
    wait_until(lambda: position(journal) > 0)
    assert mirror.end() == (0, "")
    assert len(witness.values(topic)) == position(journal) < 100_000
    run_to_end("to-kafka", journal, url)
    witness.check_numbered(topic, 100_000)


# --- The broker is killed, hangs, is away ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_and_comes_back_has_every_record_once(journal, own_broker, processes, topic):
    broker = own_broker()
    url = f"kafka://{broker.address}/{topic}"
    fill(journal, 200_000)
    mirror = processes("to-kafka", journal, url, "--rate", 20_000)
    for moved in (1, 60_000, 120_000):
        wait_until(lambda moved=moved: position(journal) >= moved)
        broker.kill()
        broker.start()
    wait_until(lambda: position(journal) == 200_000)
    assert mirror.end()[0] == 0
    Witness(broker.address).check_numbered(topic, 200_000)


SHORT = {"transaction.timeout.ms": 4000, "message.timeout.ms": 3000, "socket.timeout.ms": 2000}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_that_is_away_for_longer_than_every_timeout_costs_nothing_but_time(
    journal, own_broker, topic
):
    broker = own_broker()
    url = f"kafka://{broker.address}/{topic}"
    events = []
    with jlog.Writer(journal) as writer:
        mirror = Mirror(journal, url, config=SHORT, on_event=events.append)
        thread = threading.Thread(target=mirror.run)
        thread.start()
        try:
            writer.extend(numbered(1000))
            wait_until(lambda: mirror.stats.records == 1000)
            broker.kill()
            writer.extend(numbered(1000, 1000))
            wait_until(lambda: mirror.stats.retries >= 2)
            broker.start()
            wait_until(lambda: mirror.stats.records == 2000)
        finally:
            mirror.stop()
            thread.join()
    assert "trying again" in events[0]
    Witness(broker.address).check_numbered(topic, 2000)


@pytest.mark.slow
def test_too_few_replicas_are_told_and_nothing_is_lost(journal, url, witness, topic):
    """The client itself says only that deliveries timed out."""
    witness.make(topic, min_insync_replicas=2)
    with jlog.Writer(journal) as writer:
        writer.extend(numbered(10))
        mirror = Mirror(journal, url, config=SHORT)
        try:
            while not mirror.stats.retries:
                mirror.step(timeout=0.1)
            assert "min.insync.replicas=2" in mirror.stats.last_error
            witness.configure(topic, min_insync_replicas=1)
            while not mirror.stats.records:
                mirror.step(timeout=0.1)
        finally:
            mirror.close()
    witness.check_numbered(topic, 10)


MEGABYTES = 300
PEAK_MEGABYTES = (
    250  # the interpreter, the client's queue of 64 MiB, what it compresses, and a transaction's read
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_memory_is_bounded_whatever_the_lag(journal, url, witness, topic, tmp_path):
    with jlog.Writer(journal) as writer:
        for _ in range(MEGABYTES):
            writer.extend([os.urandom(1000) for _ in range(1000)])
    back = tmp_path / "back"
    for arguments in (("to-kafka", journal, url), ("from-kafka", url, back)):
        process = Process(*arguments, "--until-end")
        assert process.peak_megabytes() < PEAK_MEGABYTES
    assert len(jlog.Journal(back)) == MEGABYTES * 1000


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["hangs", "is gone"])
@pytest.mark.parametrize("direction", ["to-kafka", "from-kafka"])
def test_sigterm_ends_it_also_while_the_broker(own_broker, journal, topic, processes, direction, how):
    broker = own_broker()
    url = f"kafka://{broker.address}/{topic}"
    fill(journal, 100_000)
    run_to_end("to-kafka", journal, url)
    fill(journal, 10_000, 100_000)
    other = journal.with_name("other")
    arguments = (journal, url) if direction == "to-kafka" else (url, other)
    running = processes(direction, *arguments, "--rate", 2_000)
    if direction == "to-kafka":
        wait_until(lambda: position(journal) > 100_000)
    else:
        wait_until(lambda: is_captured(other))
    broker.pause() if how == "hangs" else broker.kill()
    assert running.runs_for(1)
    assert running.end()[0] == 0
    broker.resume() if how == "hangs" else broker.start()
    run_to_end(direction, *arguments)
    Witness(broker.address).check_numbered(topic, 110_000 if direction == "to-kafka" else 100_000)
    if direction == "from-kafka":
        with jlog.Reader(other) as reader:
            assert list(reader.values()) == numbered(100_000)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_capture_outlives_its_broker(own_broker, journal, topic):
    broker = own_broker()
    witness = Witness(broker.address)
    witness.make(topic)
    witness.produce(topic, numbered(1000), transactions=10)
    capture = Capture(f"kafka://{broker.address}/{topic}", journal)
    thread = threading.Thread(target=capture.run)
    thread.start()
    try:
        wait_until(lambda: capture.stats.records == 1000)
        broker.kill()
        broker.start()
        witness.produce(topic, numbered(1000, 1000), transactions=10)
        wait_until(lambda: capture.stats.records == 2000)
    finally:
        capture.stop()
        thread.join()
    with jlog.Reader(journal) as reader:
        assert list(reader.values()) == numbered(2000)


# --- Retention, disks, power ----------------------------------------------------------------------------------------


def test_retention_of_the_journal_that_overtakes_a_mirror_is_told_with_the_range(
    journal, url, witness, topic
):
    with jlog.Writer(journal, precommit=4 << 10, segment_bytes=4 << 10) as writer:
        writer.extend(numbered(100))
        Mirror(journal, url, until_end=True).run()
        jlog.Journal(journal).remove_subscriber(f"kafka:{topic}")
        writer.extend(numbered(100, 100))
        writer.roll()
        writer.extend(numbered(100, 200))
        with jlog.Reader(journal, "the only one", start="end") as reader:
            reader.commit()
        assert jlog.Journal(journal).first_sequence == 200
        with pytest.raises(jlog.PositionLost, match="records 100 to 199"):
            Mirror(journal, url, until_end=True).run()
        events = []
        stats = Mirror(journal, url, until_end=True, skip_missing=True, on_event=events.append).run()
    assert stats.missing == 100
    assert "records 100 to 199" in events[0]
    assert witness.values(topic) == numbered(100) + numbered(100, 200)


@pytest.mark.slow
def test_a_capture_onto_a_full_disk_goes_on_when_there_is_space(tmp_path, broker, witness, topic):
    disk = tmp_path / "disk"
    disk.mkdir()
    witness.make(topic)
    witness.produce(topic, [b"%d " % n + bytes(1000) for n in range(5000)], transactions=500)
    run_with_mount(
        small_disk(disk, "8m"),
        f"""
        import oracle
        from jlog.kafka import Capture, verify
        url, path = "kafka://{broker.address}/{topic}", {str(disk)!r} + "/j"
        with open({str(disk)!r} + "/ballast", "wb") as ballast:
            ballast.write(bytes(4 << 20))
        try:
            Capture(url, path, until_end=True, segment_bytes=1 << 20).run()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
        else:
            raise AssertionError("the disk was not full")
        got = len(jlog.Journal(path))
        assert got < 5000, got
        os.unlink({str(disk)!r} + "/ballast")
        Capture(url, path, until_end=True).run()
        with jlog.Reader(path) as reader:
            assert [int(value.split()[0]) for value in reader.values()] == list(range(5000))
        assert verify(path, url).compared == 5000
        oracle.check_journal(path)
        """,
    )


def test_a_journal_that_loses_its_tail_in_a_power_loss_has_lost_nothing_that_was_mirrored(
    spawn, journal, url, witness, topic
):
    child = spawn()
    child.call("open_writer", "w", str(journal), {"precommit": 4 << 10})
    child.call("append", "w", 10, 100)
    Mirror(journal, url, until_end=True).run()  # syncs before it commits
    synced = jlog.Journal(journal).segments()[-1].size_bytes
    child.call("append", "w", 10, 100)
    child.kill()
    another_boot(journal)
    zero(journal / "precommit")
    with open(newest_segment(journal), "r+b") as file:
        file.truncate(synced)
    with jlog.Writer(journal) as writer:
        assert writer.append(b"after") > 20
    assert Mirror(journal, url, until_end=True).run().records == 1
    assert len(witness.values(topic)) == 11
    assert witness.fields(topic)[-1:] == fields_of_journal(
        journal
    )  # the others have been removed by retention
    found = verify(journal, url)
    assert (found.ok, found.compared, found.gone) == (True, 1, 10)


def test_a_journal_that_was_set_back_stops_the_mirror_with_what_to_do(journal, url, witness, topic):
    """As a file system does that is set back to a snapshot: the files are the same ones, with what they had before."""
    fill(journal, 10)
    before = {path: path.read_bytes() for path in journal.rglob("*") if path.is_file()}
    fill(journal, 10, 10)
    Mirror(journal, url, until_end=True).run()
    for path in [path for path in journal.rglob("*") if path.is_file() and path not in before]:
        path.unlink()
    for path, content in before.items():
        with open(path, "r+b") as file:
            file.truncate(0)
            file.write(content)
    fill(journal, 1, 1000)
    with pytest.raises(jlog.JournalError, match="lost its tail") as caught:
        Mirror(journal, url, until_end=True).run()
    assert "--resume-at 11" in str(caught.value)
    Mirror(journal, url, until_end=True, resume_at=10).run()
    assert witness.values(topic) == [*numbered(20), b"1000"]


def test_an_older_copy_of_the_journal_stops_the_mirror(journal, url, tmp_path):
    import shutil

    fill(journal, 10)
    shutil.copytree(journal, tmp_path / "backup")
    fill(journal, 10, 10)
    Mirror(journal, url, until_end=True).run()
    shutil.rmtree(journal)
    shutil.move(tmp_path / "backup", journal)
    fill(journal, 100, 10)
    with pytest.raises(jlog.JournalError, match="older copy"):
        Mirror(journal, url, until_end=True).run()

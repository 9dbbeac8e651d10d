"""A standby: the same records under the same sequences, and it takes over."""

from __future__ import annotations

import random
import time

import pytest

import jlog
from crash.tampering import another_boot
from jlog.care.numbering import continue_at
from jlog.kafka import Mirror, Standby, TopicChanged, promote, verify
from kafka.processes import Process, captured, position
from kafka.test_topology import add_partitions
from patience import wait_until

NOW_US = int(time.time() * 1e6)  # brokers remove records with old times at once


@pytest.fixture
def primary(tmp_path):
    return tmp_path / "primary"


@pytest.fixture
def standby(tmp_path):
    return tmp_path / "standby"


def mirror(journal, url, **options):
    return Mirror(journal, url, until_end=True, standby=True, **options).run()


def follow(url, journal):
    return Standby(url, journal, until_end=True).run()


def records(journal):
    with jlog.Reader(journal) as reader:
        return [(r.sequence, r.value, r.key, tuple(r.headers), r.timestamp_us) for r in reader]


def positions(journal):
    opened = jlog.Journal(journal)
    return [{name: at.sequence for name, at in found.items()} for found in (opened.subscribers(), opened.checkpoints())]


def fill(journal, count, first=0, seed=1):
    """Records of all kinds, each with a time to the microsecond."""
    chosen = random.Random(seed)
    # What the mirror has read is there to be compared.
    with jlog.Writer(journal, retention=jlog.Retention(delete_read=False)) as writer:
        for number in range(first, first + count):
            key = chosen.choice([None, b"", b"%d" % (number % 7)])
            headers = [("name", None), ("name", b"%d" % number)] if number % 3 == 0 else []
            writer.append(chosen.choice([b"%d" % number, b"", None]), key=key, headers=headers, timestamp_us=NOW_US + number)


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_standby_has_the_same_records(primary, standby, url, partitions):
    fill(primary, 5000)
    mirror(primary, url, partitions=partitions)
    assert follow(url, standby).records == 5000
    assert records(standby) == records(primary)
    fill(primary, 3000, 5000)
    mirror(primary, url)
    assert follow(url, standby).records == 3000
    assert follow(url, standby).records == 0
    assert records(standby) == records(primary)


def test_gaps_are_the_same(primary, standby, url, witness, topic):
    """Numbers that the journal never gave out, and records that the topic refused."""
    witness.make(topic, partitions=3, max_message_bytes=2000)
    jlog.Journal.create(primary)
    continue_at(str(primary), 1000)
    fill(primary, 2000)
    with jlog.Writer(primary) as writer:
        refused = writer.append(bytes(5000))
    fill(primary, 2000)
    continue_at(str(primary), 9000)
    fill(primary, 2000)
    mirror(primary, url, refused="skip")
    follow(url, standby)
    assert records(standby) == [record for record in records(primary) if record[0] != refused]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_without_its_first_records_makes_no_standby(primary, standby, url, witness, topic, partitions):
    """A standby with skip_missing begins after them, and says so: from there on it has every record."""
    fill(primary, 3000)
    mirror(primary, url, partitions=partitions)
    witness.remove_before(topic, 300)
    with pytest.raises(jlog.PositionLost, match="retention has removed offsets 0 to 299 of partition 0"):
        follow(url, standby)
    said = []
    stats = Standby(url, standby, until_end=True, skip_missing=True, on_event=said.append).run()
    begin = next(r[0] for r in records(standby))
    assert 300 <= begin < 3000
    assert stats.records == 3000 - begin
    assert records(standby) == records(primary)[begin:]
    assert f"this standby has no records 0 to {begin - 1}" in said[0]
    fill(primary, 100, 3000)
    mirror(primary, url)
    follow(url, standby)
    assert records(standby) == records(primary)[begin:]
    assert promote(url, standby).sequence == 3100


def test_a_standby_that_retention_overtakes_goes_on_after_what_is_gone(primary, standby, url, witness, topic):
    fill(primary, 1000)
    mirror(primary, url)
    follow(url, standby)
    fill(primary, 1000, 1000)
    mirror(primary, url)
    witness.remove_before(topic, witness.end(topic) - 100)
    with pytest.raises(jlog.PositionLost):
        follow(url, standby)
    Standby(url, standby, until_end=True, skip_missing=True).run()
    found = records(standby)
    begin = found[1000][0]
    assert begin > 1800
    assert found == records(primary)[:1000] + records(primary)[begin:]


def test_retention_of_what_a_standby_has_read_is_not_a_loss(primary, standby, url, witness, topic):
    """This holds also for the end of the last transaction, which comes after the last record."""
    for first in (0, 10, 20):
        fill(primary, 10, first)
        mirror(primary, url)
        assert follow(url, standby).records == 10
        witness.remove_before(topic, -1)
    assert records(standby) == records(primary)


def test_records_that_were_in_the_topic_before_the_mirror_are_not_its_own(primary, standby, url, witness, topic):
    witness.make(topic)
    witness.produce(topic, [b"foreign"])
    fill(primary, 10)
    mirror(primary, url)
    follow(url, standby)
    assert records(standby) == records(primary)


def test_positions_follow(primary, standby, url):
    fill(primary, 1000)
    journal = jlog.Journal(primary)
    journal.add_subscriber("billing", 400)
    journal.add_subscriber("gone", 10)
    journal.set_checkpoint("before the deploy", 300)
    mirror(primary, url)
    follow(url, standby)
    assert positions(standby) == [{"billing": 400, "gone": 10}, {"before the deploy": 300}]
    journal.set_subscriber("billing", 900)
    journal.remove_subscriber("gone")
    journal.set_checkpoint("after it", 950)
    mirror(primary, url)
    follow(url, standby)
    assert positions(standby) == [{"billing": 900}, {"before the deploy": 300, "after it": 950}]


def test_a_power_loss_costs_a_standby_no_numbers(primary, standby, url):
    fill(primary, 100)
    mirror(primary, url)
    running = Standby(url, standby)
    while running.stats.records < 100:
        running.step(timeout=0.1)
    another_boot(standby)  # while it has not been closed
    fill(primary, 100, 100)
    mirror(primary, url)
    pid = Process("standby", url, standby, "--until-end")
    running.close()
    code, said = pid.wait()
    assert code in (0, 1), said
    follow(url, standby)
    assert records(standby) == records(primary)


def test_a_standby_takes_over(primary, standby, url, witness, topic):
    fill(primary, 1000)
    jlog.Journal(primary).add_subscriber("billing", 600)
    mirror(primary, url, partitions=2)
    fill(primary, 50, 1000)
    follow(url, standby)
    found = promote(url, standby)
    assert (found.sequence, found.not_mirrored) == (1000, 0)
    with jlog.Reader(standby, "billing") as reader:
        assert reader.position == 600
    with pytest.raises(jlog.JournalError, match="has taken over at sequence 1000; 50 records from there on"):
        mirror(primary, url)
    fill(standby, 10, 5000)
    mirror(standby, url)
    assert verify(standby, url).ok
    assert len(witness.fields(topic)) == 1010
    third = standby.with_name("third")
    follow(url, third)
    assert records(third) == records(standby)


def test_a_mirror_that_runs_is_fenced_by_the_takeover(primary, standby, url, processes, witness, topic):
    """All that the first host had mirrored is in the standby, and its mirror ends."""
    fill(primary, 20_000)
    mirror(primary, url)
    running = processes("to-kafka", primary, url, "--standby")
    follow(url, standby)
    fill(primary, 20_000, 20_000)
    found = promote(url, standby)
    assert records(standby) == records(primary)[: found.sequence]
    fill(primary, 100, 40_000)
    code, said = running.wait()
    assert code == 1
    assert "taken over" in said
    assert len(witness.fields(topic)) == found.sequence


def test_a_mirror_that_is_started_again_and_again_does_not_keep_a_standby_from_taking_over(primary, standby, url, monkeypatch):
    """A supervisor starts it again and again, on a first host that is not dead."""
    fill(primary, 100)
    mirror(primary, url)
    follow(url, standby)
    run, said = Standby.run, []

    def started_again(self):
        stats = run(self)
        fill(primary, 10, 100)
        try:
            mirror(primary, url)
        except jlog.JournalError as error:
            said.append(str(error))
        return stats

    monkeypatch.setattr(Standby, "run", started_again)
    assert promote(url, standby).sequence == 110
    assert "has taken over at sequence 110" in said[0]
    assert records(standby) == records(primary)[:110]


def test_a_killed_takeover_is_done_again(primary, standby, url, processes):
    fill(primary, 1000)
    mirror(primary, url)
    follow(url, standby)
    for moment in (0.3, 0.6, 0.9, 1.2):
        taking = processes("promote", url, standby)
        if not taking.runs_for(moment):
            break
        taking.kill()
    if b"jlog.source:standby" in jlog.Journal(standby).state():
        assert promote(url, standby).sequence == 1000
    with jlog.Writer(standby) as writer:
        assert writer.append(b"first of its own") == 1000
    mirror(standby, url)


def test_a_standby_that_is_killed_goes_on(primary, standby, url, processes):
    fill(primary, 20_000)
    mirror(primary, url, partitions=3)
    done = 0
    while done < 20_000:
        running = processes("standby", url, standby)
        before = done
        wait_until(lambda before=before: captured(standby) > before)
        running.kill()
        done = len(jlog.Journal(standby))
    assert records(standby) == records(primary)


def test_what_no_standby_can_be_made_of_is_refused(primary, standby, url, witness, topic, tmp_path):
    fill(primary, 10)
    Mirror(primary, url, until_end=True).run()
    with pytest.raises(jlog.JournalError, match="to-kafka --standby"):
        follow(url, standby)
    assert not standby.exists()
    mirror(primary, url)
    with pytest.raises(jlog.JournalError, match=r"has no header jlog\.kafka\.sequence"):
        follow(url, standby)
    own = tmp_path / "own"
    fill(own, 10)
    with pytest.raises(jlog.JournalError, match="is not a standby"):
        follow(url, own)
    witness.delete(topic)
    witness.make(topic)
    with pytest.raises(TopicChanged):
        mirror(primary, url)


def test_a_standby_that_others_wrote_to_is_none(primary, standby, url):
    """Otherwise records of the mirror would be taken for records that are there."""
    fill(primary, 10)
    mirror(primary, url)
    follow(url, standby)
    fill(standby, 5)
    fill(primary, 10, 10)
    mirror(primary, url)
    with pytest.raises(jlog.JournalError, match="records from 10 on did not come from the mirror"):
        follow(url, standby)


def test_a_standby_has_one_writer(primary, standby, url, spawn):
    fill(primary, 10)
    mirror(primary, url)
    running = Standby(url, standby)
    running.step(timeout=1)
    for other in (lambda: Standby(url, standby), lambda: promote(url, standby)):
        with pytest.raises(jlog.JournalLocked):
            other()
    child = spawn()
    assert "exclusive=True" in child.call("fails_to_open", str(standby), 1)
    running.close()


def test_a_takeover_while_the_standby_runs_fences_nothing(primary, standby, url, processes):
    """The promotion is refused before it does anything, and the mirror goes on."""
    fill(primary, 10)
    running = processes("to-kafka", "--standby", primary, url)
    wait_until(lambda: position(primary) == 10)
    follower = processes("standby", url, standby)
    wait_until(lambda: captured(standby) == 10)
    with pytest.raises(jlog.JournalLocked):
        promote(url, standby)
    fill(primary, 10, 10)
    wait_until(lambda: captured(standby) == 20)
    assert (running.end()[0], follower.end()[0]) == (0, 0)


def test_of_two_standbys_one_takes_over(primary, standby, url, tmp_path):
    fill(primary, 10)
    mirror(primary, url)
    other = tmp_path / "other"
    for journal in (standby, other):
        follow(url, journal)
    promote(url, standby)
    with pytest.raises(jlog.JournalError, match=r"another standby, .* has taken over"):
        promote(url, other)


def test_records_in_an_added_partition_are_not_a_gap(primary, standby, url, witness, topic):
    fill(primary, 100)
    mirror(primary, url)
    following = Standby(url, standby)
    while captured(standby) < 100:
        following.step(timeout=0.1)
    add_partitions(witness, topic, 4)
    fill(primary, 5000, 100)
    mirror(primary, url)
    while captured(standby) < 5100:
        following.step(timeout=0.1)
    following.close()
    assert records(standby) == records(primary)

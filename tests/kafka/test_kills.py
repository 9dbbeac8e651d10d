"""Mirrors that are killed, stopped, or there twice: nothing is lost, nothing is there twice."""

from __future__ import annotations

import random

import pytest

import exhaustive
import jlog
from jlog.kafka import Fenced, Mirror, status, verify
from kafka.processes import captured, fill, not_mirrored, position, run_to_end
from kafka.witness import numbered
from patience import wait_until

KILLS = exhaustive.count(3, 30)
RECORDS = exhaustive.count(100_000, 1_000_000)
MORE = exhaustive.count(40_000, 100_000)  # for a process that a busy machine has let run to the end


@pytest.fixture
def broker(fragile_broker):
    return fragile_broker


@pytest.mark.timeout(600)
def test_a_mirror_killed_at_random_delivers_each_record_once(journal, url, witness, topic, processes):
    fill(journal, RECORDS)
    chance = random.Random(0)
    for kill in range(KILLS):
        began = position(journal)
        mirror = processes("to-kafka", journal, url, "--rate", 30_000)
        if kill % 5:  # the others are killed while they start
            wait_until(lambda began=began: position(journal) > began)
        # Then anywhere in a transaction, which lasts half a second.
        assert mirror.runs_for(chance.uniform(0, 0.6))
        mirror.pause_within(lambda: not_mirrored(journal), lambda: fill(journal, MORE, captured(journal)))
        mirror.kill()
    run_to_end("to-kafka", journal, url)
    witness.check_numbered(topic, captured(journal))


@pytest.mark.timeout(300)
def test_a_capture_killed_at_random_has_every_message_once(journal, url, witness, topic, processes):
    produced, kills = 0, exhaustive.count(3, 8)

    def produce(count):
        nonlocal produced
        witness.produce(topic, numbered(count, produced), transactions=1000)
        produced += count

    witness.make(topic)
    produce(MORE)
    chance = random.Random(1)
    for _ in range(kills):
        began = captured(journal)
        capture = processes("from-kafka", url, journal, "--rate", 10_000)
        wait_until(lambda began=began: captured(journal) > began)
        assert capture.runs_for(chance.uniform(0, 0.6))
        capture.pause_within(lambda: produced - captured(journal), lambda: produce(MORE))
        capture.kill()
    run_to_end("from-kafka", url, journal)
    with jlog.Reader(journal) as reader:
        assert list(reader.values()) == numbered(produced)
    assert verify(journal, url).compared == produced


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


def test_a_second_mirror_takes_over_and_the_first_ends(journal, url, witness, topic, processes):
    """The second one has another name."""
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


def test_a_stopped_mirror_that_wakes_too_late_adds_nothing(journal, url, witness, topic, processes):
    """The mirror is stopped in the middle of a transaction."""
    fill(journal, 50_000)
    stopped = processes("to-kafka", journal, url, "--rate", 10_000)
    wait_until(lambda: position(journal) > 0)
    stopped.pause_within(lambda: not_mirrored(journal), lambda: fill(journal, 50_000, captured(journal)))
    run_to_end("to-kafka", journal, url, "--subscriber", "another")
    stopped.resume()
    code, said = stopped.wait()
    assert code == 1
    assert "has taken over" in said
    witness.check_numbered(topic, captured(journal))


def test_two_mirrors_in_turns_deliver_each_record_once(journal, url, witness, topic):
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
    fill(journal, MORE)
    mirror = processes("to-kafka", journal, url, "--rate", 20_000)
    wait_until(lambda: position(journal) > 0)
    # Far more than what is under way, for it goes on until it has noticed the signal.
    mirror.pause_within(lambda: not_mirrored(journal), lambda: fill(journal, MORE, captured(journal)), at_least=MORE // 2)
    assert mirror.end() == (0, "")
    assert len(witness.values(topic)) == position(journal) < captured(journal)
    run_to_end("to-kafka", journal, url)
    witness.check_numbered(topic, captured(journal))

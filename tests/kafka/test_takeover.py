"""The last mirror that starts wins, and what the others had open holds nobody up."""

from __future__ import annotations

import time

import pytest

import jlog
from jlog.kafka import Capture, Mirror, RecordRefused, TopicChanged
from jlog.transform import transforming
from kafka.processes import fill, position, run_to_end
from patience import wait_until

# Proves that a mirror ends its transaction itself, and not that it is quick: a broker does it after 60 s, and never sooner. So
# the number is below that, to leave the rest to a busy machine.
ENDS_SECONDS = 45.0


def test_the_newcomer_wins_under_load(journal, url, topic, witness, processes):
    """Each one takes over from the one before while that one is mirroring. None fences back."""
    fill(journal, 300_000)
    options = ("to-kafka", "--rate", 5_000, "--subscriber")
    running = processes(*options, "mirror-0", journal, url)
    for number in range(1, 6):
        before = position(journal)
        wait_until(lambda before=before: position(journal) > before)
        newcomer = processes(*options, f"mirror-{number}", journal, url)
        code, said = running.wait()
        assert (code, "has taken over" in said) == (1, True), said
        assert newcomer.runs_for(0.5)
        running = newcomer
    assert running.end() == (0, "")
    run_to_end("to-kafka", "--subscriber", "last", journal, url)
    witness.check_numbered(topic, 300_000)


def test_two_newcomers_at_once_leave_one(journal, url, topic, witness, processes):
    fill(journal, 50_000)
    running = [processes("to-kafka", "--rate", 10_000, "--subscriber", f"mirror-{n}", journal, url) for n in range(3)]
    wait_until(lambda: sum(one.is_running for one in running) == 1)
    wait_until(lambda: position(journal) > 20_000)
    (winner,) = [one for one in running if one.is_running]
    assert winner.end()[0] == 0  # the others may have fenced it before they saw its claim
    run_to_end("to-kafka", "--subscriber", "last", journal, url)
    witness.check_numbered(topic, 50_000)


def committed_at_once(witness, topic):
    """Readers of committed records see a record of another producer after a transaction that a mirror had open."""
    begun = time.monotonic()
    witness.produce(topic, [b"of another producer"])
    while b"of another producer" not in witness.values(topic):
        assert time.monotonic() < begun + ENDS_SECONDS
        time.sleep(0.05)


def test_an_idle_mirror_ends_when_another_takes_over(journal, url, processes):
    """No record comes, by which the broker would tell it."""
    fill(journal, 10)
    first = processes("to-kafka", journal, url)
    wait_until(lambda: position(journal) == 10)
    second = processes("to-kafka", journal, url, "--subscriber", "another")
    code, said = first.wait()
    assert (code, "has taken over" in said) == (1, True), said
    assert second.end() == (0, "")


def test_an_error_aborts_the_open_transaction(journal, url, topic, witness):
    fill(journal, 10)

    def fail(record):
        if record.value == b"5":
            raise ValueError("no")
        return record

    with pytest.raises(RecordRefused):
        transforming(journal, url, fail, until_end=True).run()
    committed_at_once(witness, topic)


def test_a_close_aborts_the_open_transaction(journal, url, topic, witness):
    fill(journal, 10)
    mirror = Mirror(journal, url)
    mirror.step()
    with jlog.Reader(journal) as reader:
        mirror.sink.write(list(reader), lambda *_: False)
    mirror.close()
    committed_at_once(witness, topic)


def test_sigterm_ends_a_slow_transform(journal, url, topic, witness, processes, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef slow(record):\n    time.sleep(0.05)\n    return record\n")
    fill(journal, 2000)
    running = processes(journal, url, "--transform", "slow:slow", command="transform", cwd=tmp_path)
    wait_until(lambda: witness.exists(topic))
    assert running.runs_for(2)
    begun = time.monotonic()
    assert running.end() == (0, "")
    assert time.monotonic() - begun < ENDS_SECONDS
    committed_at_once(witness, topic)


def test_a_topic_deleted_under_load_ends_it(journal, url, topic, witness, processes):
    fill(journal, 200_000)
    running = processes("to-kafka", "--rate", 20_000, journal, url)
    wait_until(lambda: position(journal) > 0)
    witness.delete(topic)
    code, said = running.wait()
    assert (code, "was deleted" in said) == (1, True), said
    with pytest.raises(TopicChanged):
        Mirror(journal, url, until_end=True).run()


@pytest.mark.parametrize("first", ["mirror", "capture"])
def test_a_mirror_and_a_capture_do_not_go_in_a_circle(journal, url, topic, witness, first):
    """Whichever of the two was there before."""
    if first == "mirror":
        fill(journal, 10)
        Mirror(journal, url, until_end=True).run()
        with pytest.raises(jlog.JournalError, match=r"is mirrored to .* for ever"):
            Capture(url, journal, until_end=True)
    else:
        witness.make(topic)
        witness.produce(topic, [b"%d" % number for number in range(10)])
        Capture(url, journal, until_end=True).run()
        with pytest.raises(jlog.JournalError, match=r"has captured .* for ever"):
            Mirror(journal, url, until_end=True).run()
    assert len(jlog.Journal(journal)) == len(witness.values(topic)) == 10

"""tools/torture: a seed repeats its faults, and the accounts notice a record that is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from torture.accounts import Accounts
from torture.history import History
from torture.plan import Plan, Size
from torture.records import Wrong
from torture.sequences import SEEN, Sequences

TORTURE = Path(__file__).parents[2] / "tools" / "torture.py"
# The rounds of this seed end with a reboot, a kill and a reboot, a pause, and in order.
SMALL = ["--seed", "2242", "--lives", "1", "--rounds", "4", "--round-seconds", "1", "--producers", "2", "--raising", "0"]
# The rounds of this one end with a pause, a kill, and in order.
RAISING = ["--seed", "4", "--lives", "1", "--rounds", "3", "--round-seconds", "1", "--raising", "2", "--journals", "1"]
EVENTS = r"(\d+) kills, (\d+) stops, (\d+) times with failing system calls, .* (\d+) reboots, (\d+) copies opened"


@pytest.mark.usefixtures("failpoints")
def test_everything_at_once_keeps_what_was_acknowledged(tmp_path):
    """Each kind of event happens, but for a full disk: that needs a file system of its own."""
    command = [sys.executable, str(TORTURE), *SMALL, "--path", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(EVENTS, done.stdout)
    assert counts is not None, done.stdout
    assert all(int(count) for count in counts.groups()), done.stdout


@pytest.mark.usefixtures("failpoints")
def test_signal_handlers_that_raise_lose_no_record_and_leave_nothing_open(tmp_path):
    command = [sys.executable, str(TORTURE), *RAISING, "--producers", "1", "--subscribers", "0", "--path", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"([\d,]+) calls interrupted", done.stdout)
    assert counts is not None, done.stdout
    assert counts[1] != "0", done.stdout


def test_a_seed_plans_the_same_faults_again():
    plans = [Plan(7, 3, Size()) for _ in range(2)]
    assert plans[0].rounds == plans[1].rounds
    assert plans[0].rounds != Plan(7, 4, Size()).rounds
    place = plans[0].places[1]
    assert plans[0].child(place, 2) == plans[1].child(place, 2)


@pytest.fixture
def accounts():
    """A writer was acknowledged records 0 to 2, and may have been killed in its third call."""
    found = Accounts()
    found.hear_writer("w", ["+ 0 1 0 0 000000aa", "+ 1 2 1 0 000000bb 000000cc", "- 2"])
    return found


def test_a_unit_that_was_interrupted_may_be_there_or_not(accounts):
    accounts.hear_writer("w", ["? 3", "+ 4 1 3 0 000000dd"])
    assert accounts.may_exist("w", 3)
    assert not accounts.may_exist("w", 2)


def subscriber(accounts, *lines):
    accounts.hear_reader(accounts.seat("s", named=True, may_lose=False), lines)


def test_accounts_that_agree_are_right(accounts):
    subscriber(accounts, "o 0", "r 0 000000aa 000000bb", "C 2", "c 2", "o 2", "r 2 000000cc", "C 3")
    subscriber(accounts, "o 3", "C 3", "c 3")
    assert accounts.held() == 3
    assert accounts.may_exist("w", 3)
    assert not accounts.may_exist("w", 4)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["o 0", "r 0 000000ab"], "sequence 0 was given twice"),
        (["o 0", "r 1 000000bb"], "stood at 0 and was given record 1"),
        (["o 0", "r 0 000000aa", "r 0 000000aa"], "stood at 1 and was given record 0"),
        (["o 0", "r 0 000000aa 000000bb 000000cc", "r 4 000000dd"], "stood at 3 and was given record 4"),
        (["o 0", "r 0 000000aa", "C 1", "c 1", "o 0"], "begins at 0, and was committed at"),
        (["o 0", "r 0 000000aa", "C 1", "c 1", "o 2"], "begins at 2, and was committed at"),
        (["o 0", "k 0", "K 0", "r 0 000000aa", "w", "W 1"], "was rewound to 1"),
        (["o 0", "l 1"], "has lost its position"),
    ],
)
def test_accounts_that_contradict_each_other_are_wrong(accounts, lines, complaint):
    with pytest.raises(Wrong, match=complaint):
        subscriber(accounts, *lines)


def test_a_number_that_is_given_to_two_records_is_wrong(accounts):
    with pytest.raises(Wrong, match="sequence 2 was given twice"):
        accounts.hear_writer("v", ["+ 0 1 2 0 000000dd"])


def test_a_stated_gap_is_not_a_lost_record(accounts):
    accounts.gaps.add((3, 100))
    subscriber(accounts, "o 3", "r 100 000000dd")


def test_an_id_that_is_acknowledged_at_two_places_is_wrong(accounts):
    accounts.hear_writer("w", ["@ id-7", "= id-7 3 000000dd", "@ id-7", "= id-7 3 000000dd"])
    with pytest.raises(Wrong, match="appended id id-7 at 4, and it was 3 before"):
        accounts.hear_writer("v", ["@ id-7", "= id-7 4 000000dd"])


# --- What workers did -------------------------------------------------------------------------------------------------


@pytest.fixture
def history():
    """Records 0 to 2, of which 0 and 1 have the same key."""
    sequences = Sequences()
    for sequence in range(3):
        sequences.know(sequence, sequence + 0xA0, SEEN, "test")
    return History(sequences, is_keyed=True)


RECORDS = ["0:k:a0", "1:k:a1", "2:-:a2"]


def taken(at, *sequences, lease=0):
    """The line of a call that began a moment before."""
    return " ".join(["t", str(at), "1", str(at - 1), str(lease), *(RECORDS[sequence] for sequence in sequences)])


def hear(history, dead=(), **children):
    for child, lines in children.items():
        history.hear(child, lines, is_dead=child in dead)
    history.judge(0)


@pytest.mark.parametrize(
    ("dead", "children"),
    [
        ("", {"a": [taken(10, 0), "F 11 9 0", "f 12 9 0", taken(14, 1, 2), "F 15 13 1 2", "f 16 13 1 2"]}),
        ("", {"a": [taken(10, 0), "b 11 9 0"], "b": [taken(20, 0), "F 21 19 0", "x 22 19 0"]}),
        ("a", {"a": [taken(10, 0)], "b": [taken(20, 0), "F 21 19 0", "f 22 19 0"]}),
        ("a", {"a": [taken(10, 0), "F 11 9 0"], "b": [taken(20, 0), "F 21 19 0", "f 22 19 0", taken(30, 1)]}),
        ("", {"a": [taken(10, 0), "q 11 1"], "b": [taken(20, 0)]}),
        ("", {"a": [taken(10, 0, lease=5), "F 25 9 0", "l 26 9 0"], "b": [taken(20, 0), "F 21 19 0", "f 22 19 0"]}),
    ],
    ids=["finished", "given back", "died with it", "died in its finish", "closed", "lease over"],
)
def test_what_workers_may_do_is_right(history, dead, children):
    hear(history, dead, **children)


@pytest.mark.parametrize(
    ("dead", "children", "complaint"),
    [
        ("", {"a": [taken(10, 0), "F 11 9 0", "f 12 9 0"], "b": [taken(20, 0)]}, "record 0 was finished at 12"),
        ("", {"a": [taken(10, 0)], "b": [taken(20, 0)]}, "was handed to .* while .* had it"),
        ("", {"a": [taken(10, 0, lease=50)], "b": [taken(20, 0)]}, "was handed to .* while .* had it"),
        ("", {"a": [taken(10, 0, lease=5), "F 25 9 0", "f 26 9 0"], "b": [taken(20, 0)]}, "which it had lost"),
        ("", {"a": [taken(10, 0)], "b": [taken(20, 1)]}, "1 was handed out, and 0, .* was not finished"),
        ("a", {"a": [taken(10, 0), "F 11 9 0"], "b": [taken(20, 1), taken(30, 0)]}, "0 was handed out after 1"),
        ("", {"a": [taken(10, 0).replace("a0", "a5")]}, "sequence 0 was given twice"),
    ],
    ids=["again", "two at once", "two in a lease", "after its lease", "key held", "key late", "another record"],
)
def test_what_workers_may_not_do_is_wrong(history, dead, children, complaint):
    with pytest.raises(Wrong, match=complaint):
        hear(history, dead, **children)


def test_what_nobody_finished_is_known(history):
    hear(history, dead="a", a=[taken(10, 0), "F 11 9 0", "f 12 9 0", taken(20, 1, 2), "F 21 19 2"])
    assert history.unfinished(0) == 1
    assert [history.is_finished(sequence) for sequence in range(3)] == [True, False, False]


def test_a_reboot_forgets_the_finishes_that_were_not_synced(history):
    hear(history, a=[taken(10, 0), "F 11 9 0", "f 12 9 0", "d 14 13", taken(20, 1), "F 21 19 1", "f 22 19 1"])
    history.reboot()
    hear(history, b=[taken(30, 1)])
    with pytest.raises(Wrong, match="record 0 was finished at 12"):
        hear(history, b=[taken(40, 0)])


@pytest.mark.parametrize(
    ("letters", "complaint"),
    [([], "records \\[0\\] were rejected"), ([(0, 0xA0)] * 2, "two dead letters"), ([(0, 0xA1)], "given twice")],
    ids=["none", "two", "of another record"],
)
def test_a_rejected_record_has_its_letter_once(history, letters, complaint):
    hear(history, a=[taken(10, 0), "F 11 9 0", "x 12 9 0"])
    history.check_letters([(0, 0xA0)])
    with pytest.raises(Wrong, match=complaint):
        history.check_letters(letters)

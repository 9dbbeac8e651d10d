"""tools/torture: a seed repeats its faults, and the accounts notice a record that is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from torture.accounts import Accounts
from torture.plan import Plan, Size
from torture.records import Wrong

TORTURE = Path(__file__).parents[2] / "tools" / "torture.py"
# The rounds of this seed end with a reboot, a kill and a reboot, a pause, and in order.
SMALL = ["--seed", "52", "--lives", "1", "--rounds", "4", "--round-seconds", "1", "--producers", "2"]
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

"""Where this user may only read, or not even that."""

import os
import tempfile
import threading
from pathlib import Path

import pytest

import jlog
import oracle
from behaviour.journals import SMALL, fill
from elsewhere import ANOTHER_USER, mounted_by, read_only, run_python


@pytest.fixture
def path():
    """Where other users come by, as they do not to tmp_path."""
    with tempfile.TemporaryDirectory(prefix="jlog-test-") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory) / "j"
        oracle.check_journal(Path(directory) / "j")


def forbid(path, *, allow=False):
    """Everything in the journal is for reading alone."""
    for folder, _, names in os.walk(path):
        for name in names:
            os.chmod(Path(folder) / name, 0o644 if allow else 0o444)
        os.chmod(folder, 0o755 if allow else 0o555)


@pytest.fixture
def writer(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
        writer.extend([], state={b"k": b"v"})
        jlog.Journal(path).add_subscriber("billing", start=4)
        jlog.Journal(path).set_checkpoint("c", 2)
        forbid(path)
        yield writer
        forbid(path, allow=True)


LOOKING = """
    journal = jlog.Journal({path!r})
    assert (len(journal), journal.first_sequence, journal.next_sequence) == (100, 0, 100)
    assert sum(segment.records for segment in journal.segments()) == 100
    assert journal.segments()[0].first_timestamp <= journal.segments()[-1].last_timestamp
    assert journal.state() == {{b"k": b"v"}}
    assert journal.verify().ok
    assert journal.info()["records"] == 100
    assert (journal.subscribers()["billing"].sequence, journal.checkpoints()["c"].sequence) == (4, 2)
    assert journal.find(journal.segments()[0].first_timestamp) == 0
    assert values({path!r}) == [value_of(number) for number in range(100)]
    with jlog.Reader({path!r}, start=42) as reader:
        assert next(iter(reader)).sequence == 42
        assert [record.sequence for record in reader.read_backward(3)] == [42, 41, 40]
    with jlog.Reader({path!r}, start="c") as reader:
        assert reader.position == 2
"""


def test_another_user_looks_at_a_journal_that_is_written_to(writer, path):
    run_python(LOOKING.format(path=str(path)), within=ANOTHER_USER)


def test_another_user_looks_at_a_closed_journal(writer, path):
    forbid(path, allow=True)
    writer.close()
    forbid(path)
    run_python(LOOKING.format(path=str(path)), within=ANOTHER_USER)


def test_a_read_only_mount_is_looked_at(writer, path):
    run_python(LOOKING.format(path=str(path)), within=mounted_by(read_only(path)))


def test_another_user_follows_what_is_written_meanwhile(writer, path):
    code = """
        with jlog.Reader({path!r}, start="end") as reader:
            for record in reader.follow(timeout=200):
                if record.value == b"last":
                    break
            else:
                sys.exit("no record came")
    """
    child = threading.Thread(target=run_python, args=(code.format(path=str(path)), ANOTHER_USER))
    child.start()
    while child.is_alive():  # whenever it comes, it finds one after what it has begun with
        writer.append(b"last")
        child.join(0.05)


REFUSED = {
    "a writer": "jlog.Writer({path!r})",
    "a new subscriber": "jlog.Reader({path!r}, 'new')",
    "add_subscriber": "jlog.Journal({path!r}).add_subscriber('new')",
    "remove_subscriber": "jlog.Journal({path!r}).remove_subscriber('billing')",
    "set_subscriber": "jlog.Journal({path!r}).set_subscriber('billing', 5)",
    "set_checkpoint": "jlog.Journal({path!r}).set_checkpoint('new', 5)",
    "remove_checkpoint": "jlog.Journal({path!r}).remove_checkpoint('c')",
    "clean": "jlog.Journal({path!r}).clean()",
    "delete": "jlog.Journal.delete({path!r})",
    "a journal beside it": "jlog.Journal.create({path!r} + '/other')",
    "a subscriber": "jlog.Reader({path!r}, 'billing')",
}
REFUSAL = """
    try:
        {call}
    except OSError as error:
        assert error.errno in (errno.EACCES, errno.EROFS, errno.EPERM), error
        assert str(error.filename).startswith({path!r}), error.filename
        assert {path!r} in str(error), error
    else:
        sys.exit("it was allowed")
"""


def refused(path, call):
    return REFUSAL.format(call=call.format(path=str(path)), path=str(path))


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_calls_that_write_are_refused_with_errno_and_file(writer, path, call):
    run_python(refused(path, call), within=ANOTHER_USER)


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_calls_that_write_are_refused_on_a_read_only_mount(writer, path, call):
    run_python(refused(path, call), within=mounted_by(read_only(path)))


@pytest.mark.parametrize("call", ["jlog.Journal({path!r})", "jlog.Reader({path!r})", "jlog.Writer({path!r})"])
def test_a_journal_without_read_permission_is_refused(writer, path, call):
    """The error has errno and file."""
    os.chmod(path, 0o000)
    try:
        run_python(refused(path, call), within=ANOTHER_USER)
    finally:
        os.chmod(path, 0o755)

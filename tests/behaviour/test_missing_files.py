"""A file without which a journal cannot be used is missing: verify names it, and repair makes up for it."""

import os
import shutil
import signal

import pytest

import jlog
from behaviour.journals import values


def killed(path):
    """A journal whose only writer was killed."""
    child = os.fork()
    if child == 0:
        try:
            writer = jlog.Writer(path)
            writer.append(b"flushed")
            writer.flush()
            writer.append(b"in the buffer")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return path


@pytest.mark.parametrize("name", ["lock", "bounds", "precommit"])
def test_verify_names_a_missing_file_and_a_repair_makes_up_for_it(path, name):
    killed(path)
    assert jlog.Journal(path).verify().ok
    (path / name).unlink()
    (found,) = jlog.Journal(path).verify().damage
    assert (found.path, found.reason.startswith("it is missing")) == (str(path / name), True)
    assert jlog.Journal.repair_at(path).sound
    assert jlog.Journal(path).verify().ok
    with jlog.Writer(path) as writer:
        writer.append(b"again")
    assert values(path) == [b"flushed", *([] if name == "precommit" else [b"in the buffer"]), b"again"]


def test_a_closed_journal_needs_no_buffer(path):
    with jlog.Writer(path) as writer:
        writer.append(b"value")
    (path / "precommit").unlink()
    assert jlog.Journal(path).verify().ok


@pytest.mark.parametrize("kind", ["subscriber", "checkpoint"])
def test_a_missing_directory_of_positions_is_created_with_the_next_one(path, kind):
    journal = jlog.Journal.create(path)
    shutil.rmtree(path / f"{kind}s")
    if kind == "subscriber":
        journal.add_subscriber("billing")
    else:
        journal.set_checkpoint("billing", 0)
    assert (path / f"{kind}s" / "billing").exists()

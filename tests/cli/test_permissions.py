"""The error that a user gets who may read a journal, and may not write to it."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import TYPE_CHECKING

import pytest

import jlog
from elsewhere import ANOTHER_USER, Place, run_python

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE = """
import io
from contextlib import redirect_stderr
from jlog.cli import tool
from jlog.cli.commands import append, dump, journals, read, subscribers, tail

def said(*arguments):
    with redirect_stderr(io.StringIO()) as errors:
        code = tool.run(list(arguments))
    return code, errors.getvalue()
"""
as_another_user = partial(run_python, within=Place(before=BEFORE + ANOTHER_USER.before))


@pytest.fixture
def journal() -> Iterator[str]:
    """Of another user, where everybody comes by; tmp_path is for its owner alone."""
    with tempfile.TemporaryDirectory(prefix="jlog-test-") as directory:
        os.chmod(directory, 0o755)
        path = os.path.join(directory, "j")
        with jlog.Writer(path) as writer:
            writer.extend([b"one", b"two"])
        jlog.Journal(path).add_subscriber("billing")
        forbid(path, 0o555, 0o444)
        yield path
        forbid(path, 0o755, 0o644)


def forbid(path: str, directories: int, files: int) -> None:
    for folder, _, names in os.walk(path):
        os.chmod(folder, directories)
        for name in names:
            os.chmod(os.path.join(folder, name), files)


def test_a_user_who_may_only_read_is_told_which_commands_work(journal: str) -> None:
    as_another_user(f"""
for command in (["append", {journal!r}, os.devnull], ["read", {journal!r}, "billing"], ["read", {journal!r}, "new"],
                ["subscriber", "add", {journal!r}, "new"], ["options", {journal!r}, "--max-age", "1d"]):
    code, text = said(*command)
    assert code == 1 and text.count("\\n") == 1, (command, code, text)
    assert "Permission denied; writing, and reading as a subscriber, needs write permission on {journal} " in text, text
for command in (["dump", {journal!r}], ["tail", {journal!r}]):
    assert said(*command) == (0, "")
""")


def test_a_user_without_any_right_is_told_only_that(journal: str) -> None:
    for folder, _, names in os.walk(journal):
        for name in names:
            os.chmod(os.path.join(folder, name), 0)
    as_another_user(f"""
code, text = said("dump", {journal!r})
assert code == 1 and text.endswith(": Permission denied\\n"), (code, text)
""")


def test_ls_fails_at_a_directory_that_it_may_not_read(journal: str) -> None:
    """Otherwise a backup that goes by the list would leave out the journals in there."""
    above = os.path.dirname(journal)
    closed = os.path.join(above, "closed")
    os.mkdir(closed)
    os.chmod(closed, 0)
    as_another_user(f"""
code, text = said("ls", "--json", {above!r})
assert (code, text) == (1, "jlogtool: {closed}: Permission denied\\n"), (code, text)
""")

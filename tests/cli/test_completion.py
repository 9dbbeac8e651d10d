"""The completion of words in shells."""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import COMMAND, do, run
from cli.terminal import terminal_of
from jlog.cli.commands.completion import SHELLS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from cli.terminal import Terminal

SCRIPTS = Path(__file__).parents[2] / "docs" / "completion"


@pytest.fixture
def names(numbers: Path) -> Path:
    """A journal with names that shells have trouble with."""
    journal = jlog.Journal(numbers)
    for name in ("billing", "kafka:orders", "kafka:payments", "two words", "größe"):
        journal.add_subscriber(name)
    journal.set_checkpoint("before-upgrade", 5)
    return numbers


@contextmanager
def shell_in(directory: Path, command: list[str], script: str) -> Iterator[Terminal]:
    """An interactive shell in this directory, which has run the script."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}: apt-get install {command[0]}")
    programs = directory / ".programs"
    programs.mkdir()
    (programs / "jlogtool").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (programs / "jlogtool").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PS1": "$ ",
        "TERM": "linux",
        "LC_ALL": "C.UTF-8",
        "HOME": str(programs),
    }
    with terminal_of(command, columns=120, env=environment, cwd=directory) as found:
        found.read_until(lambda text: text == "$")
        found.type(f"{script}; clear; printf '%s%s\\n' rea dy\n".encode())
        found.read_until(lambda text: text == "ready\n$")  # what is typed does not hold this word
        yield found


def bash(directory: Path, script: str = 'eval "$(jlogtool completion bash)"') -> AbstractContextManager[Terminal]:
    return shell_in(directory, ["bash", "--norc", "--noprofile", "-i"], script)


TYPED = {
    "rew": "rewind ",
    "subscriber co": "subscriber copy ",
    "dump --rev": "dump --reverse ",
    "dump --format j": "dump --format jsonl ",
    "dump --format=j": "dump --format=jsonl ",
    "completion z": "completion zsh ",
    "info jour": "info journal/",
    "subscriber rm journal bi": "subscriber rm journal billing ",
    "subscriber rm journal kafka:o": "subscriber rm journal kafka:orders ",
    "subscriber rm journal two": "subscriber rm journal two\\ words ",
    "subscriber rm journal gr": "subscriber rm journal größe ",
    "rewind journal billing be": "rewind journal billing before-upgrade ",
    "subscriber set journal billing beg": "subscriber set journal billing begin ",
    "dump --from bef": "dump --from bef",
    "dump journal --from bef": "dump journal --from before-upgrade ",
    "subscriber rm missing bi": "subscriber rm missing bi",
}


@pytest.mark.parametrize("typed", TYPED)
def test_bash_completes_what_is_typed(names: Path, typed: str) -> None:
    with bash(names.parent) as shell:
        shell.type(f"jlogtool {typed}\t".encode())
        shell.type(b"# end")
        text = shell.read_until(lambda text: text.endswith("# end"))
    assert text.splitlines()[-1] == f"$ jlogtool {TYPED[typed]}# end"


# What a shell does when it meets an installed script of docs/completion.
INSTALLED = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"source {SCRIPTS}/jlogtool"),
    "zsh": (["zsh", "-f", "-i"], f"fpath=({SCRIPTS} $fpath); autoload -Uz compinit; compinit -D -u"),
    "fish": (
        ["fish", "--no-config", "--private", "-i", "-C", "function fish_prompt; echo '$ '; end; function fish_greeting; end"],
        f"set -p fish_complete_path {SCRIPTS}",
    ),
}


@pytest.mark.parametrize("shell", INSTALLED)
def test_an_installed_script_completes_from_the_first_tab_on(names: Path, shell: str) -> None:
    with shell_in(names.parent, *INSTALLED[shell]) as found:
        found.type(b"jlogtool subscriber rm journal bil\t")
        found.read_until(lambda text: text.splitlines()[-1].endswith("billing"))
        found.type(b"\x15jlogtool rewi\t")
        found.read_until(lambda text: text.splitlines()[-1].endswith("rewind"))


def test_bash_lists_what_it_could_be(names: Path) -> None:
    with bash(names.parent) as shell:
        shell.type(b"jlogtool subscriber rm journal kafka:\t\t")
        text = shell.read_until(lambda text: "orders" in text and "payments" in text)
    assert "billing" not in text


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_that_calls_jlogtool_back(shell: str) -> None:
    script = do("completion", shell).out.decode()
    assert f"_JLOGTOOL_COMPLETE={shell}_complete" in script
    assert shell in SHELLS


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_shell_gets_names_that_begin_with_what_is_typed(names: Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_JLOGTOOL_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", f"jlogtool subscriber rm {names} kafka:")
    monkeypatch.setenv("COMP_CWORD", "4" if shell == "zsh" else "kafka:")
    found = run().out.decode()
    assert ("kafka:orders" in found, "kafka:payments" in found, "billing" in found) == (True, True, False)


def test_a_shell_that_is_not_known_is_an_error_of_usage() -> None:
    assert run("completion", "tcsh").code == 2
    assert run("completion").code == 2

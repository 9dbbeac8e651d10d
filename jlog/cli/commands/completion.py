"""`jlogtool completion`, and the completion of words while a command is typed."""

from __future__ import annotations

import os
import re
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete, split_arg_string

VARIABLE = "_JLOGTOOL_COMPLETE"  # set by the scripts that this command prints

# Click itself takes the words of bash, which end at a colon: `kafka:orders` would never be completed.
BASH_SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$(printf %%q "$value")") ;;
        esac
    done < <(COMP_WORDS="${COMP_LINE:0:$COMP_POINT}" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    source_template = BASH_SCRIPT

    def source(self) -> str:
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        self._incomplete = words.pop() if words and not re.search(r"(?<!\\)\s\Z", line) else ""
        return words, self._incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Leaves out the part before the last colon, since bash replaces only the part after it."""
        before = self._incomplete[: self._incomplete.rfind(":") + 1]
        return f"{item.type},{item.value.removeprefix(before)}"


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


def answer(tool: click.Command, name: str, instruction: str) -> int:
    """Answers a script that `completion` has printed: `bash_complete`, with the line in the environment."""
    shell, _, wanted = instruction.partition("_")
    if shell not in SHELLS or wanted != "complete":
        return 1
    click.echo(SHELLS[shell](tool, {}, name, VARIABLE).complete())
    return 0


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, paths, and the names of a journal's subscribers and
    checkpoints.

    In bash, put the line `eval "$(jlogtool completion bash)"` into ~/.bashrc, or write the script to
    ~/.local/share/bash-completion/completions/jlogtool. In zsh, write it to a file _jlogtool in a directory of $fpath.
    In fish, write it to ~/.config/fish/completions/jlogtool.fish. It holds from the next shell on.

    \b
    Examples:
      eval "$(jlogtool completion bash)"
      jlogtool completion zsh > ~/.zfunc/_jlogtool
      jlogtool completion fish > ~/.config/fish/completions/jlogtool.fish
    """
    root = ctx.find_root()
    click.echo(SHELLS[shell](root.command, {}, root.info_name or "", VARIABLE).source(), nl=False)

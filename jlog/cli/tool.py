"""The command `jlogtool`: its commands, and how their errors end it."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any, NoReturn

import click

import jlog
from jlog.cli.arguments.groups import Group
from jlog.cli.exits import DAMAGED, DONE, FAILED, INTERRUPTED
from jlog.cli.terminal.output import complain, say_no_more
from jlog.errors import CorruptJournal, JournalError

NAME = "jlogtool"
COMPLETE = "_JLOGTOOL_COMPLETE"  # set by the scripts that `completion` prints

# The file of each command below jlog.cli.commands, and its name there. The order is that of --help.
SECTIONS: dict[str, dict[str, str]] = {
    "Journals": {
        "create": "journals:create",
        "info": "journals:info",
        "ls": "journals:list_journals",
        "options": "options:change_options",
        "backup": "backup:backup",
        "rm": "journals:remove",
    },
    "Records": {
        "append": "append:append",
        "dump": "dump:dump",
        "tail": "tail:tail",
        "read": "read:read",
    },
    "Positions": {
        "subscriber": "subscribers:subscriber",
        "checkpoint": "checkpoints:checkpoint",
        "rewind": "subscribers:rewind",
    },
    "Care": {
        "verify": "care:verify",
        "repair": "repair:repair",
        "clean": "care:clean",
        "archive": "archive:archive",
        "restore": "care:restore",
        "roll": "journals:roll",
        "stats": "stats:stats",
        "top": "top:top",
        "metrics": "metrics:metrics",
    },
    "Kafka": {
        "mirror": "mirror:mirror",
        "transform": "transform:transform",
    },
    "Spark": {
        "pipeline": "pipeline:pipeline",
    },
    "libjlog": {
        "import": "libjlog:import_libjlog",
        "export": "libjlog:export_libjlog",
    },
    "More": {
        "bench": "bench:bench",
        "completion": "completion:completion",
        "demo": "demo:demo",
    },
}


class Tool(Group):
    """Imports the file of a command only when the command is used, so that no command waits for the libraries of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        for section in SECTIONS.values():
            if cmd_name in section:
                module, attribute = section[cmd_name].split(":")
                command: click.Command = getattr(importlib.import_module(f"jlog.cli.commands.{module}"), attribute)
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, section in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in section]
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(80)) for name, command in commands if command]
                )


@click.command(
    cls=Tool,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`jlogtool COMMAND --help` describes a command, with examples.",
)
@click.version_option(jlog.__version__, prog_name=NAME, message="%(prog)s %(version)s")
def tool() -> None:
    """Journals: append to them, read them, look after them.

    A journal is a directory that many processes append records to, and that named subscribers read, each at its own
    pace. JOURNAL is the path of that directory, or its file: URL.

    \b
    Exit codes:
      0    done
      1    an error of the journal or the operating system; a line on stderr says why
      2    an error of usage; also a name or a value that is not allowed
      3    damage was found
      130  interrupted by Ctrl-C

    \b
    Examples:
      seq 1000 | jlogtool append /tmp/numbers
      jlogtool tail -f /tmp/numbers
      jlogtool subscriber ls /tmp/numbers
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits with its code."""
    _fill_standard_streams()
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a path need not be UTF-8, and a terminal need not have every character
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def _fill_standard_streams() -> None:
    """Opens standard streams that the caller has closed. Otherwise a file of the journal would get their number, and with it
    the output of the system."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)


def run(arguments: list[str]) -> int:
    """Runs the command line and returns the exit code."""
    try:
        code = _invoke(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        say_no_more()  # the reader of the output has seen enough
        return DONE
    except KeyboardInterrupt:
        say_no_more()
        return INTERRUPTED
    except (JournalError, OSError, ImportError) as error:  # ImportError is that of an extra that is not installed
        complain(error)
        say_no_more()
        return DAMAGED if isinstance(error, CorruptJournal) else FAILED


def _invoke(arguments: list[str]) -> int:
    instruction = os.environ.get(COMPLETE)
    if instruction:
        code: int = importlib.import_module("jlog.cli.commands.completion").answer(tool, NAME, instruction)
        return code
    try:
        with tool.make_context(NAME, list(arguments)) as context:
            tool.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:  # is raised by Ctrl-C or Ctrl-D at a question
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return DONE


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning):
        complain(f"warning: {message}")

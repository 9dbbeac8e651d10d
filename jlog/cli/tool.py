"""The command `jlogtool`: its commands, and how their errors end it."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any, ClassVar, NoReturn

import click

import jlog
from jlog.cli.arguments.click_parts import Group, harmless
from jlog.cli.commands.completion import VARIABLE, answer
from jlog.cli.process import DONE, FAILED, INTERRUPTED, SIGNALLED, exit_code_of, interruptible, leave
from jlog.cli.terminal.output import complain, say_no_more, whole_stdout
from jlog.errors import JournalError

NAME = "jlogtool"

# The file of each command below jlog.cli.commands, its name there, and its line in --help. The order is that of --help. The
# lines stand here so that --help imports no command.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Journals": {
        "create": ("journals:create", "Create a journal."),
        "info": ("journals:info", "Show a journal."),
        "ls": ("journals:list_journals", "List the journals below a directory."),
        "options": ("journals:change_options", "Show or change the options of a journal."),
        "backup": ("care:backup", "Copy a journal that is in use."),
        "rm": ("journals:remove", "Delete a journal."),
    },
    "Records": {
        "append": ("append:append", "Append lines or binary records."),
        "dump": ("dump:dump", "Print records, or the raw structure."),
        "tail": ("tail:tail", "Print the last records, and follow."),
        "read": ("read:read", "Print what a subscriber has not read yet, and commit it."),
        "work": ("work:work", "Run a command for each record, shared out among processes."),
        "work-ls": ("work_records:work_ls", "List the records that are taken, delayed or failed."),
        "work-release": ("work_records:work_release", "Give back a record that a worker has."),
        "work-reject": ("work_records:work_reject", "Reject a record that a worker has."),
        "work-retry": ("work:work_retry", "Put dead letters back into their journals."),
        "sql": ("sql:sql", "Ask journals with SQL, through DuckDB."),
    },
    "Positions": {
        "subscriber": ("subscribers:subscriber", "Subscribers: list, add, remove, move, copy."),
        "checkpoint": ("subscribers:checkpoint", "Checkpoints: list, set, remove."),
        "rewind": ("subscribers:rewind", "Set a subscriber back to a checkpoint."),
    },
    "Care": {
        "doctor": ("doctor:doctor", "Say what is wrong or will be, and what to do."),
        "verify": ("care:verify", "Check every byte of a journal."),
        "repair": ("care:repair", "Make a damaged journal sound."),
        "clean": ("care:clean", "Archive and remove segments that nobody needs."),
        "archive": ("care:archive", "Copy sealed segments to the archive."),
        "restore": ("care:restore", "Create a journal from an archive."),
        "roll": ("journals:roll", "Seal the open segment and open the next."),
        "stats": ("stats:stats", "Show counters and subscribers."),
        "console": ("console:console", "Look at journals in a browser."),
        "top": ("stats:top", "Watch journals and their subscribers."),
        "metrics": ("stats:metrics", "Give metrics to Prometheus."),
    },
    "Kafka": {
        "mirror": ("mirror:mirror", "Mirror to and from Kafka; status, verify."),
        "transform": ("transform:transform", "Change records on their way somewhere else."),
    },
    "Spark": {"pipeline": ("pipeline:pipeline", "From journals to Parquet, Delta or Iceberg, through Spark.")},
    "libjlog": {
        "import": ("libjlog:import_libjlog", "Import a journal of libjlog."),
        "export": ("libjlog:export_libjlog", "Export a journal to libjlog."),
    },
    "More": {
        "bench": ("bench:bench", "Measure speed on this machine."),
        "completion": ("completion:completion", "Print a script for completion in a shell."),
        "demo": ("demo:demo", "Show in a minute how jlog works."),
    },
}


class Tool(Group):
    """Imports the file of a command only when the command is used, so that no command waits for the libraries of another."""

    known_elsewhere: ClassVar[dict[str, str]] = {
        "cat": "`jlogtool dump JOURNAL` prints all records.",
        "cp": "`jlogtool backup JOURNAL DIRECTORY` copies a journal, also while it is in use.",
        "grep": "`jlogtool dump --grep REGEX JOURNAL` prints the records that match.",
        "mv": "A journal is a directory: close it in all processes, then move it with `mv`.",
        "version": "`jlogtool --version` prints the version.",
    }

    def list_commands(self, ctx: click.Context | None = None) -> list[str]:  # noqa: ARG002
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        for section in SECTIONS.values():
            if cmd_name in section:
                target, line = section[cmd_name]
                module, attribute = target.split(":")
                command: click.Command = getattr(importlib.import_module(f"jlog.cli.commands.{module}"), attribute)
                command.short_help = line
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in section.items()])


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
      4    doctor has found something that needs care
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
    if sys.stdout is not None:
        sys.stdout = whole_stdout()
    if isinstance(sys.stderr, TextIOWrapper):  # a path need not be UTF-8, and a terminal need not have every character
        sys.stderr.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as end:  # of a signal
        say_no_more()
        code = end.code if isinstance(end.code, int) else FAILED
    if code > SIGNALLED:
        leave(code)
    sys.exit(code)


def _fill_standard_streams() -> None:
    """Opens standard streams that the caller has closed. Otherwise a file of the journal would get their number, and with it
    the output of the system."""
    fd = os.open(os.devnull, os.O_RDWR)  # noqa: TID251 - no handler is there yet
    while fd <= 2:
        fd = os.dup(fd)  # noqa: TID251
    os.close(fd)


def run(arguments: list[str]) -> int:
    """Runs the command line and returns the exit code."""
    try:
        with interruptible():
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
        return exit_code_of(error)


def _invoke(arguments: list[str]) -> int:
    if instruction := os.environ.get(VARIABLE):
        return answer(tool, NAME, instruction)
    try:
        with tool.make_context(NAME, list(arguments)) as context:
            tool.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:  # is raised by Ctrl-C or Ctrl-D at a question
        return INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            command = error.option_name.lstrip("-")
            if command in harmless(tool.list_commands()) and command != error.ctx.info_name:
                error = click.UsageError(f"No such option {error.option_name!r}. Did you mean `jlogtool {command}`?", error.ctx)
        error.show()
        return error.exit_code
    return DONE


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning):
        complain(f"warning: {message}")

"""The types of arguments and options, which turn text into values of the API."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from jlog.cli.arguments.click_parts import AddOptions, together
from jlog.cli.arguments.topics import topic_settings
from jlog.cli.terminal.output import complain
from jlog.errors import CheckpointNotFound, JournalError
from jlog.system.texts import (
    FORMS,
    FoundTime,
    is_number,
    parse_duration,
    parse_pattern,
    parse_position,
    parse_seconds,
    parse_size,
)
from jlog.urls import Place, open_journal, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # takes a type argument only since click 8.4

PositionArgument = str | int | datetime


class Parsed(ParamType):
    """A value that `parse` makes of the text. A ValueError of `parse` is an error of usage."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # is a default
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TimeType(Parsed):
    """A value that may be a time. A line on stderr names the zone that was taken for a text without an offset."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isinstance(found, FoundTime):
            return found
        if found.is_local and not (ctx is not None and ctx.resilient_parsing):
            names = param.opts if isinstance(param, click.Option) else []
            # click does not tell by which of its names an option was given.
            option = next((f"{name} " for word in reversed(sys.argv) if (name := word.partition("=")[0]) in names), "")
            complain(f"{option}{value}: taken as {found.time.isoformat()}, in this machine's zone, {found.time.tzname()}")
        return found.time


class PositionType(TimeType):
    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _beginning_with(incomplete, ["begin", "end", *_names(ctx, "checkpoints")])


class NameType(ParamType):
    """The name of an existing subscriber or checkpoint: `kind` is `subscribers` or `checkpoints`."""

    name = "NAME"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _beginning_with(incomplete, _names(ctx, self._kind))


def _names(ctx: click.Context, kind: str) -> list[str]:
    """Lists the names for completion. It lists none where the journal cannot be read: the command itself tells why."""
    # While the value of an option is typed, click has not told arguments apart yet.
    given = ctx.params.get("journal") or next(iter(ctx.args), "")
    try:
        return [] if place_of(given).is_topic else list(getattr(open_journal(given), kind)())
    except (JournalError, OSError, ValueError):
        return []


def _beginning_with(incomplete: str, values: list[str]) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


class JournalType(ParamType):
    """A Place: of a journal, and where the command takes them, of a Kafka topic or an archive. The type does not check that the
    path exists: a missing path is not an error of usage."""

    name = "JOURNAL"

    def __init__(self, *, or_topic: bool = False, or_archive: bool = False, or_server: bool = False) -> None:
        self._or_topic = or_topic
        self._or_archive = or_archive
        self._or_server = or_server  # a topic's URL may leave out the topic

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        try:
            place = place_of(value, archives=self._or_archive)
            if place.is_topic:
                if not self._or_topic:
                    raise ValueError(f"{value} is a Kafka topic, and this command is for journals")
                from jlog.kafka.client import url  # slow to import

                (url.parse_any if self._or_server else url.parse)(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        is_relative = place.is_journal and ":" in place.partition("/")[0]
        return Place(f"./{place}") if is_relative else place  # a colon would make it a URL later on

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]


DIRECTORY = JournalType()
DIRECTORY_OR_SERVER = JournalType(or_topic=True, or_server=True)
PATH = click.Path()


journal_argument: AddOptions = click.argument("journal", type=DIRECTORY)
journal_or_archive_argument: AddOptions = click.argument("journal", type=JournalType(or_archive=True))
# For a command that uses jlog.urls, and the methods that both backends have.
journal_or_topic_argument: AddOptions = together(click.argument("journal", type=JournalType(or_topic=True)), topic_settings)
# Everything that past_damage.open_reader opens.
readable_argument: AddOptions = together(
    click.argument("journal", type=JournalType(or_topic=True, or_archive=True)), topic_settings
)


def refuse_beside(option: str, *others: str) -> None:
    """Raises an error of usage if one of the other options, by the names of their parameters, was given too."""
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if parameter.name in others and given:
            raise click.UsageError(f"{option} and {parameter.opts[-1]} do not go together", ctx)


def parse_dedup(text: str) -> int | timedelta:
    """Parses a number of ids, or the time for which one is known."""
    return int(text) if is_number(text) else parse_duration(text)


def start_option(text: str, *names: str, default: str | None = "begin") -> AddOptions:
    """The option where reading begins; `names` are others that a command has for it."""
    return click.option(*names, "--from", "--since", "start", type=POSITION, default=default, show_default=True, help=text)


def stop_option(name: str = "stop", *, default: str | None = "end") -> AddOptions:
    """The option where reading ends; `name` is the command's parameter."""
    text = "The first record that is left out."
    return click.option("--to", "--until", name, type=POSITION, default=default, show_default=True, help=text)


NO_LIMIT = object()  # the value of `none`, to tell it from an option that was not given


def or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: NO_LIMIT if text == "none" else parse(text)


SUBSCRIBER = NameType("subscribers")
CHECKPOINT = NameType("checkpoints")
POSITIONS = f"begin, end, a sequence, the name of a checkpoint, or a time: {FORMS}"
POSITION = PositionType("POSITION", parse_position)
SIZE = Parsed("BYTES", parse_size)
DEDUP = Parsed("N|AGE", parse_dedup)
SIZE_LIMIT = Parsed("BYTES", or_none(parse_size))
AGE_LIMIT = Parsed("DURATION", or_none(parse_duration))
ARCHIVE = Parsed("URL", or_none(str))
SECONDS = Parsed("DURATION", parse_seconds)
PATTERN = Parsed("REGEX", lambda text: parse_pattern(os.fsencode(text)))  # on bytes


@contextmanager
def checked() -> Iterator[None]:
    """Turns a ValueError of the API into an error of usage. Used around calls whose arguments come from the command line."""
    try:
        yield
    except CheckpointNotFound as error:
        ctx = click.get_current_context(silent=True)
        if ctx is None or not any(isinstance(param.type, PositionType) for param in ctx.command.params):
            raise
        raise CheckpointNotFound(f"{error}; a position is {POSITIONS}") from None
    except JournalError:
        raise
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error

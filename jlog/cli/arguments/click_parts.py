"""What jlogtool adds to click: groups of commands, and several options as one decorator or as one argument of a command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import click

from jlog.cli.process import USAGE

AddOptions = Callable[[Callable[..., Any]], Callable[..., Any]]  # decorates the function of a command


def together(*options: AddOptions) -> AddOptions:
    """Returns a decorator that adds all of these options, in the order in which --help lists them."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def as_one(name: str, make: Callable[..., Any], *options: AddOptions) -> AddOptions:
    """Returns a decorator that adds all of these options. In place of their values the command gets one argument, `name`: what
    `make` returns for the values."""
    add_all = together(*options)
    names = [str(option.name) for option in click.command(name)(add_all(lambda: None)).params]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_one(**given: Any) -> Any:
            values = {option: given.pop(option) for option in names}
            return command(**given, **{name: make(**values)})

        return add_all(with_one)

    return add


DESTRUCTIVE = ("clean", "repair", "rm")  # commands that remove or repair


def harmless(names: list[str]) -> list[str]:
    """Returns the commands that may be suggested: a person may run a suggestion without reading about it."""
    return [name for name in names if name not in DESTRUCTIVE]


class Group(click.Group):
    """Without a command it ends as an error of usage, with the help on stderr. click itself does so only since 8.2."""

    known_elsewhere: ClassVar[dict[str, str]] = {}  # what people type out of habit, and what does it here

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        if args[:1] == ["help"] and not ctx.resilient_parsing:  # what git and many others know: `jlogtool help append`
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the nearest command where there is none of this name. click itself does so only since 8.4, and only for a group
        that has all its commands imported."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            import difflib  # is for this error alone

            near = difflib.get_close_matches(name, harmless(self.list_commands(ctx)), 1, cutoff=0.5)
            meant = self.known_elsewhere.get(name) or (f"Did you mean {near[0]!r}?" if near else "")
            ctx.fail(f"No such command {name!r}. {meant}".rstrip())
        return super().resolve_command(ctx, args)

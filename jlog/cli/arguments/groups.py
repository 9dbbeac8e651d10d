"""A group of commands."""

from __future__ import annotations

from typing import ClassVar

import click

from jlog.cli.exits import USAGE

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

"""A group of commands."""

from __future__ import annotations

import click

from jlog.cli.exits import USAGE


class Group(click.Group):
    """Without a command it ends as an error of usage, with the help on stderr. click itself does so only since 8.2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

"""Several options as one decorator, and as one argument of a command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

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

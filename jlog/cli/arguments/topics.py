"""Options about Kafka topics: the size of a topic that has to be created, and librdkafka's settings."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from jlog.cli.arguments.click_parts import AddOptions, together
from jlog.cli.terminal.output import complain

F = TypeVar("F", bound=Callable[..., Any])
MAKING = ("partitions", "replication_factor", "no_create")


def kafka() -> Any:
    """Imports jlog.kafka, which needs an extra, when a command uses it."""
    return importlib.import_module("jlog.kafka")


size_options: AddOptions = together(
    click.option(
        "--partitions", type=click.IntRange(min=1), help="Partitions of a topic that has to be created.  [default: 1]"
    ),
    click.option(
        "--replication-factor",
        type=click.IntRange(min=1),
        help="Replicas of a topic that has to be created.  [default: the brokers']",
    ),
)
# Of commands that make a topic where there is none.
making_options: AddOptions = together(
    size_options,
    click.option("--no-create", is_flag=True, help="Fail where there is nothing to write to, instead of making it."),
)


def take_making(options: dict[str, Any], for_topic: bool) -> dict[str, Any]:
    """Takes these options out of `options`. Returns those that were given, with the names of the API."""
    found = {name: options.pop(name, None) for name in MAKING}
    making = {name: found[name] for name in MAKING[:2] if found[name] is not None}
    if making and not for_topic:
        raise click.UsageError("--partitions and --replication-factor are for Kafka topics")
    return making | ({"create": False} if found["no_create"] else {})


def _set_each(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """Sets each, and warns of secrets, which are on the command line."""
    if not values:
        return
    kafka()
    from jlog.kafka.client.settings import is_secret

    for value in values:
        name, equals, text = (part.strip() for part in value.partition("="))
        if not equals or not name:
            raise click.BadParameter("write NAME=VALUE", ctx, param)
        if is_secret(name):
            complain(
                f"warning: everybody who lists processes sees -X {name}=…; put it into a file (--config), name a file with it "
                f"(-X {name}.file=…), or set {_variable(name)}"
            )
        os.environ[_variable(name)] = text


def _set_from_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    kafka()
    from jlog.kafka.client.settings import read_file

    try:
        found = read_file(path)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    os.environ.update((_variable(name), value) for name, value in found.items())


def _variable(name: str) -> str:
    return "JLOG_KAFKA_" + name.upper().replace(".", "_")


# The settings of librdkafka's. A topic is opened with those of this process's environment, and these options are put into it.
_settings = together(
    click.option(
        "-X",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        expose_value=False,
        callback=_set_each,
        help="For a Kafka topic: a setting of librdkafka's, such as security.protocol=SSL. May be repeated.",
    ),
    click.option(
        "--config",
        metavar="FILE",
        expose_value=False,
        is_eager=True,  # comes before -X, which overrides it
        callback=_set_from_file,
        help="For a Kafka topic: file of such settings, one on each line.",
    ),
)


def topic_settings(function: F) -> F:
    """Adds these options to a command, after its others, which more people use."""
    _settings(function)
    options = function.__click_params__  # type: ignore[attr-defined]  # click reverses it
    options[:] = options[-2:] + options[:-2]
    return function

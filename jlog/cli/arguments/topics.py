"""Options about Kafka topics: the size of a topic that has to be created, and librdkafka's settings."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import click

from jlog.cli.terminal.output import complain

Command = Callable[..., Any]

MAKING = ("partitions", "replication_factor", "no_create")


def kafka() -> Any:
    """Imports jlog.kafka, which needs an extra, when a command uses it."""
    return importlib.import_module("jlog.kafka")


def making_options(command: Command) -> Command:
    """Adds the options of commands that make a topic where there is none."""
    command = click.option("--no-create", is_flag=True, help="Fail where there is nothing to write to, instead of making it.")(
        command
    )
    return size_options(command)


def size_options(command: Command) -> Command:
    command = click.option(
        "--replication-factor",
        type=click.IntRange(min=1),
        help="Replicas of a topic that has to be created.  [default: the brokers']",
    )(command)
    return click.option(
        "--partitions", type=click.IntRange(min=1), help="Partitions of a topic that has to be created.  [default: 1]"
    )(command)


def take_making(options: dict[str, Any], for_topic: bool) -> dict[str, Any]:
    """Takes these options out of `options`. Returns those that were given, with the names of the API."""
    found = {name: options.pop(name, None) for name in MAKING}
    making = {name: found[name] for name in MAKING[:2] if found[name] is not None}
    if making and not for_topic:
        raise click.UsageError("--partitions and --replication-factor are for Kafka topics")
    return making | ({"create": False} if found["no_create"] else {})


def config_options(command: Command) -> Command:
    """Adds the options of librdkafka's settings, as the arguments `settings` and `config_file`."""
    command = click.option(
        "--config",
        "config_file",
        type=click.Path(),
        metavar="FILE",
        help="File of such settings, one on each line.",
    )(command)
    return click.option(
        "-X",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_warn_of_secrets,
        help="A setting of librdkafka's, for example security.protocol=SSL. May be repeated.",
    )(command)


def topic_settings(command: Command) -> Command:
    """Adds the same for a command that takes journals too, and opens either by its URL. Such a command reads settings from the
    environment of this process, and these options are put into it."""
    command = click.option(
        "--config",
        metavar="FILE",
        expose_value=False,
        is_eager=True,  # comes before -X, which overrides it
        callback=_set_from_file,
        help="For a Kafka topic: file of such settings, one on each line.",
    )(command)
    return click.option(
        "-X",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        expose_value=False,
        callback=_set_each,
        help="For a Kafka topic: a setting of librdkafka's, such as security.protocol=SSL. May be repeated.",
    )(command)


def _warn_of_secrets(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Warns of secrets on the command line."""
    names = [value.partition("=")[0].strip() for value in values]
    if not names:
        return values
    kafka()
    from jlog.kafka.client.settings import is_secret

    for name in filter(is_secret, names):
        complain(
            f"warning: everybody who lists processes sees -X {name}=…; put it into a file (--config), name a file with it "
            f"(-X {name}.file=…), or set JLOG_KAFKA_{name.upper().replace('.', '_')}"
        )
    return values


def _set_each(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    _warn_of_secrets(ctx, param, values)
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter("write NAME=VALUE", ctx, param)
        _set(name.strip(), text.strip())


def _set_from_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    kafka()
    from jlog.kafka.client.settings import read_file

    try:
        found = read_file(path)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    for name, value in found.items():
        _set(name, value)


def _set(name: str, value: str) -> None:
    os.environ["JLOG_KAFKA_" + name.upper().replace(".", "_")] = value

"""Writes the part of docs/command-line.md that describes each command, from the commands themselves. With `--check` it only
reports whether the page is up to date."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import click

from jlog.cli.tool import SECTIONS, tool

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"
MARK = "<!-- From here on tools/command_line.py writes this page. -->\n"


def page() -> str:
    """Returns the page as it should be."""
    before, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost the line {MARK!r}"
    sections = [f"## {title}\n\n" + "\n".join(map(described, names)) for title, names in SECTIONS.items()]
    return before + MARK + "\n" + "\n".join(sections)


def described(name: str) -> str:
    context = click.Context(tool, info_name="jlogtool")
    command = tool.get_command(context, name)
    assert command is not None
    text = one(name, command, "###")
    if isinstance(command, click.Group):
        text += "".join("\n" + one(f"{name} {sub}", command.commands[sub], "####") for sub in command.commands)
    return text


def one(name: str, command: click.Command, heading: str) -> str:
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    parts = [f"{heading} `jlogtool {name}`", text.strip()]
    if not isinstance(command, click.Group):
        parts.insert(1, f"```text\njlogtool {name} {usage(command)}\n```")
        parts.append("\n".join(["| option | |", "|---|---|", *options(command)]))
        parts.append(f"```sh\n{inspect.cleandoc(examples.partition(chr(10))[2])}\n```")
    return "\n\n".join(parts) + "\n"


def usage(command: click.Command) -> str:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    return " ".join(["[OPTIONS]", *(argument_of(argument) for argument in arguments)])


def argument_of(argument: click.Argument) -> str:
    if isinstance(argument.type, click.Choice):
        return "|".join(argument.type.choices)
    name = (argument.metavar or (argument.name or "").upper()).strip("[].")
    name = name if argument.required else f"[{name}]"
    return f"{name}…" if argument.nargs == -1 else name


def options(command: click.Command) -> list[str]:
    found = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return [f"| {names(option)} | {meaning(option)} |" for option in found]


def names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {metavar(option)}"
    shown = [f"`{name}{value}`" for name in option.opts]
    shown += [f"`{name}`" for name in option.secondary_opts]
    return ", ".join(shown).replace("|", "\\|")


def metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    return "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.type.name


def meaning(option: click.Option) -> str:
    """Returns the help of an option, with its default as a sentence: the stated one, or the one that click would add."""
    text, default = re.fullmatch(r"(.*?)(?:  \[(.*)\])?", option.help or "").groups()
    if option.show_default:
        default = f"default: {option.default}"
    return f"{text} ({default})".replace("|", "\\|") if default else text.replace("|", "\\|")


if __name__ == "__main__":
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit(f"{PAGE} is not what the commands say; run `python tools/command_line.py`")

"""Writes the part of docs/command-line.md that describes each command, from the commands themselves. With `--check` it only
reports whether the page is up to date."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from jlog.cli.tool import SECTIONS, tool

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"
CODE_OR_OPTION = re.compile(r"`[^`]*`|(?<![\w-])--[a-z][a-z-]*")
MARK = "<!-- From here on tools/command_line.py writes this page. -->\n"


def page() -> str:
    """Returns the page as it should be."""
    before, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost the line {MARK!r}"
    sections = [f"## {title}\n\n" + "\n".join(map(described, names)) for title, names in SECTIONS.items()]
    return before + MARK + "\n" + "\n".join(sections)


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yields every command with its names, in the order of the page."""
    for section in SECTIONS.values():
        for name in section:
            yield name, command_of(name)
            yield from subcommands(name, command_of(name))


def command_of(name: str) -> click.Command:
    command = tool.get_command(click.Context(tool, info_name="jlogtool"), name)
    assert command is not None
    return command


def described(name: str) -> str:
    command = command_of(name)
    return one(name, command, "###") + "".join("\n" + one(*found, "####") for found in subcommands(name, command))


def subcommands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yields the commands of a group with their names, "mirror run" for example. A command that is no group has none."""
    for sub, found in command.commands.items() if isinstance(command, click.Group) else ():
        yield f"{name} {sub}", found
        yield from subcommands(f"{name} {sub}", found)


def one(name: str, command: click.Command, heading: str) -> str:
    texts, examples = texts_and_examples(command)
    parts = [f"{heading} `jlogtool {name}`", *texts]
    if not isinstance(command, click.Group):
        parts.insert(1, f"```text\njlogtool {name} {usage(command)}\n```")
        parts.append("\n".join(["| option | |", "|---|---|", *options(command)]))
        parts.append(f"{notes(heading, name)}```sh\n{examples}\n```")
    return "\n\n".join(parts) + "\n"


def notes(heading: str, name: str) -> str:
    """Returns the comments for the tests that stand above the examples of a command. They are the page's own."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n{heading} `jlogtool {name}`\n")[2].partition("```sh\n")[0]
    found = re.search(r"(<!-- .* -->\n)*\Z", text)
    return found[0] if found else ""


def paragraphs(command: click.Command) -> list[str]:
    return re.split(r"\n\n|\n(?=\x08)", inspect.cleandoc(command.help or ""))


def texts_and_examples(command: click.Command) -> tuple[list[str], str]:
    """Returns the paragraphs of the help, and the lines below "Example:". A paragraph behind \\b, which click does not wrap, is
    part of a file: those that follow each other become one block."""
    texts: list[str] = []
    in_file = False
    for paragraph in paragraphs(command):
        verbatim = paragraph.startswith("\b\n")
        text = textwrap.dedent(paragraph.removeprefix("\b\n")).strip()
        if verbatim and re.match(r"Examples?:\n", text):
            return texts, textwrap.dedent(text.partition("\n")[2])
        if verbatim and in_file:
            texts[-1] = texts[-1].removesuffix("\n```") + f"\n\n{text}\n```"
        else:
            texts.append(f"```toml\n{text}\n```" if verbatim else options_as_code(text))
        in_file = verbatim
    return texts, ""


def usage(command: click.Command) -> str:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    return " ".join(["[OPTIONS]", *(argument_of(argument) for argument in arguments)])


def argument_of(argument: click.Argument) -> str:
    if isinstance(argument.type, click.Choice):
        return "|".join(argument.type.choices)
    if argument.metavar and " " in argument.metavar:
        return argument.metavar
    name = (argument.metavar or (argument.name or "").upper()).strip("[].")
    name = name if argument.required else f"[{name}]"
    return f"{name}…" if argument.nargs == -1 else name


def options(command: click.Command) -> list[str]:
    found = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return [f"| {names(option)} | {cell(meaning(option))} |" for option in found]


def cell(text: str) -> str:
    """Returns the text as the cell of a table."""
    return options_as_code(text).replace("|", "\\|")


def options_as_code(text: str) -> str:
    """Returns the text with the names of options as code, so that no line is broken at their hyphens."""
    return CODE_OR_OPTION.sub(lambda found: found[0] if found[0].startswith("`") else f"`{found[0]}`", text)


def names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {metavar(option)}"
    shown = [f"`{name}{value}`" for name in option.opts]
    shown += [f"`{name}`" for name in option.secondary_opts]
    return cell(", ".join(shown))


def metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "N" if isinstance(option.type, click.IntRange) else option.type.name.upper()


def meaning(option: click.Option) -> str:
    """Returns the help of an option, with its default as a sentence: the stated one, or the one that click would add."""
    text, default = re.fullmatch(r"(.*?)(?:  \[(.*)\])?", option.help or "").groups()
    if option.show_default:
        default = f"default: {option.default}"
    return f"{text} ({default})" if default else text


if __name__ == "__main__":
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit(f"{PAGE} is not what the commands say; run `python tools/command_line.py`")

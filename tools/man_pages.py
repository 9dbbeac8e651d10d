"""Writes the manual pages of `jlogtool` into docs/man, from the commands themselves: one page for each command, and jlogtool.1,
which lists them. With `--check` it only reports which pages are not up to date."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from command_line import PAGE, command_of, meaning, metavar, subcommands, texts_and_examples, usage

from jlog.cli.tool import SECTIONS, tool

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "man"


def pages() -> dict[str, str]:
    """Returns every page by the name of its file."""
    names = [name for section in SECTIONS.values() for name in section]
    return {"jlogtool.1": overview()} | {f"jlogtool-{name}.1": page_of(name) for name in names}


def overview() -> str:
    """Returns the page jlogtool.1. Its WORDS and EXIT STATUS are those of docs/command-line.md."""
    texts, examples = texts_and_examples(tool)
    about = [text for text in texts if "Exit codes:" not in text]
    commands = [f".SS {title}\n" + "".join(map(listed, section)) for title, section in SECTIONS.items()]
    return (
        head("jlogtool", about[0][0].lower() + about[0][1:].rstrip("."))
        + section("SYNOPSIS", f"{bold('jlogtool')} {italic('COMMAND')} [OPTIONS] {italic('ARGUMENTS')}\n")
        + section("DESCRIPTION", paragraphs(about))
        + section("COMMANDS", "".join(commands))
        + section("WORDS", "".join(tagged(bold(word), text) for word, text in words()))
        + section("EXIT STATUS", "".join(tagged(bold(code), text) for code, text in exit_codes()))
        + section("EXAMPLES", as_typed(examples))
    )


def page_of(name: str) -> str:
    command = command_of(name)
    below = list(subcommands(name, command))
    return (
        head(f"jlogtool-{name}", short(command))
        + section("SYNOPSIS", ".br\n".join(synopsis(*found) for found in [(name, command), *below] if not is_group(found[1])))
        + section("DESCRIPTION", paragraphs(texts_and_examples(command)[0]))
        + (section("COMMANDS", "".join(part_of(*found) for found in below)) if below else "")
        + "".join(section(title.upper(), text) for title, text in details(command))
        + section("SEE ALSO", f"{bold('jlogtool')}(1)\n")
    )


def part_of(name: str, command: click.Command) -> str:
    """Describes a command of a group, as a part of the group's page."""
    below = "".join(f".PP\n{title}:\n{text}" for title, text in details(command))
    return f".SS jlogtool {escaped(name)}\n" + paragraphs(texts_and_examples(command)[0]) + below


def details(command: click.Command) -> Iterator[tuple[str, str]]:
    """Yields a command's options and its examples, each below its title. A group has neither."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    if options:
        yield "Options", "".join(tagged(spelled(option), meaning(option)) for option in options)
    examples = texts_and_examples(command)[1]
    if examples:
        yield "Examples", as_typed(examples)


def is_group(command: click.Command) -> bool:
    return isinstance(command, click.Group)


def short(command: click.Command) -> str:
    return command.get_short_help_str(200).rstrip(".")


def listed(name: str) -> str:
    return tagged(f"{bold('jlogtool-' + name)}(1)", short(command_of(name)) + ".")


def words() -> list[tuple[str, str]]:
    """Returns the words of docs/command-line.md that stand for a kind of argument, with what they mean."""
    text = PAGE.read_text(encoding="utf-8").partition("## What the words mean\n")[2].partition("\n## ")[0]
    return re.findall(r"(?ms)^([A-Z]+)\n: (.*?)(?=\n\n|\Z)", text)


def exit_codes() -> list[tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition("## Exit codes\n")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\| (\d+) \| (.*) \|$", text)


def head(name: str, meaning: str) -> str:
    return f'.TH {escaped(name.upper())} 1 "" jlog "jlog manual"\n' + section(
        "NAME", f"{escaped(name)} \\- {inline(meaning)}\n"
    )


def section(title: str, text: str) -> str:
    return f".SH {title}\n{text}"


def synopsis(name: str, command: click.Command) -> str:
    return f"{bold('jlogtool ' + name)} {escaped(usage(command))}\n"


def paragraphs(texts: list[str]) -> str:
    """Returns the paragraphs of a help; one in a fence is part of a file and keeps its lines."""
    return ".PP\n".join(
        as_typed(text.partition("\n")[2].removesuffix("\n```")) if text.startswith("```") else f"{inline(text)}\n"
        for text in texts
    )


def as_typed(text: str) -> str:
    return f".RS\n.nf\n{escaped(text)}\n.fi\n.RE\n"


def tagged(tag: str, text: str) -> str:
    return f".TP\n{tag}\n{inline(text)}\n"


def spelled(option: click.Option) -> str:
    value = "" if option.is_flag else " " + italic(metavar(option))
    return ", ".join([bold(name) + value for name in option.opts] + [bold(name) for name in option.secondary_opts])


def inline(text: str) -> str:
    """Returns a paragraph of Markdown or of a help as roff: code in bold, and no links, which all stand in brackets."""
    text = re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", " ".join(text.split()))
    pieces = re.split(r"(`[^`]+`)", text)
    joined = "".join(bold(piece[1:-1]) if len(piece) > 2 and piece.startswith("`") else escaped(piece) for piece in pieces)
    return "\\&" + joined if joined.startswith((".", "'")) else joined


def bold(text: str) -> str:
    return f"\\fB{escaped(text)}\\fR"


def italic(text: str) -> str:
    return f"\\fI{escaped(text)}\\fR"


def escaped(text: str) -> str:
    """Returns the text so that roff prints it as it is: no line is a request, and "-" stays what a shell takes for one."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    return re.sub(r"(?m)^(?=\.)", r"\\&", text)


def main() -> None:
    wanted = pages()
    if "--check" in sys.argv[1:]:
        there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*")}
        stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
        sys.exit(f"not what the commands say: {', '.join(stale)}; run `python tools/man_pages.py`" if stale else 0)
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.1"):
        path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Writes the manual from the commands: the part of docs/command-line.md that describes each of them, a page in docs/man for
each, and jlogtool.1, which lists them. With `--check` it only reports which files are not up to date."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from jlog.cli.tool import SECTIONS, tool

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "command-line.md"
CODE_OR_OPTION = re.compile(r"`[^`]*`|(?<![\w-])--[a-z][a-z-]*")
MARK = "<!-- From here on tools/manual.py writes this page. -->\n"


# --- docs/command-line.md ---------------------------------------------------------------------------------------------


def reference() -> str:
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
    """Yields the commands of a group with their names, "mirror run" for example. A command that is not a group has none."""
    for sub, found in command.commands.items() if isinstance(command, click.Group) else ():
        yield f"{name} {sub}", found
        yield from subcommands(f"{name} {sub}", found)


def one(name: str, command: click.Command, heading: str) -> str:
    texts, examples = texts_and_examples(command)
    parts = [f"{heading} `jlogtool {name}`", *texts]
    if not isinstance(command, click.Group):
        parts[1:1] = [
            f"```text\njlogtool {name} {usage(command)}\n```",
            texts[0],
            f"{notes(heading, name)}```sh\n{examples}\n```",
        ]
        del parts[4]  # the first paragraph, which the examples follow
        options = list(rows(command))
        if options:
            parts.append("\n".join(["| option | |", "|---|---|", *options]))
    return "\n\n".join(parts) + "\n"


def notes(heading: str, name: str) -> str:
    """Returns the comments for the tests that stand above the examples of a command. They are the page's own."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n{heading} `jlogtool {name}`\n")[2].partition("```sh\n")[0]
    found = re.search(r"(<!-- .* -->\n)*\Z", text)
    return found[0] if found else ""


def paragraphs_of(command: click.Command) -> list[str]:
    return re.split(r"\n\n|\n(?=\x08)", inspect.cleandoc(command.help or ""))


def texts_and_examples(command: click.Command) -> tuple[list[str], str]:
    """Returns the paragraphs of the help, and the lines below "Example:". A paragraph after \\b, which click does not wrap, is
    part of a file: those that follow each other become one block."""
    texts: list[str] = []
    in_file = False
    for paragraph in paragraphs_of(command):
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


def rows(command: click.Command) -> list[str]:
    found = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return [f"| {names_of(option)} | {cell(meaning(option))} |" for option in found]


def cell(text: str) -> str:
    """Returns the text as the cell of a table."""
    return options_as_code(text).replace("|", "\\|")


def options_as_code(text: str) -> str:
    """Returns the text with the names of options as code, so that no line is broken at their hyphens."""
    return CODE_OR_OPTION.sub(lambda found: found[0] if found[0].startswith("`") else f"`{found[0]}`", text)


def names_of(option: click.Option) -> str:
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


# --- docs/man ---------------------------------------------------------------------------------------------------------


def man_pages() -> dict[Path, str]:
    names = [name for section in SECTIONS.values() for name in section]
    return {
        DOCS / "man" / f"jlogtool{end}": text
        for end, text in [(".1", overview()), *((f"-{name}.1", page_of(name)) for name in names)]
    }


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
    wanted = {PAGE: reference(), **man_pages()}
    there = {path: path.read_text(encoding="utf-8") for path in [PAGE, *DOCS.glob("man/*.1")]}
    stale = sorted(path for path in wanted.keys() | there.keys() if wanted.get(path) != there.get(path))
    if "--check" in sys.argv[1:]:
        names = ", ".join(str(path.relative_to(DOCS)) for path in stale)
        sys.exit(f"not what the commands say: {names}; run `python tools/manual.py`" if stale else 0)
    for path in stale:
        if path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()


if __name__ == "__main__":
    main()

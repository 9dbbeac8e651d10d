"""`jlogtool mirror positions`: lists and sets where a mirror, a capture or a transform goes on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.click_parts import Group
from jlog.cli.arguments.parameters import POSITION, checked
from jlog.cli.arguments.topics import kafka, topic_settings
from jlog.cli.terminal.output import complain, json_option, print_json, print_table
from jlog.transform import transform_subscriber, transforming
from jlog.urls import path_of

if TYPE_CHECKING:
    from jlog.cli.arguments.click_parts import AddOptions
    from jlog.flow.engine import Flow


@click.group(cls=Group, short_help="List and set where a mirror goes on.")
def positions() -> None:
    """Positions of a mirror, a capture or a transform: where it goes on.

    SOURCE and SINK are those of the command that moves the records, each a journal or a topic. SINK stores the position
    of each part of SOURCE: of the journal, or of each partition of each topic.
    """


name_option: AddOptions = click.option(
    "--name", metavar="NAME", help="Name of a transform from topics to a topic that has one."
)


@positions.command("ls", short_help="List the positions.")
@click.argument("source")
@click.argument("sink")
@topic_settings
@json_option
@name_option
def list_positions(source: str, sink: str, name: str | None, as_json: bool) -> None:
    """List where the next record of each part comes from. The mirror may be running.

    \b
    Examples:
      jlogtool mirror positions ls /var/lib/orders kafka://localhost/orders
      jlogtool mirror positions ls --json 'kafka://localhost/a.*' /var/lib/copy
    """
    with checked():
        ends = [url if (path := path_of(url)) is None else path for url in (source, sink)]
        found = kafka().positions(*ends, name=name)
    if as_json:
        print_json([vars(row) for row in found])
        return
    print_table(["part", "position ", "begin "], [[row.part, row.position, row.begin] for row in found])


@positions.command("set", short_help="Set where a mirror goes on.")
@click.argument("source")
@click.argument("sink")
@click.argument("at", nargs=-1, required=True, metavar="[TOPIC[/PARTITION]] POSITION")
@click.option("--subscriber", metavar="NAME", help="Subscriber of SOURCE.  [default: that of the mirror]")
@click.option("--read-only", is_flag=True, help="Use no subscriber of SOURCE.")
@name_option
@topic_settings
@json_option
def set_position(
    source: str, sink: str, at: tuple[str, ...], subscriber: str | None, read_only: bool, name: str | None, as_json: bool
) -> None:
    """Set where the next run goes on, once, whatever was moved before. Stop the mirror first.

    POSITION is begin, end, a time, a sequence, or an offset of one partition. It counts for the whole source, for one
    of its topics, or for one partition. Records that were moved stay where they are: those after an earlier position
    are moved again.

    \b
    Examples:
      jlogtool mirror positions set /var/lib/a kafka://localhost/a begin
      jlogtool mirror positions set kafka://localhost/a,b /var/lib/copy b/3 end
    """
    if len(at) > 2:
        raise click.UsageError(f"one part and one position follow SINK, not {' '.join(at)}")
    part = at[0] if len(at) == 2 else None
    position = POSITION.convert(at[-1], None, None)
    with checked():
        flow = _flow(source, sink, None if read_only else subscriber or "", name)
        changed = flow.set_position(position, part)
    if as_json:
        print_json(changed)


def _flow(source: str, sink: str, subscriber: str | None, name: str | None) -> Flow:
    source_path, sink_path = path_of(source), path_of(sink)
    make: Any
    if source_path is None and sink_path is not None:
        make = partial(kafka().Capture, source, sink_path)
    elif source_path is not None and sink_path is None:
        # A mirror and a transform have subscribers of different names. The one that is there is the right one.
        of_transform = transform_subscriber(sink)
        if subscriber == "" and of_transform in jlog.Journal(source_path).subscribers():
            subscriber = of_transform
        make = partial(kafka().Mirror, source_path, sink, subscriber=subscriber)
    else:
        make = partial(transforming, source, sink, lambda record: record, subscriber=subscriber, name=name)
    flow: Flow = make(on_event=complain)
    return flow

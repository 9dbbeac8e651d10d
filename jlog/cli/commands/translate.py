"""`jlogtool mirror translate`: lets readers move between a journal and the topic beside it."""

from __future__ import annotations

from typing import Any

import click

from jlog.cli.arguments.parameters import checked, journal_argument
from jlog.cli.arguments.topics import config_options, kafka
from jlog.cli.terminal.output import json_option, print_json, print_table
from jlog.cli.terminal.progress import working


@click.command(short_help="Move readers between a journal and its topic.")
@journal_argument
@click.argument("topic")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--to", type=click.Choice(["groups", "subscribers"]), required=True, help="Side to which the readers move.")
@click.option("--skip-missing", is_flag=True, help="Go on behind records that are no longer on that side.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say where they would go on.")
@config_options
@json_option
def translate(
    journal: str, topic: str, names: tuple[str, ...], settings: Any, config_file: str | None, as_json: bool, **options: Any
) -> None:
    """Set where readers go on that move between JOURNAL and TOPIC. One is mirrored to the other, or captured by it.

    NAME is a subscriber of JOURNAL and a consumer group of TOPIC. `--to groups` commits the offsets of the groups, by the
    positions of the subscribers; `--to subscribers` does the reverse. Stop the readers first. They miss no record. `again`
    says how many they may see a second time, and `exact` is false where times had to decide.

    \b
    Examples:
      jlogtool mirror translate /var/lib/a kafka://host/a billing --to groups
      jlogtool mirror translate -n /var/lib/a kafka://host/a b --to subscribers
    """
    with working("Translating"), checked():
        found = [
            one.as_json()
            for one in kafka().translate(journal, topic, names, config=settings, config_file=config_file, **options)
        ]
    if as_json:
        print_json(found)
        return
    for row in found:
        row["offsets"] = " ".join(f"{partition}:{offset}" for partition, offset in row["offsets"].items())
    print_table([*found[0]], [[*row.values()] for row in found])

"""`jlogtool console`."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from jlog.cli.arguments.parameters import DIRECTORY_OR_SERVER
from jlog.cli.arguments.topics import topic_settings
from jlog.cli.process import notify
from jlog.errors import JournalNotFound
from jlog.urls import Place, list_topics

if TYPE_CHECKING:
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NAMES = ("127.0.0.1", "localhost", "[::1]")
TOKEN_CHARACTERS = 16


@click.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=DIRECTORY_OR_SERVER)
@click.option("--listen", metavar="ADDRESS:PORT", default="127.0.0.1:8080", show_default=True, help="Port 0: a free one.")
@click.option("--allow-changes", is_flag=True, help="Subscribers can be moved, and checkpoints set.")
@click.option(
    "--token",
    envvar="JLOG_CONSOLE_TOKEN",
    help=f"What each browser is asked for, at least {TOKEN_CHARACTERS} characters; also as $JLOG_CONSOLE_TOKEN.",
)
@click.option(
    "--origin",
    metavar="URL",
    help="The address of a proxy before this console, as browsers see it: https://HOST. Needs a token.",
)
@topic_settings
def console(directories: tuple[Place, ...], listen: str, allow_changes: bool, token: str | None, origin: str | None) -> None:
    """Look at the journals below each DIR (the current directory) in a browser, at http://127.0.0.1:8080.

    Shows the journals with their size, lag and the last hour's rate, the state of each, its records by page, position,
    time and pattern, and new ones as they come. Answers SQL. Changes nothing without --allow-changes, and loads nothing
    from elsewhere. Without a token only this machine is answered, and each of its users: for another one, use
    `ssh -L 8080:127.0.0.1:8080 HOST`. Needs the extra pyjlog[console], and [sql] for SQL.

    DIR may be kafka://HOST:PORT or kafka://HOST:PORT/TOPIC: each partition has a line among the journals, and
    the same pages.

    \b
    Examples:
      jlogtool console --listen 127.0.0.1:8080 /var/lib
      jlogtool console --listen 127.0.0.1:8080 --allow-changes /var/lib/orders
    """
    from jlog.console.app import application, serve

    if token is not None and len(token) < TOKEN_CHARACTERS:
        raise click.UsageError(f"the token has {len(token)} characters; use at least {TOKEN_CHARACTERS}")
    if origin is not None:
        origin = checked_origin(origin, token)
    places = [os.path.abspath(directory) for directory in directories or (Place("."),) if not directory.is_topic]
    topics = [topic for url in directories if url.is_topic for topic in topics_at(url)]

    host, number = address_of(listen, elsewhere=token is not None)
    family = socket.AF_INET6 if host.version == 6 else socket.AF_INET
    with socket.create_server((str(host), number), family=family) as server:
        port = server.getsockname()[1]
        hosts = [f"{name}:{port}" for name in NAMES] if host.is_loopback else None
        app = application(places, topics, hosts, allow_changes=allow_changes, token=token, origin=origin)
        shown = f"[{host}]" if host.version == 6 else host
        click.echo(f"Serving http://{shown}:{port}/", err=True)
        notify("READY=1")
        serve(app, server)


def checked_origin(origin: str, token: str | None) -> str:
    """Returns the origin as a browser writes it."""
    try:
        parts = urlsplit(origin)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/") and not parts.query
        port = parts.port
    except ValueError:
        is_whole = False
    if not is_whole:
        raise click.UsageError(f"{origin!r} is not an origin; write a scheme and a host, such as https://journals.example.org")
    if token is None:
        raise click.UsageError("--origin is for a proxy, which others may reach: give a --token too")
    name = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    usual = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{name}" + ("" if usual else f":{port}")


def topics_at(url: str) -> list[str]:
    """Returns the URLs of the partitions of a topic, or of all topics where the URL names none."""
    wanted = urlsplit(url)
    found = [
        topic
        for topic, at in ((topic, urlsplit(topic)) for topic in list_topics(url))
        if wanted.path in ("", "/", at.path) and wanted.query in ("", at.query)
    ]
    if not found:
        raise JournalNotFound(f"{url}: there is no topic", url)
    return found


def address_of(listen: str, *, elsewhere: bool) -> tuple[Address, int]:
    """Returns address and port. elsewhere: whether other machines may be answered."""
    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        number = int(port)
        if not 0 <= number < 1 << 16:
            raise ValueError(port)
    except ValueError:
        raise click.UsageError(f"{listen!r} is not an ADDRESS:PORT to listen on; write 127.0.0.1:8080 or [::1]:8080") from None
    if not (elsewhere or address.is_loopback):
        raise click.UsageError(
            f"{listen!r} can be reached from elsewhere, and without --token everybody is answered; give a token, or listen on "
            "127.0.0.1, and reach it by `ssh -L 8080:127.0.0.1:8080 HOST`"
        )
    return address, number

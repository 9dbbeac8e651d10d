"""`jlogtool console`."""

from __future__ import annotations

import ipaddress
import os
import socket

import click

from jlog.cli.arguments.parameters import DIRECTORY
from jlog.cli.commands.journals import journals_below
from jlog.cli.service import notify

NAMES = ("127.0.0.1", "localhost", "[::1]")


@click.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=DIRECTORY)
@click.option(
    "--listen", metavar="ADDRESS:PORT", default="127.0.0.1:8080", show_default=True, help="Of this machine; port 0: a free one."
)
def console(directories: tuple[str, ...], listen: str) -> None:
    """Look at the journals below each DIR (the current directory) in a browser, at http://127.0.0.1:8080.

    Shows the journals with their size and lag, their records by page, position, time and pattern, and new ones as they
    come. Changes nothing, and loads nothing from elsewhere. Only this machine is answered: for another one, use
    `ssh -L 8080:127.0.0.1:8080 HOST`. Needs the extra pyjlog[console].

    \b
    Examples:
      jlogtool console --listen 127.0.0.1:8080 /var/lib
      jlogtool console --listen 127.0.0.1:8080 /var/lib/events /var/lib/orders
    """
    from jlog.console.app import application, serve

    places = [os.path.abspath(directory) for directory in directories or (".",)]
    with listening(listen) as server:
        port = server.getsockname()[1]
        app = application(lambda: [path for place in places for path in journals_below(place)], [f"{n}:{port}" for n in NAMES])
        click.echo(f"Serving http://127.0.0.1:{port}/", err=True)
        notify("READY=1")
        serve(app, server)


def listening(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        is_here = ipaddress.ip_address(address).is_loopback
        number = int(port)
    except ValueError:
        raise click.UsageError(f"{listen!r} is not an ADDRESS:PORT to listen on; write 127.0.0.1:8080 or [::1]:8080") from None
    if not is_here:
        raise click.UsageError(
            f"{listen!r} can be reached from elsewhere, and the console asks for no password; listen on 127.0.0.1, and reach "
            "it by `ssh -L 8080:127.0.0.1:8080 HOST`"
        )
    return socket.create_server((address, number), family=socket.AF_INET6 if ":" in address else socket.AF_INET)

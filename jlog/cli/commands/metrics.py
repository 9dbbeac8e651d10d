"""`jlogtool metrics`."""

from __future__ import annotations

import re
import signal

import click

from jlog.cli.arguments.parameters import DIRECTORY, checked
from jlog.cli.exits import FAILED
from jlog.cli.service import notify
from jlog.cli.signals import ENDING


@click.command()
@click.argument("journals", metavar="JOURNAL...", nargs=-1, required=True, type=DIRECTORY)
@click.option("--listen", metavar="ADDRESS:PORT", help="Serve them over HTTP until SIGTERM or Ctrl-C.")
def metrics(journals: tuple[str, ...], listen: str | None) -> None:
    """Print statistics of each JOURNAL as Prometheus reads them, or serve them at http://ADDRESS:PORT/metrics.

    A journal that cannot be read has `jlog_up 0`, a line on stderr says why, and the others go on. It is tried again
    with each scrape. Where none can be read, the exit code is 1. Needs the extra pyjlog[metrics].

    \b
    Examples:
      jlogtool metrics --listen 127.0.0.1:9464 /var/lib/events /var/lib/orders
      jlogtool metrics --listen :9464 /var/lib/events
      jlogtool metrics /var/lib/events > /var/lib/node_exporter/jlog.prom
    """
    from jlog.metrics import exposition, serve

    if listen is None:
        text = exposition(journals)
        click.echo(text, nl=False)
        if not re.search(r"^jlog_up\{.*\} 1\.0$", text, re.MULTILINE):
            raise click.exceptions.Exit(FAILED)
        return
    # Blocks the signal before the serving threads start, which inherit that: it waits here for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    with checked():
        server = serve(journals, listen)
    with server:
        click.echo(f"Serving {server.url}", err=True)
        notify("READY=1")
        signal.sigwait(ENDING)

"""`jlogtool work` and `jlogtool work-retry`."""

from __future__ import annotations

import base64
import shutil
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import click

import jlog
from jlog.cli.arguments.parameters import PATH, POSITION, PositionArgument, checked, journal_argument
from jlog.cli.commander import Commander, CommandsLost
from jlog.cli.terminal.output import complain

REJECTED = 100  # exit code of a command that does not want the record at all


@click.command()
@journal_argument
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N", help="Commands at a time."
)
@click.option("--max-attempts", type=click.IntRange(min=1), metavar="N", help="Reject a record that has failed N times.")
@click.option("--dead-letters", type=PATH, metavar="DIR", help="The journal that takes rejected records.")
@click.option("--order", type=click.Choice(["any", "key"]), help="key: records of one key one after the other, in order.")
@click.option(
    "--lease", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="How long a command has its record."
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End a command after so long.")
@click.option("--start", type=POSITION, default="begin", show_default=True, help="Where a new subscriber begins.")
@click.option("--until-end", is_flag=True, help="End once every record that is there now is finished.")
def work(
    journal: str,
    name: str,
    command: tuple[str, ...],
    jobs: int,
    until_end: bool,
    start: PositionArgument,
    lease: float | None,
    timeout: float | None,
    **options: Any,
) -> None:
    """Run COMMAND for each record of JOURNAL that the subscriber NAME has not finished. Any number of these may run at the
    same time, in any number of processes: each record goes to one of them.

    The value is on the command's standard input; JLOG_SEQUENCE, JLOG_KEY and JLOG_ATTEMPT are in its environment
    (JLOG_KEY_BASE64 in place of JLOG_KEY for a key that is not UTF-8 or has a NUL). Exit code 0 finishes the record.
    100 rejects it: it goes to the dead letters. With any other one it comes again later, after 1, 2, 4, … up to 60
    seconds.

    A command that takes longer than --timeout (or --lease) has failed: it and what it has started get SIGTERM, and after
    ten seconds SIGKILL. The same happens where jlogtool is killed. The next command for the record, or with --order key
    for its key, begins when all of them are gone.

    --max-attempts, --dead-letters and --order belong to the subscriber: they hold for all workers until
    they are changed. On SIGTERM and Ctrl-C it lets the commands end that run, and begins no other.

    \b
    Examples:
      jlogtool work /var/lib/jobs resize -j 4 -- ./resize
      jlogtool work /var/lib/jobs mail --max-attempts 5 -- ./mail
    """
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]!r}")
    from jlog.working.exclusive import LATER_SECONDS, SHORT, ExclusiveWorker

    commander = Commander(command)
    with checked():
        jlog.Journal(journal)  # raises where there is none: a mistyped path would wait for records for ever
        worker = ExclusiveWorker(journal, name, start=start, lease=lease, **options)
    with worker:
        tasks = worker._source
        lost: list[CommandsLost] = []
        limit = min(filter(None, (timeout, lease)), default=None)
        end = jlog.Journal(worker.path).next_sequence if until_end else None

        def handle(task: jlog.Task) -> None:
            try:
                with closing(tasks.lock_of(task)) as lock:
                    code = commander.run(task.value or b"", _environment(task), limit, lock.fileno())
                _finish(command[0], task, code, limit)
            except CommandsLost as error:
                lost.append(error)
                worker.stop()
                task.release_quietly()
            except OSError as error:
                if error.errno not in SHORT:
                    raise
                task.release_quietly()
                tasks.wait_for_more(error)
            else:
                stop_at_end()

        def stop_at_end() -> bool:
            if end is not None and worker.committed >= end:
                worker.stop()
                return True
            return False

        def look() -> None:
            tasks.release_aside()
            stop_at_end()  # other workers may have finished the last record

        if stop_at_end():
            return
        ended = threading.Event()
        seconds = LATER_SECONDS if lease is None else min(LATER_SECONDS, lease / 4)  # what is set aside keeps its lease
        looking = threading.Thread(target=_look, args=(look, seconds, ended), daemon=True)
        looking.start()
        try:
            worker.run(handle, threads=jobs, grace=float("inf") if lease is None else lease)
        finally:
            ended.set()
            looking.join()  # it uses the worker, which is closed next
        if lost:
            raise lost[0]


def _look(look: Callable[[], None], seconds: float, ended: threading.Event) -> None:
    while not ended.wait(seconds):
        with suppress(jlog.JournalError, OSError):  # run() meets an error that stays, and raises it
            look()


def _environment(task: jlog.Task) -> dict[str, str]:
    return {"JLOG_SEQUENCE": str(task.sequence), "JLOG_ATTEMPT": str(task.attempt), **_key(task.key)}


def _finish(command: str, task: jlog.Task, code: int | None, limit: float | None) -> None:
    reason = f"{command} ended with {code}" if code is not None else f"{command} took longer than {limit:g} s"
    with suppress(jlog.LeaseLost):  # run() acknowledges the task once more, and tells it
        if code == 0:
            task.ack()
        elif code == REJECTED:
            task.reject(reason)
        else:
            complain(f"record {task.sequence}: {reason} in attempt {task.attempt}")
            task.nack(reason=reason)


def _key(key: bytes | None) -> dict[str, str]:
    if key is None:
        return {}
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    return {"JLOG_KEY": text} if "\0" not in text else {"JLOG_KEY_BASE64": base64.b64encode(key).decode()}


@click.command("work-retry")
@click.argument("dead", type=PATH)
@click.argument("journal", type=PATH, required=False)
def work_retry(dead: str, journal: str | None) -> None:
    """Append the dead letters in the journal DEAD to the journals that they came from, or to JOURNAL, each once: a second
    call appends only those that have come since. It prints how many there were.

    \b
    Examples:
      jlogtool work-retry /var/lib/jobs.dead
      jlogtool work-retry /var/lib/jobs.dead /var/lib/jobs
    """
    from jlog.working.retry import retry

    with checked():
        click.echo(f"{retry(dead, journal)} records")

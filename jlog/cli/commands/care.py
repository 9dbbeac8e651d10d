"""`jlogtool verify`, `repair`, `backup`, `clean`, `archive` and `restore`: looking after a journal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

import click

import jlog
from jlog.archive import Archive
from jlog.archive import restore as restore_archive
from jlog.care.archive_loop import keep_archived
from jlog.cli.arguments.parameters import DIRECTORY, SECONDS, checked, journal_argument, journal_or_archive_argument
from jlog.cli.process import DAMAGED, signals_to
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import complain, describe_ahead, json_option, print_fields, print_json, print_table
from jlog.cli.terminal.progress import on_terminal, progress_bar, working
from jlog.errors import JournalError
from jlog.spark import clean as remove_staged_rows
from jlog.urls import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jlog.storage.segments import Segment

# The times of a segment are left out: they stand in its file, which may be gone.
SEGMENT_FIELDS = ("path", "first_sequence", "records", "size_bytes")


@click.command()
@journal_or_archive_argument
@json_option
def verify(journal: Place, as_json: bool) -> None:
    """Read and check every retained byte of JOURNAL. Changes nothing, and other processes may write meanwhile.

    Exits with 3 when something is damaged. Each damaged place is listed with its file, the byte at which it begins, and
    the number of records that it cost. `skipped` lists the gaps, sequences without a record; they are not damage.

    JOURNAL may be an archive, too: its directory, or a URL such as s3://bucket/prefix. Each file is read back and
    compared with what was archived; blocks are not counted.

    \b
    Examples:
      jlogtool verify /var/lib/events
      jlogtool verify --json /var/lib/events | jq .damage
    """
    if journal.is_archive:
        found = report_fields(verify_archive(Archive(journal)))
        del found["blocks"]
    else:
        opened = jlog.Journal(journal)
        with progress_bar("Verifying", size_of(journal)) as advance:
            found = report_fields(opened.verify(progress=advance))
    print_json(found) if as_json else print_report(found)
    if not found["ok"]:
        raise click.exceptions.Exit(DAMAGED)


def verify_archive(archive: Archive) -> jlog.Report:
    with working("Verifying"):
        damage, segments = archive.verify(), archive.segments()
    damaged = {at.path for at in damage}
    records = sum(segment.records for segment in segments if segment.path not in damaged)
    return jlog.Report(records, 0, len(segments), damage, archive.gaps())


def size_of(journal: Place) -> int | None:
    """Returns the bytes to read, for a progress bar; None where nobody sees the bar, or damage hides the size."""
    try:
        return jlog.Journal(journal).size_bytes if on_terminal() else None
    except (JournalError, OSError):
        return None


def report_fields(report: jlog.Report) -> dict[str, Any]:
    """Returns the fields that --json prints, of a verification or a repair."""
    found = {"ok": report.ok, **asdict(report)}
    found.pop("sound", None)  # of a repair: what `ok` says
    for name in found.keys() & {"skipped", "lost"}:
        found[name] = [{"first_sequence": first, "next_sequence": following} for first, following in found[name]]
    return found


def print_report(found: dict[str, Any]) -> None:
    print_fields(
        [
            ("result", "sound" if found["ok"] else "damaged"),
            *((name, found[name]) for name in ("records", "blocks", "segments") if name in found),
            *(("skipped", f"{gap['first_sequence']} to {gap['next_sequence'] - 1}") for gap in found["skipped"]),
            *((("clock", describe_ahead(found["ahead_seconds"])),) if found["ahead_seconds"] else ()),
        ]
    )
    if found["damage"]:
        click.echo()
        fields = ("path", "offset", "first_sequence", "records_lost", "reason")
        columns = ("damaged file", "offset ", "first record ", "lost ", "reason")
        print_table(columns, [[at[field] for field in fields] for at in found["damage"]])


@click.command()
@journal_argument
@click.option("-n", "--dry-run", is_flag=True, help="Change nothing, and say what would be done.")
@json_option
def repair(journal: Place, dry_run: bool, as_json: bool) -> None:
    """Make JOURNAL sound again, and keep every record that can still be read, with its sequence.

    The sequences of lost records become a gap, which readers pass and lag does not count. Bytes that cannot be read are
    moved to `quarantine/` in JOURNAL. `lost` lists the lost records; `damage` lists the damaged places, as `verify`
    does.

    No process may write meanwhile, or read as a subscriber; anonymous readers have to be opened anew. It needs disk
    space for the largest segment and for the damaged bytes. A repair that was killed can be run again. Exits with 0
    when JOURNAL is sound afterwards; a dry run exits with 3 when there is something to repair.

    \b
    Examples:
      jlogtool repair --dry-run /var/lib/events
      jlogtool repair /var/lib/events
      jlogtool repair --json /var/lib/events | jq .lost
    """
    total = size_of(journal)
    if total is not None and not dry_run:
        total *= 2  # the repaired segments are verified
    with progress_bar("Repairing", total) as advance:
        report = jlog.Journal.repair_at(journal, dry_run=dry_run, progress=advance)
    if as_json:
        print_json(report_fields(report))
    else:
        print_report(report_fields(report))
        for first, following in report.lost:
            click.echo(f"\nlost: records {first} to {following - 1}")
        click.echo()
        if report.actions:
            done = "what would be done" if dry_run else "what was done"
            print_table(("file", done), [(action.path, action.text) for action in report.actions])
        else:
            click.echo("There is nothing to do.")
    if not report.ok or (dry_run and report.actions):
        raise click.exceptions.Exit(DAMAGED)


@click.command()
@journal_argument
@click.argument("target", type=DIRECTORY)
@json_option
def backup(journal: Place, target: str, as_json: bool) -> None:
    """Copy JOURNAL to the directory TARGET, which must be missing or empty, while other processes write, read and
    clean.

    The copy has every record that was appended before, with subscribers and checkpoints. It is a journal of its own,
    and on the disk when this command ends; to restore it, copy it back. No writer waits meanwhile, but no segment is
    removed until the copy is done. TARGET may lie on a file system where no journal can be written, such as NFS: it can
    be read there.

    \b
    Examples:
      jlogtool backup /var/lib/events /mnt/backup/events-2026-11-20
      jlogtool verify /mnt/backup/events-2026-11-20
    """
    opened = jlog.Journal(journal)
    with progress_bar("Copying", size_of(journal)) as advance:
        copy = opened.backup(target, progress=advance)
    if as_json:
        fields = ("path", "first_sequence", "next_sequence", "size_bytes")
        print_json({field: getattr(copy, field) for field in fields} | {"records": len(copy)})
    else:
        click.echo(f"{copy.path}: {len(copy)} records, {human_bytes(copy.size_bytes)}")


@click.command()
@journal_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed, and why.")
@json_option
def clean(journal: Place, dry_run: bool, as_json: bool) -> None:
    """Remove the segments of JOURNAL that retention lets go, and list them with the reason.

    Commits and rolls do the same by themselves, unless the journal has an archive: then only `clean` copies each
    segment to the archive, reads it back, and removes it here. A segment that could not be archived stays for the next
    `clean`.

    A reason is `read` (every subscriber has read it), `max_bytes` or `max_age`.

    `clean` also removes the rows that Spark has staged for writes that died, if no later run can complete them.

    \b
    Examples:
      jlogtool clean --dry-run /var/lib/events
      jlogtool clean --json /var/lib/events
    """
    opened = jlog.Journal(journal)
    if dry_run or opened.options.retention.archive is None:
        found = opened.clean(dry_run=dry_run)
    else:
        total = sum(segment.size_bytes for segment in opened.clean(dry_run=True))
        with progress_bar("Archiving", total) as advance:
            found = opened.clean(progress=advance)
    died = [] if dry_run else remove_staged_rows(opened.path)
    if died:
        click.echo(f"removed the staged rows of {len(died)} writes of Spark that died", err=True)
    if as_json:
        print_json([{**fields_of(one), "sealed": one.sealed, "reason": one.reason} for one in found])
    else:
        print_segments(found, "reason")


def fields_of(segment: Segment) -> dict[str, Any]:
    return {field: getattr(segment, field) for field in SEGMENT_FIELDS}


def print_segments(found: Sequence[Segment], *more: str) -> None:
    """Prints a table of segments. `more` are names of further columns."""
    print_table(
        ("segment", "first record ", "records ", "size ", *more),
        [
            (one.path, one.first_sequence, one.records, human_bytes(one.size_bytes), *(getattr(one, name) for name in more))
            for one in found
        ],
    )


@click.command()
@journal_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C or SIGTERM, and remove what retention lets go.")
@click.option("--every", type=SECONDS, help="With --follow: seal the open segment so often, if it has records: 10s, 5m.")
@json_option
def archive(journal: Place, follow: bool, every: float | None, as_json: bool) -> None:
    """Copy the sealed segments of JOURNAL that are not archived yet to its archive, and list them.

    Each is read back. None is removed here: that is the work of `clean`, which does not copy them again. The archive is
    the one that `--archive` of `create` or `options` names.

    With --follow, a segment is archived within a second or so of its sealing, and then removed as soon as retention
    lets it go. An archive that cannot be reached is tried again until it can.

    \b
    Examples:
      jlogtool options --archive s3://logs/archive /var/lib/events
      jlogtool archive /var/lib/events
      jlogtool archive --follow --every 10s /var/lib/events
    """
    if every is not None and not follow:
        raise click.UsageError("--every needs --follow")
    if follow:
        follow_journal(jlog.Journal(journal), every, as_json)
        return
    with progress_bar("Archiving", None) as advance:
        found = jlog.Journal(journal).archive(progress=advance)
    print_json([fields_of(segment) for segment in found]) if as_json else print_segments(found)


def follow_journal(journal: jlog.Journal, every: float | None, as_json: bool) -> None:
    def seal() -> None:
        with jlog.Writer(journal.path, precommit=0, create=False) as writer:
            writer.roll()

    def show(segment: Segment) -> None:
        if as_json:
            print_json(fields_of(segment))
        else:
            click.echo(f"{segment.path}: {segment.records} records, {human_bytes(segment.size_bytes)}")

    def end(*_: object) -> NoReturn:
        raise SystemExit(0)

    with signals_to(end), checked():
        keep_archived(
            journal.path,
            every=every,
            seal=seal,
            on_segment=show,
            on_error=lambda error: complain(f"not archived yet, and tried again from time to time: {error}"),
        )


@click.command()
@click.argument("url")
@journal_argument
def restore(url: str, journal: Place) -> None:
    """Create JOURNAL from everything that is archived at URL, with the same sequences.

    URL is the one that `--archive` had; where several journals are archived there, add the uuid of one. JOURNAL must
    not exist. It becomes a journal of its own, which keeps everything and archives nothing until its options are
    changed.

    \b
    Examples:
      jlogtool restore file:///var/archive /tmp/events
      jlogtool restore s3://logs/0f3a61b2c94d4e0db6b27a7f3e1c5d90 /tmp/events
    """
    with checked():
        total = sum(segment.size_bytes for segment in Archive(url).segments())
        with progress_bar("Restoring", total) as advance:
            restore_archive(url, journal, progress=advance)

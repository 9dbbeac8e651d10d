"""`jlogtool mirror`: mirrors a journal to a Kafka topic or topics to a journal, and compares the two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from jlog.cli.arguments.click_parts import AddOptions, Group, together
from jlog.cli.arguments.flows import (
    dead_letter_place,
    flow_options,
    journal_sink_options,
    key_option,
    linger_option,
    metrics_option,
    refused_options,
)
from jlog.cli.arguments.parameters import PATH, checked, journal_argument, refuse_beside
from jlog.cli.arguments.topics import kafka, making_options, take_making, topic_settings
from jlog.cli.commands.positions import positions
from jlog.cli.process import DAMAGED, FAILED, notify, signals_to
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import complain, json_option, print_fields, print_json, print_table, tell_at_terminal
from jlog.cli.terminal.progress import progress_bar, working
from jlog.flow.records import load
from jlog.flow.stop import stopping


@click.group(cls=Group)
def mirror() -> None:
    """Mirror a journal to a Kafka topic, or capture topics into a journal: each record exactly once.

    TOPIC is kafka://HOST:PORT/TOPIC. Settings of librdkafka's come from -X NAME=VALUE, from a file of such lines
    (--config) and from the environment (JLOG_KAFKA_SASL_PASSWORD is sasl.password; JLOG_KAFKA_CONFIG names a file).

    A mirror that is killed, or loses its broker, goes on where it stopped. SIGINT and SIGTERM end it within two
    seconds, with exit code 0.
    """


mirror.add_command(positions)


@mirror.command("to-kafka", short_help="Mirror a journal to a topic.")
@journal_argument
@click.argument("topic")
@click.option("--subscriber", metavar="NAME", default="", help="Subscriber of JOURNAL.  [default: kafka:TOPIC]")
@click.option(
    "--read-only", is_flag=True, help="Use no subscriber and write nothing to the journal: mirror only synced records."
)
@key_option
@refused_options
@making_options
@click.option("--sequence-header", is_flag=True, help="Give each message its record's sequence, as jlog.kafka.sequence.")
@click.option("--standby", is_flag=True, help="Send what `mirror standby` needs to keep the same journal on another host.")
@flow_options
def to_kafka(journal: str, topic: str, read_only: bool, subscriber: str, dead_letter: str | None, **options: Any) -> None:
    """Mirror JOURNAL to TOPIC, which is created if there is none, and follow.

    Each record becomes one message with value, key, headers and time, exactly once for consumers that read committed.
    Headers that begin with `jlog.kafka.` are left out. A record that the topic refuses ends the mirror with exit code
    1, once all records before it are there.

    \b
    Examples:
      jlogtool mirror to-kafka /var/lib/orders kafka://localhost/orders
      jlogtool mirror to-kafka --until-end /var/lib/a kafka://localhost/a
      jlogtool mirror to-kafka --config prod.conf -n /var/lib/a kafka://host/a
    """
    module = kafka()
    name = None if read_only else subscriber
    making = take_making(options, for_topic=True)
    if options["dry_run"]:
        refuse_beside("--dry-run", "transform")
        partitions = making.get("partitions", 1)
        with checked():
            found = module.plan_mirror(
                journal, topic, subscriber=name, partitions=partitions, start=options["start"], key=options["key"]
            )
        print_plan(found, options["as_json"])
        return
    own = {name: options.pop(name) for name in ("key", "refused", "sequence_header", "standby")} | making
    own["dead_letter"] = dead_letter_place(own["refused"], dead_letter, topic)
    run(f"{journal} to {topic}", lambda **given: module.Mirror(journal, topic, subscriber=name, **own, **given), options)


@mirror.command("from-kafka", short_help="Capture topics into a journal.")
@click.argument("topic")
@journal_argument
@journal_sink_options
@refused_options
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out topics that match. May be repeated.")
@click.option("--group", metavar="NAME", help="Consumer group to commit the offsets to, for tools that watch groups.")
@flow_options
def from_kafka(topic: str, journal: str, dead_letter: str | None, **options: Any) -> None:
    """Capture TOPIC, all of its partitions, into JOURNAL, which is created if there is none, and follow.

    Each committed message becomes one record, exactly once, with value, key, headers and time; the headers
    `jlog.kafka.partition` and `jlog.kafka.offset` name its place in Kafka. TOPIC may name several topics, with commas
    and patterns; then `jlog.kafka.topic` names the topic.

    \b
    Examples:
      jlogtool mirror from-kafka kafka://localhost/orders /var/lib/orders
      jlogtool mirror from-kafka --until-end 'kafka://localhost/a.*,b' /tmp/all
    """
    module = kafka()
    if options["dry_run"]:
        refuse_beside("--dry-run", "transform")
        with checked():
            found = module.plan_capture(topic, journal, start=options["start"], exclude=options["exclude"])
        print_plan(found, options["as_json"])
        return
    own = {option: options.pop(option) for option in ("sync", "compression", "refused", "exclude", "group")}
    own["dead_letter"] = dead_letter_place(own["refused"], dead_letter, journal)
    run(f"{topic} to {journal}", lambda **given: module.Capture(topic, journal, **own, **given), options)


def run(name: str, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Creates the flow, runs it up to its end or a signal, and returns it. `name` is its name in metrics."""
    names = ("until_end", "start", "skip_missing", "rate", "linger")
    given = {name: options[name] for name in names if name in options}
    if options.get("transform"):
        with checked():
            given["function"] = load(options["transform"])
    stop: Callable[[], None] | None = None

    def end(_number: int, _frame: object) -> None:
        if stop is None:
            raise click.exceptions.Exit(0)
        stop()

    with signals_to(end), progress_bar("Moving", None, in_bytes=False, shown=options["until_end"]) as advance:
        with checked():
            flow = make(on_event=complain, on_commit=advance, **given)
        if not options["until_end"]:
            roads = {end.road: None for end in (flow.source, flow.sink) if hasattr(end, "road")}
            tell_at_terminal(f"{name}: follows{''.join(f' by {road}' for road in roads)}; Ctrl-C ends")
        with stopping(flow) as stop, served(options["metrics"], {name: flow}), checked():
            flow.run()
    if options["as_json"] and not options.get("dry_run"):
        print_json(vars(flow.stats))
    return flow


@contextmanager
def served(listen: str | None, flows: Mapping[str, Any]) -> Iterator[None]:
    """Serves the metrics of the flows over HTTP."""
    if listen is None:
        yield
        return
    from jlog.metrics import serve  # isort: skip  # comes first: it says which extra is missing
    from prometheus_client import CollectorRegistry

    from jlog.flow.metrics import FlowCollector

    registry = CollectorRegistry()
    collector = FlowCollector(flows)
    registry.register(collector)
    with checked():
        server = serve((), listen, registry=registry, not_ready=collector.not_ready)
    with server:
        try:
            yield
        finally:
            collector.close()


def print_plan(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for warning in found.pop("warnings", []):
        complain(f"warning: {warning}")
    refused = found.pop("refused", [])
    print_fields(
        (name, human_bytes(value) if name == "bytes" and value is not None else value) for name, value in found.items()
    )
    if refused:
        click.echo()
        print_table(("refused ", "reason"), [(at["sequence"], at["reason"]) for at in refused])


@mirror.command("run", short_help="Run many mirrors, out of a file.")
@click.argument("file", type=PATH)
@click.option("--until-end", is_flag=True, help="End when all have reached the ends of their sources.")
@metrics_option
@click.option("-n", "--dry-run", is_flag=True, help="Only list the mirrors.")
def run_file(file: str, until_end: bool, metrics: str | None, dry_run: bool) -> None:
    """Run all mirrors and captures that FILE asks for, each in a process of its own. FILE is TOML:

    \b
      [kafka]                            # settings of librdkafka's, for all
      "security.protocol" = "SSL"
    \b
      [[to-kafka]]
      journals = "/var/lib/journals/*"   # paths and patterns
      url = "kafka://localhost:9092"
      topic = "live.{name}"              # {name}: of the journal's directory
    \b
      [[from-kafka]]
      url = "kafka://localhost:9092"
      topics = ["orders.*", "clicks"]    # names and patterns
      journal = "/var/lib/copies/{topic}"

    The other names are those of the options of to-kafka and from-kafka. New journals and topics are found within ten
    seconds. A mirror that cannot go on has a line on stderr, and the others go on; the exit code is then 1. One whose
    process dies is started again.

    \b
    Example:
      jlogtool mirror run /etc/jlog/mirrors.toml
    """
    with checked():
        mirrors = kafka().Mirrors(file, until_end=until_end, lags=metrics is not None, on_event=complain)
        if dry_run:
            for job in mirrors.jobs():
                click.echo(job.name)
            return
        with signals_to(lambda *_: mirrors.stop()), served(metrics, mirrors.flows):
            notify("READY=1")
            if not until_end:
                tell_at_terminal(f"{file}: follows; Ctrl-C ends")
            mirrors.run()
    if mirrors.failures:
        raise click.exceptions.Exit(FAILED)


@mirror.command(short_help="Keep a standby of a mirrored journal.")
@click.argument("topic")
@journal_argument
@click.option("--of", metavar="UUID", help="The mirrored journal, where several were mirrored to TOPIC in turn.")
@click.option("--skip-missing", is_flag=True, help="Begin after records that retention has removed from TOPIC.")
@click.option("--until-end", is_flag=True, help="End where the topic ends now; without it: follow.")
@linger_option
@metrics_option
@topic_settings
@json_option
def standby(topic: str, journal: str, of: str | None, **options: Any) -> None:
    """Keep JOURNAL the same as the one that `mirror to-kafka --standby` sends to TOPIC, and follow.

    JOURNAL gets each record under the same sequence, and its subscribers and checkpoints follow those of the other one.
    It is created if there is none. Readers may read it; nothing else writes to it. `mirror promote` makes it the
    journal that is written to.

    \b
    Example:
      jlogtool mirror standby kafka://localhost/orders /var/lib/orders
    """
    run(f"{topic} to {journal}", lambda **given: kafka().Standby(topic, journal, of=of, **given), options)


@mirror.command(short_help="Make a standby the journal that is written to.")
@click.argument("topic")
@journal_argument
@topic_settings
@json_option
def promote(topic: str, journal: str, as_json: bool) -> None:
    """Make JOURNAL, a standby, the one that is written to. Stop its `mirror standby` first.

    The mirror of the other journal is fenced, and refuses to start again. JOURNAL gets all that the topic has. It prints
    the first sequence that JOURNAL gives out itself, and how many records, at least, are in the other journal alone.

    \b
    Example:
      jlogtool mirror promote kafka://localhost/orders /var/lib/orders
    """
    with working("Taking over"), checked():
        found = kafka().promote(topic, journal, on_event=complain)
    if as_json:
        print_json(vars(found))
    else:
        print_fields(vars(found).items())


pair_arguments: AddOptions = together(journal_argument, click.argument("topic"), topic_settings, json_option)


@mirror.command(short_help="Show the lag of a mirror.")
@pair_arguments
def status(journal: str, topic: str, as_json: bool) -> None:
    """Show the lag of the mirror between JOURNAL and TOPIC, in either direction: in records, bytes and seconds.

    The bytes are estimated. `lag_seconds` is the age of the oldest record that was not mirrored yet.

    \b
    Examples:
      jlogtool mirror status /var/lib/orders kafka://localhost/orders
      jlogtool mirror status --json /tmp/a kafka://localhost/a | jq .lag
    """
    with checked():
        found = kafka().status(journal, topic).as_json()
    if as_json:
        print_json(found)
        return
    owner = found.get("owner")
    if owner:
        found["owner"] = f"process {owner['pid']} on {owner['host']}"
    found["lag_bytes"] = "unknown" if found["lag_bytes"] is None else human_bytes(found["lag_bytes"])
    found["lag_seconds"] = "unknown" if found["lag_seconds"] is None else f"{found['lag_seconds']:.1f}"
    opened = found.pop("open_transactions")
    print_fields(found.items())
    _complain_of_open(opened)


def _complain_of_open(transactions: Iterable[Mapping[str, Any]]) -> None:
    for one in transactions:
        since = "" if one["seconds"] is None else f", begun {one['seconds']:.0f} s ago,"
        complain(
            f"partition {one['partition']}: an open transaction{since} hides all records from offset {one['offset']} on. It is "
            "a mirror's that is at work, or another program's: `kafka-transactions.sh find-hanging` says whose"
        )


@mirror.command(short_help="Compare both sides.")
@pair_arguments
def verify(journal: str, topic: str, as_json: bool) -> None:
    """Compare JOURNAL and TOPIC record by record: value, key, headers and milliseconds, as far as was mirrored.

    Exits with 3 when they differ, with 1 where nothing was ever mirrored. `gone` counts records that retention or
    compaction has removed on one side.

    \b
    Example:
      jlogtool mirror verify /var/lib/orders kafka://localhost/orders
    """
    with working("Comparing"), checked():
        found = kafka().verify(journal, topic)
    opened = [one._asdict() for one in found.open_transactions]
    fields = {"ok": found.ok, **vars(found), "open_transactions": opened}
    if as_json:
        print_json(fields)
    else:
        examples, _, is_same = fields.pop("examples"), fields.pop("open_transactions"), fields.pop("ok")
        result = "the same" if is_same else "different" if found.differences else "not known: records are hidden"
        print_fields([("result", result), *fields.items()])
        _complain_of_open(opened)
        for example in examples:
            click.echo("  " + ", ".join(f"{name} {value}" for name, value in example.items()))
    if not found.ok:
        raise click.exceptions.Exit(DAMAGED)

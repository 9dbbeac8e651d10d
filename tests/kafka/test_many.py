"""Many mirrors and captures out of one file."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest

import jlog
from behaviour.journals import values
from jlog.flow.stop import Stop
from jlog.kafka import Capture, Mirror, Mirrors, Standby, TopicChanged, supervisor
from jlog.kafka.client import cluster
from jlog.kafka.mirror_file import Job, read_tables
from kafka.processes import running
from kafka.witness import Witness, numbered
from patience import wait_until


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "mirrors.toml"
        path.write_bytes(text.encode(errors="surrogateescape"))
        return path

    return write


def fill(path, values):
    with jlog.Writer(path) as writer:
        writer.extend(values)


def test_journals_and_topics_by_pattern_with_other_names(config, broker, witness, topic, tmp_path):
    for name in ("orders", "clicks"):
        fill(tmp_path / "in" / name, [name.encode(), b"key"])
    (tmp_path / "in" / "no journal").mkdir()
    path = config(f"""
        [kafka]
        "client.id" = "many"

        [[to-kafka]]
        journals = "{tmp_path}/in/*"
        url = "kafka://{broker.address}"
        topic = "{topic}.{{name}}"
        key = "none"
        partitions = 2
        settings = {{ "linger.ms" = "1" }}
    """)
    Mirrors(path, until_end=True).run()
    assert witness.partitions(f"{topic}.orders") == 2
    assert sorted(fields.value for fields in witness.fields(f"{topic}.clicks")) == [b"clicks", b"key"]
    back = config(f"""
        [[from-kafka]]
        url = "kafka://{broker.address}"
        topics = ["{topic}.o*", "{topic}.clicks"]
        journal = "{tmp_path}/out/{{topic}}"

        [[from-kafka]]
        url = "kafka://{broker.address}"
        topics = "{topic}.*"
        journal = "{tmp_path}/all"
        writer = {{ segment_bytes = 65536 }}
    """)
    mirrors = Mirrors(back, until_end=True)
    mirrors.run()
    assert mirrors.failures == {}
    assert sorted(values(tmp_path / "out" / f"{topic}.orders")) == [b"key", b"orders"]
    assert sorted(values(tmp_path / "out" / f"{topic}.clicks")) == [b"clicks", b"key"]
    assert sorted(values(tmp_path / "all")) == [b"clicks", b"key", b"key", b"orders"]
    assert jlog.Journal(tmp_path / "all").options.segment_bytes == 65536


def test_one_that_cannot_go_on_leaves_the_others_alone(config, broker, witness, topic, tmp_path):
    for name in ("a", "b"):
        fill(tmp_path / "in" / name, numbered(10))
    path = config(f"""
        [[to-kafka]]
        journals = ["{tmp_path}/in/a", "{tmp_path}/in/b"]
        url = "kafka://{broker.address}"
        topic = "{topic}.{{name}}"
    """)
    Mirrors(path, until_end=True).run()
    witness.delete(f"{topic}.a")
    for name in ("a", "b"):
        fill(tmp_path / "in" / name, numbered(10, 10))
    events = []
    mirrors = Mirrors(path, until_end=True, on_event=events.append)
    mirrors.run()
    assert [type(error) for error in mirrors.failures.values()] == [TopicChanged]
    assert len(events) == 1
    assert f"{topic}.a" in events[0]
    assert witness.values(f"{topic}.b") == numbered(20)


def test_followers_end_together(config, broker, witness, topic, tmp_path):
    for name in ("a", "b", "c"):
        fill(tmp_path / "in" / name, numbered(10))
    path = config(f"""
        [[to-kafka]]
        journals = "{tmp_path}/in/*"
        url = "kafka://{broker.address}"
        topic = "{topic}.{{name}}"
    """)
    mirrors = Mirrors(path)
    with running(mirrors):
        wait_until(lambda: sum(flow.stats.records for flow in [*mirrors.flows.values()]) == 30)
    assert mirrors.failures == {}


def test_a_journal_that_takes_the_place_of_one_that_was_moved_is_mirrored(
    config, broker, witness, topic, tmp_path, monkeypatch
):
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.1)
    fill(tmp_path / "a", [b"old"])
    path = config(f"""
        [[to-kafka]]
        journals = "{tmp_path}/a"
        url = "kafka://{broker.address}"
        topic = "{topic}"
    """)
    mirrors = Mirrors(path)
    witness.make(topic)
    with running(mirrors):
        wait_until(lambda: witness.values(topic) == [b"old"])
        (tmp_path / "a").rename(tmp_path / "moved away")
        fill(tmp_path / "a", [b"new"])
        wait_until(lambda: witness.values(topic) == [b"old", b"new"])
        (tmp_path / "a").rename(tmp_path / "moved away too")
        wait_until(lambda: not mirrors.flows)
        fill(tmp_path / "a", [b"newest"])
        wait_until(lambda: witness.values(topic) == [b"old", b"new", b"newest"])
    assert mirrors.failures == {}


def test_two_tables_that_ask_for_the_same_mirror_are_told(config, broker, witness, topic, tmp_path):
    for name in ("a", "b"):
        fill(tmp_path / name, [name.encode()])
    table = f"""
        [[to-kafka]]
        url = "kafka://{broker.address}"
        topic = "{topic}.{{name}}"
        journals ="""
    path = config(f"{table} '{tmp_path}/a'\npartitions = 3\n{table} ['{tmp_path}/a', '{tmp_path}/b']\n")
    events = []
    mirrors = Mirrors(path, until_end=True, on_event=events.append)
    mirrors.run()
    assert [*mirrors.failures] == ["[[to-kafka]] 2"]
    told = f"[[to-kafka]] 2: {tmp_path}/a to kafka://{broker.address}/{topic}.a is asked for by [[to-kafka]] 1 already"
    assert [line.startswith(told) for line in events] == [True]
    assert witness.partitions(f"{topic}.a") == 3
    assert witness.values(f"{topic}.b") == [b"b"]


def test_an_absent_cluster_is_waited_for_and_the_others_go_on(
    config, broker, fragile_broker, witness, topic, tmp_path, monkeypatch
):
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.5)
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", (0.5, 0.5))
    away = fragile_broker
    others = Witness(away.address)
    others.make(topic)
    others.produce(topic, numbered(10))
    away.kill()
    fill(tmp_path / "in", numbered(10))
    path = config(f"""
        [[from-kafka]]
        url = "kafka://{away.address}"
        topics = "{topic}*"
        journal = "{tmp_path}/{{topic}}"

        [[from-kafka]]
        url = "kafka://{away.address}"
        topics = "{topic}"
        journal = "{tmp_path}/out"

        [[to-kafka]]
        journals = "{tmp_path}/in"
        url = "kafka://{broker.address}"
        topic = "{topic}"
    """)
    events = []
    mirrors = Mirrors(path, on_event=events.append)
    with running(mirrors):
        wait_until(lambda: witness.exists(topic) and witness.values(topic) == numbered(10))
        wait_until(lambda: len(events) >= 2)
        away.start()
        for name in (topic, "out"):
            wait_until(lambda name=name: is_there(tmp_path / name, 10))
    assert mirrors.failures == {}
    assert {event.partition(": ")[0] for event in events} == {
        "[[from-kafka]] 1",
        f"kafka://{away.address}/{topic} to {tmp_path}/out",
    }


def is_there(path, count):
    try:
        return len(values(path)) == count
    except jlog.JournalNotFound:
        return False


def test_it_ends_when_none_of_them_can_go_on(config, broker, witness, topic, tmp_path):
    fill(tmp_path / "no topic's name", numbered(10))
    path = config(f"""
        [[to-kafka]]
        journals = "{tmp_path}/*"
        url = "kafka://{broker.address}"
    """)
    mirrors = Mirrors(path)
    mirrors.run()
    assert [type(error) for error in mirrors.failures.values()] == [ValueError]


def test_one_failed_for_good_does_not_end_those_that_begin_again(config, topic, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.5)
    monkeypatch.setattr(cluster, "UNREACHABLE_SECONDS", 0.1)
    fill(tmp_path / "no topic's name", numbered(10))
    path = config(f"""
        [[to-kafka]]
        journals = "{tmp_path}/*"
        url = "kafka://127.0.0.1:1"

        [[from-kafka]]
        url = "kafka://127.0.0.1:1"
        topics = "{topic}"
        journal = "{tmp_path}/{{topic}}"
    """)
    begun = []
    monkeypatch.setattr(cluster.Cluster, "check", counting(begun, cluster.Cluster.check))
    mirrors = Mirrors(path)
    with running(mirrors):
        wait_until(lambda: len(begun) >= 3 and mirrors.failures)
    assert [type(error) for error in mirrors.failures.values()] == [ValueError]


def counting(calls, function):
    def counted(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return counted


@pytest.mark.parametrize("refused", ["dead_letter", "drop"])
def test_a_refused_record_has_one_of_three_fates(tmp_path, refused):
    """An unknown word never means that refused records are passed over."""
    fill(tmp_path / "journal", numbered(1))
    with pytest.raises(ValueError, match="stop, skip, dead-letter"):
        Mirror(tmp_path / "journal", "kafka://localhost/topic", refused=refused)


def test_an_option_that_there_is_not_is_refused(tmp_path):
    """None counts as not given, for every option that all flows take."""
    fill(tmp_path / "journal", numbered(1))
    url = "kafka://localhost/topic"
    with pytest.raises(TypeError, match=r"until: not an option; there are function, .*, until_end"):
        Mirror(tmp_path / "journal", url, until=True)
    with pytest.raises(TypeError, match="a standby has every record as it is: rate is not an option of it"):
        Standby(url, tmp_path / "standby", rate=1)
    Mirror(tmp_path / "journal", url, **dict.fromkeys(["stop", "on_event", "linger", "config"])).close()


def test_dead_letters_need_a_place(tmp_path):
    with pytest.raises(ValueError, match="a place for dead letters"):
        Capture("kafka://localhost/topic", tmp_path / "journal", refused="dead-letter")
    assert not (tmp_path / "journal").exists()


TO = "[[to-kafka]]\njournals = 'x'\nurl = 'kafka://x'\n"
FROM = "[[from-kafka]]\ntopics = 'x'\nurl = 'kafka://x'\njournal = 'x'\n"
BAD = {
    "no TOML": ("[[to-kafka", "mirrors.toml"),
    "no text": ("\udcff", "mirrors.toml: it is not text in UTF-8"),
    "nothing": ("[kafka]", "asks for nothing"),
    "unknown table": ("[[tokafka]]", "there is no tokafka"),
    "unknown name": ("[[to-kafka]]\njournals='x'\nurl='kafka://x'\ntopics='x'", "there is no topics"),
    "missing name": ("[[from-kafka]]\nurl='kafka://x'\ntopics='x'", "line 1: journal is missing"),
    "one bracket": (TO.replace("[[", "[").replace("]]", "]"), r"line 1: to-kafka must be tables in two pairs of brackets"),
    "text for a number": (f"{TO}partitions = '6'\n{TO}", "line 4: partitions must be a whole number, not '6'"),
    "a number for text": (f"# one\n{TO}{TO}topic = 6\n", "line 8: topic must be text in quotes, not 6"),
    "text for a table": (f"{FROM}writer = 'lz4'\n", "line 5: writer must be a table"),
    "a list of numbers": (FROM.replace("topics = 'x'", "topics = [1]"), r"line 2: topics must be text .*not \[1\]"),
    "a flag for a number": (f"{TO}rate = true\n", "line 4: rate must be a number, not True"),
    "no end": (f"{TO}rate = inf\n", "line 4: rate must be a number of records a second, above 0, not inf"),
    "not a number": (f"{TO}rate = nan\n", "line 4: rate must be a number of records a second, above 0, not nan"),
    "less than nothing": (f"{FROM}rate = -1\n", "line 5: rate must be a number of records a second, above 0, not -1"),
    "a pause for ever": (f"{TO}linger = inf\n", "line 4: linger must be a number of seconds, from 0 to 5, not inf"),
    "no policy": (f"{TO}refused = 'later'\n", "line 4: refused must be one of stop, skip, dead-letter, not 'later'"),
    "an option of the command": (f"{TO}until_end = true\n", "line 4: there is no until_end"),
    "a function": (f"{TO}on_commit = 'x'\n", "line 4: there is no on_commit"),
    "a number for a choice": (f"{TO}\n{TO}refused = 1\n", "line 8: refused must be text in quotes, not 1"),
    "two pairs of brackets": (f"[[kafka]]\n{TO}", "line 1: kafka must be a table"),
    "unknown option of a writer": (
        f"{FROM}writer = {{ compresion = 'lz4' }}\n",
        "line 5: there is no compresion; there are compression",
    ),
    "a setting's name without quotes": (
        f"{TO}settings = {{ linger.ms = '1' }}\n",
        'line 4: linger must be text in quotes; a name with a dot needs quotes too: "linger.…"',
    ),
    "a name without quotes": ("[kafka]\nsecurity.protocol = 'SSL'\n" + TO, "line 2: security must be text in quotes"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_of_mirrors_is_refused_with_the_reason(config, text, said):
    with pytest.raises(ValueError, match=said):
        Mirrors(config(text))


def test_a_pattern_that_matches_nothing_is_named(config, broker, topic, tmp_path):
    fill(tmp_path / "in" / "a", numbered(10))
    path = config(f"""
        [[to-kafka]]
        journals = ["{tmp_path}/none/*", "{tmp_path}/in/*"]
        url = "kafka://{broker.address}"
        topic = "{topic}.{{name}}"

        [[from-kafka]]
        url = "kafka://{broker.address}"
        topics = "{topic}.none.*"
        journal = "{tmp_path}/{{topic}}"
    """)
    events = []
    mirrors = Mirrors(path, until_end=True, on_event=events.append)
    mirrors.run()
    assert mirrors.failures == {}
    assert sorted(events) == [
        f"[[from-kafka]] 1: nothing matches {topic}.none.*",
        f"[[to-kafka]] 1: nothing matches {tmp_path}/none/*",
    ]


def test_a_pattern_that_matches_nothing_is_named_once(config, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.01)
    path = config(f"[[to-kafka]]\njournals = ['{tmp_path}/a*', '{tmp_path}/b*']\nurl = 'kafka://127.0.0.1:1'")
    events, looks = [], []
    mirrors = Mirrors(path, on_event=events.append)
    monkeypatch.setattr(Mirrors, "_look_for", counting(looks, Mirrors._look_for))
    with running(mirrors):
        wait_until(lambda: len(looks) >= 3)
    assert events == [f"[[to-kafka]] 1: nothing matches {tmp_path}/{name}*" for name in "ab"]


def test_one_that_dies_for_days_is_started_again(config, tmp_path):
    job = Job(Mirror, str(tmp_path / "in"), "kafka://127.0.0.1:1/t", {})
    mirror = supervisor.MirrorProcess(job, False, False, Stop(), lambda *_, **__: None)
    for _ in range(1100):
        mirror._ended("ended with exit code 1")
    assert not mirror.is_over


def test_the_example_of_the_help_is_a_file_that_is_read(tmp_path):
    from jlog.cli.commands.mirror import run_file

    example = "\n".join(
        textwrap.dedent(paragraph.partition("\n")[2])
        for paragraph in re.split(r"\n\n|\n(?=\x08)", inspect.cleandoc(run_file.help))
        if paragraph.startswith("\b") and "Example" not in paragraph
    )
    file = tmp_path / "mirrors.toml"
    file.write_text(example)
    found = {where: find.keywords for where, find in read_tables(file).items()}
    assert [*found] == ["[[to-kafka]] 1", "[[from-kafka]] 1"]
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    file.write_text(page[page.index("jlogtool mirror run [") :].partition("```toml\n")[2].partition("```")[0])
    assert {where: find.keywords for where, find in read_tables(file).items()} == found

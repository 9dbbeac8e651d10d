"""`jlogtool mirror` and `transform`: what scripts rely on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request

import confluent_kafka
import pytest

import jlog
from cli.terminal import terminal
from kafka.processes import Process, discard
from kafka.witness import numbered
from patience import HUNG_SECONDS, wait_until

TOOL = [sys.executable, "-m", "jlog.cli"]


def run(*arguments, stdin=b"", env=None):
    """(exit code, stdout, stderr)"""
    done = subprocess.run(
        [*TOOL, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=HUNG_SECONDS,
        env={**os.environ, **(env or {})},
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout, done.stderr.decode()


def do(*arguments, stdin=b"", env=None):
    code, out, said = run(*arguments, stdin=stdin, env=env)
    assert (code, said) == (0, "")
    return out


def do_json(*arguments):
    return json.loads(do(*arguments, "--json"))


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal"
    with jlog.Writer(path) as writer:
        writer.extend(numbered(100))
    return path


def test_a_journal_may_be_a_url_wherever_it_is_mirrored(journal, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert do_json("mirror", "to-kafka", "--until-end", f"file:{journal}", url)["records"] == 100
    assert do_json("mirror", "from-kafka", "--until-end", url, f"file://{tmp_path}/back")["records"] == 100
    for path in (f"file:{journal}", "file:back"):
        assert do_json("mirror", "status", path, url)["lag"] == 0
        assert do_json("mirror", "verify", path, url)["compared"] == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "journal"]


# --- mirror ---------------------------------------------------------------------------------------------------------


def test_at_a_terminal_a_mirror_that_follows_says_its_road_and_how_to_end_it(journal, url, tmp_path, witness, topic):
    witness.make(topic)
    for arguments in (["to-kafka", journal, url], ["from-kafka", url, tmp_path / "back"]):
        with terminal("mirror", *arguments, columns=300) as shown:
            road = f"PLAINTEXT, librdkafka {confluent_kafka.libversion()[0]}"
            shown.shows(f"jlogtool: {arguments[1]} to {arguments[2]}: follows by {road}; Ctrl-C ends")
            shown.press("\x03")
            assert shown.wait() == 0, shown.text


def test_there_and_back_and_both_are_the_same(journal, url, tmp_path):
    assert do_json("mirror", "to-kafka", "--until-end", journal, url)["records"] == 100
    assert do_json("mirror", "from-kafka", "--until-end", url, tmp_path / "back")["records"] == 100
    for path, direction in ((journal, "to-kafka"), (tmp_path / "back", "from-kafka")):
        status = do_json("mirror", "status", path, url)
        assert (status["direction"], status["lag"], status["lag_bytes"], status["lag_seconds"]) == (
            direction,
            0,
            0,
            0.0,
        )
        assert status["road"].startswith("PLAINTEXT, librdkafka ")
        verify = do_json("mirror", "verify", path, url)
        assert (verify["ok"], verify["compared"], verify["differences"]) == (True, 100, 0)
        assert do("mirror", "status", path, url)
        assert b"the same" in do("mirror", "verify", path, url)


def test_verify_exits_with_3_on_a_difference_and_1_unmirrored(journal, url, witness, topic):
    witness.make(topic)
    code, _, said = run("mirror", "verify", journal, url)
    assert (code, "nothing was ever mirrored" in said) == (1, True)
    do("mirror", "to-kafka", "--until-end", journal, url)
    witness.produce(topic, [b"another"])
    code, out, said = run("mirror", "verify", "--json", journal, url)
    assert (code, said) == (3, "")
    assert json.loads(out)["examples"] == [{"what": "only in the topic", "partition": 0, "offset": 101}]


def test_a_dry_run_changes_nothing_and_says_what_would_be(journal, url, witness, topic):
    with jlog.Writer(journal) as writer:
        writer.append(bytes(2 << 20))
    found = do_json("mirror", "to-kafka", "--dry-run", journal, url)
    assert (found["create"], found["records"], found["sequence"]) == (True, 101, 0)
    assert found["refused"][0]["sequence"] == 100
    assert "max.message.bytes" in found["refused"][0]["reason"]
    assert jlog.Journal(journal).subscribers() == {}
    assert not [name for name in witness.topics() if topic in name]
    do("mirror", "to-kafka", "--dry-run", journal, url)


def test_a_dry_run_of_a_capture(url, witness, topic, tmp_path):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    found = do_json("mirror", "from-kafka", "--dry-run", url, tmp_path / "copy")
    assert (found["create"], found["records"], found["offsets"]) == (True, 10, {f"{topic}/0": 0})
    assert not (tmp_path / "copy").exists()


def test_a_dry_run_warns_of_what_the_topic_would_remove_at_once(tmp_path, url, witness, topic):
    witness.make(topic, retention_ms=1000)
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b"old", timestamp_us=1_000_000_000)
    assert "retention.ms=1000" in do_json("mirror", "to-kafka", "-n", tmp_path / "journal", url)["warnings"][0]


def test_a_record_that_the_topic_refuses_ends_it_with_1(journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    with jlog.Writer(journal) as writer:
        writer.extend([bytes(20_000), b"after"])
    code, _, said = run("mirror", "to-kafka", "--until-end", journal, url)
    assert code == 1
    assert re.search(r"record 100 is refused: .*--refused skip", said)
    code, _, said = run("mirror", "to-kafka", "--until-end", "--refused", "dead-letter", journal, url)
    assert (code, "record 100 is refused" in said) == (0, True)
    assert witness.values(topic) == [*numbered(100), b"after"]
    assert witness.values(f"{topic}.refused") == [bytes(20_000)]


@pytest.mark.parametrize("arguments", [("--subscriber", "billing"), ("--read-only",)], ids=["named", "none"])
def test_a_read_only_mirror_makes_no_subscriber(journal, url, witness, topic, arguments):
    """A mirror with --subscriber creates that one alone."""
    with jlog.Writer(journal) as writer:
        writer.sync()
    do("mirror", "to-kafka", "--until-end", *arguments, journal, url)
    assert list(jlog.Journal(journal).subscribers()) == (["billing"] if arguments[0] == "--subscriber" else [])
    assert witness.values(topic) == numbered(100)


def test_no_broker_is_one_line_and_exit_code_1(journal):
    code, out, said = run("mirror", "to-kafka", "--until-end", journal, "kafka://127.0.0.1:1,127.0.0.1:2/t")
    assert (code, out, said.count("\n")) == (1, b"", 1)
    assert "127.0.0.1:1,127.0.0.1:2" in said
    assert "refused" in said


USAGE = [
    ("to-kafka", "JOURNAL", "orders"),
    ("to-kafka", "JOURNAL", "kafka://localhost"),
    ("to-kafka", "JOURNAL", "kafka://localhost/t", "--key", "nonsense"),
    ("to-kafka", "JOURNAL", "kafka://localhost/t", "--rate", "0"),
    ("to-kafka", "JOURNAL", "kafka://localhost/t", "--start", "1000000"),
    ("to-kafka", "JOURNAL", "kafka://localhost/t", "-X", "acks=0"),
    ("to-kafka", "JOURNAL", "kafka://localhost/t", "--transform", "nowhere:function"),
    ("from-kafka", "kafka://localhost/t", "JOURNAL", "-X", "nonsense"),
    ("from-kafka", "kafka://user:geheim@localhost/t", "JOURNAL"),
    ("status", "JOURNAL", "kafka://localhost/a,b"),
]


@pytest.mark.parametrize("arguments", USAGE, ids=[" ".join(arguments) for arguments in USAGE])
def test_a_forbidden_value_is_an_error_of_usage(journal, arguments):
    code, _, said = run("mirror", *[journal if argument == "JOURNAL" else argument for argument in arguments])
    assert code == 2
    assert "geheim" not in said


def test_a_secret_stands_in_no_output(journal, url, tmp_path):
    (tmp_path / "secrets").write_text("sasl.password=geheim1\nsasl.username=me\n")
    env = {"JLOG_KAFKA_SSL_KEY_PASSWORD": "geheim2"}
    settings = ("--config", tmp_path / "secrets", "-X", "sasl.oauthbearer.client.secret=geheim3")
    code, out, warned = run("mirror", "to-kafka", "--dry-run", *settings, journal, url, env=env)
    assert (code, b"me" in out) == (0, True)
    wrong = [*settings, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    code, more, said = run("mirror", "to-kafka", "--until-end", *wrong, journal, url, env=env)
    assert code == 1
    bad = run("info", "-X", "sasl.password=geheim1", "-X", "security.protocol=geheim1", url)
    assert bad[0] == 1
    for shown in (out.decode(), warned, more.decode(), said, bad[2], bad[1].decode()):
        assert "geheim" not in shown


def test_metrics_are_served_while_it_runs(journal, url):
    port = free_port()
    running = Process("to-kafka", journal, url, "--metrics", f"127.0.0.1:{port}")
    try:
        name = f'mirror="{journal} to {url}"'
        wait_until(lambda: f"jlog_mirror_records_total{{{name}}} 100.0" in scrape(port))
        wait_until(lambda: f"jlog_mirror_lag_seconds{{{name}}}" in scrape(port))
        found = scrape(port)
        assert f"jlog_mirror_up{{{name}}} 1.0" in found
        for sample in (
            "bytes_total",
            "transactions_total",
            "retries_total",
            "lag_records",
            "lag_bytes",
            "lag_seconds",
        ):
            assert f"jlog_mirror_{sample}{{{name}}}" in found
        assert running.end() == (0, "")
    finally:
        discard([running])


def scrape(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HUNG_SECONDS) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def free_port():
    from kafka_broker import free_port

    return free_port()


def test_many_out_of_a_file(journal, broker, witness, topic, tmp_path):
    file = tmp_path / "mirrors.toml"
    file.write_text(f'[[to-kafka]]\njournals = "{journal}"\nurl = "kafka://{broker.address}"\ntopic = "{topic}"\n')
    assert topic.encode() in do("mirror", "run", "--dry-run", file)
    assert not witness.exists(topic)
    do("mirror", "run", "--until-end", file)
    assert witness.values(topic) == numbered(100)
    witness.delete(topic)
    with jlog.Writer(journal) as writer:
        writer.append(b"more")
    code, _, said = run("mirror", "run", "--until-end", file)
    assert (code, "was deleted" in said) == (1, True)


def test_a_transform_of_the_command_line(journal, url, witness, topic, tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text("def double(record):\n    return b'%d' % (2 * int(record.value))\n")
    monkeypatch.chdir(tmp_path)
    do("mirror", "to-kafka", "--until-end", "--transform", "changes:double", journal, url)
    assert witness.values(topic) == [b"%d" % (2 * number) for number in range(100)]
    do("transform", "--until-end", "--transform", "changes:double", url, tmp_path / "sink")
    with jlog.Reader(tmp_path / "sink") as reader:
        assert list(reader.values()) == [b"%d" % (4 * number) for number in range(100)]


def test_a_transform_to_a_topic_has_a_topics_options(tmp_path, url, witness, topic, monkeypatch):
    (tmp_path / "changes.py").write_text("def number(record):\n    return b'%d' % int(record.value)\n")
    monkeypatch.chdir(tmp_path)
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b"1", b"x", b"2"], headers=[[("user", b"u")]] * 3)
    arguments = ["transform", "--until-end", "--transform", "changes:number", tmp_path / "journal"]
    code, _, said = run(*arguments, "--no-create", url)
    assert (code, "there is no such topic" in said) == (1, True)
    options = ["--partitions", 2, "--key", "header:user", "--refused", "dead-letter"]
    code, _, said = run(*arguments, *options, url)
    assert (code, "the transform raised ValueError" in said) == (0, True)
    assert [(fields.value, fields.key) for fields in witness.fields(topic)] == [(b"1", b"u"), (b"2", b"u")]
    assert witness.partitions(topic) == 2
    assert witness.values(f"{topic}.refused") == [b"x"]


def test_a_dry_run_of_a_transform_writes_nothing(journal, tmp_path, monkeypatch):
    """The dry run calls the function."""
    (tmp_path / "changes.py").write_text("def low(record):\n    return [record] * (int(record.value) < 10)\n")
    monkeypatch.chdir(tmp_path)
    arguments = ("transform", "--dry-run", "--transform", "changes:low", journal, tmp_path / "sink")
    assert do_json(*arguments) == {"records": 100, "made": 10, "left_out": 0}
    assert b"100" in do(*arguments)
    assert not (tmp_path / "sink").exists()
    code, _, said = run("mirror", "to-kafka", *arguments[1:4], journal, "kafka://localhost/topic")
    assert (code, "--dry-run and --transform" in said) == (2, True)


def test_a_transform_refuses_what_its_sink_cannot_have(journal, url, tmp_path):
    arguments = ["transform", "--transform", "os:fspath", journal]
    for sink, options in (
        (tmp_path / "sink", ["--partitions", "2"]),
        (tmp_path / "sink", ["--key", "none"]),
        (url, ["--sync", "append"]),
    ):
        assert run(*arguments, *options, sink)[0] == 2
    assert not (tmp_path / "sink").exists()

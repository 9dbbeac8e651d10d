"""`jlogtool` on topics: what it does with journals, by another URL."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from urllib.parse import parse_qs, urlencode

import pytest

import jlog
from cli.command import do, run, run_on_terminal
from cli.consoles import ask, post, serving
from jlog.urls import open_journal
from kafka.processes import TOOL
from kafka.witness import numbered
from patience import HUNG_SECONDS, wait_until


@pytest.fixture
def numbers(witness, topic):
    """The URL of a topic of the values b"0" to b"9"."""
    url = witness.make(topic, retention_ms=-1)
    do("append", url, stdin=b"".join(value + b"\n" for value in numbered(10)))
    return url


def test_appended_records_are_dumped_as_from_a_journal(numbers):
    assert do("dump", numbers).lines == numbered(10)
    assert do("dump", numbers, "--from", 3, "--to", 5).lines == [b"3", b"4"]
    assert do("dump", numbers, "--limit", 2, "--from", 5).lines == [b"5", b"6"]
    assert do("dump", numbers, "--reverse", "--limit", 3).lines == [b"9", b"8", b"7"]
    assert do("dump", numbers, "--grep", "[24]").lines == [b"2", b"4"]
    assert do("tail", numbers, "-n", 2).lines == [b"8", b"9"]
    assert do("tail", numbers, "-n", 1, "--grep", "[2-4]").lines == [b"4"]


def test_tail_counts_records_and_not_the_ends_of_transactions(url, tmp_path):
    """Each of which has an offset, as a record has."""
    for number in range(5):
        do("append", tmp_path / "journal", stdin=b"%d\n" % number)
        do("mirror", "to-kafka", "--until-end", tmp_path / "journal", url)
    for wanted in (1, 2, 5, 6):
        assert do("tail", "-n", wanted, url).lines == numbered(5)[-wanted:]
    assert do("tail", "-n", 0, url).lines == []


def test_ls_shows_the_offsets_of_a_topic_as_a_bound_of_its_records(url, tmp_path):
    do("append", tmp_path / "journal", stdin=b"0\n")
    do("mirror", "to-kafka", "--until-end", tmp_path / "journal", url)
    server = url.rpartition("/")[0]
    assert [row["records"] for row in do("ls", "--json", server).json if row["path"] == url] == [2]
    (row,) = [line.decode() for line in do("ls", server).lines if line.startswith(url.encode())]
    assert row.removeprefix(url).split()[:3] == ["at", "most", "2"]
    terminal_says = run_on_terminal("rm", url, typed=b"n\n")[1]
    assert b"with at most 2 records and" in terminal_says


def test_json_lines_go_in_and_come_out(witness, topic):
    url = witness.make(topic, retention_ms=-1)
    record = {
        "timestamp": "2026-11-20T12:34:56.123000Z",  # a topic keeps milliseconds
        "key": "k",
        "value": "text",
        "headers": [["name", "text"], ["none", None]],
    }
    do("append", "--format", "jsonl", url, stdin=json.dumps(record).encode())
    assert do("dump", "--json", url).json == {"sequence": 0, **record}


def test_a_subscriber_reads_and_commits(numbers):
    first = run("read", "-n", 4, numbers, "billing")
    assert (first.code, first.lines) == (0, numbered(4))
    assert first.err == "jlogtool: new subscriber 'billing', from sequence 0\n"
    assert do("read", numbers, "billing").lines == numbered(6, 4)
    (found,) = do("subscriber", "ls", "--json", numbers).json
    assert found == {"name": "billing", "sequence": 10, "lag": 0, "busy": False}


def test_positions_are_kept_as_those_of_journals_are(numbers):
    do("subscriber", "add", numbers, "audit", "--start", 3)
    do("subscriber", "copy", numbers, "audit", "again")
    do("subscriber", "set", numbers, "audit", "end")
    do("checkpoint", "set", numbers, "mark", 5)
    do("rewind", numbers, "audit", "mark")
    found = {at["name"]: at["sequence"] for at in do("subscriber", "ls", "--json", numbers).json}
    assert found == {"audit": 5, "again": 3}
    assert do("checkpoint", "ls", "--json", numbers).json == [{"name": "mark", "sequence": 5, "lag": 5}]
    do("subscriber", "rm", numbers, "again")
    do("checkpoint", "rm", numbers, "mark")
    assert b"again" not in do("subscriber", "ls", numbers).out
    assert b"mark" not in do("checkpoint", "ls", numbers).out


def test_info_and_ls_show_it_and_not_what_is_ours(numbers, broker, topic):
    do("subscriber", "add", numbers, "audit", "--start", 3)
    do("checkpoint", "set", numbers, "mark", 5)
    info = do("info", "--json", numbers).json
    assert (info["first_sequence"], info["next_sequence"], info["records"]) == (0, 10, 10)
    assert topic.encode() in do("info", numbers).out
    rows = do("ls", "--json", f"kafka://{broker.address}").json
    (found,) = [row for row in rows if row["path"] == numbers]
    assert (found["records"], found["lag"]) == (10, 7)
    assert not [row["path"] for row in rows if "/jlog." in row["path"]]
    assert topic.encode() in do("ls", f"kafka://{broker.address}").out


def test_a_topic_is_made_once_and_removed(url):
    do("create", url)
    assert run("create", url).code == 1
    assert do("append", "--json", url, stdin=b"one\n").json["records"] == 1
    assert run("rm", url).code == 2
    do("rm", "--yes", url)
    gone = run("info", url)
    assert (gone.code, "there is no such topic" in gone.err) == (1, True)


def test_a_topic_is_made_with_partitions_and_settings(url, witness, topic):
    do("create", "--partitions", 3, "--replication-factor", 1, "--segment-bytes", "2M", url)
    assert (witness.partitions(topic), witness.config(topic)["segment.bytes"]) == (3, str(2 << 20))
    several = run("append", url, stdin=b"x\n")
    assert (several.code, "?partition=0" in several.err) == (2, True)
    do("append", f"{url}?partition=1", stdin=b"x\n")
    assert [len(messages) for messages in witness.messages(topic)] == [0, 1, 0]


def test_appending_makes_a_topic_as_told_or_none(url, witness, topic):
    assert run("append", "--no-create", url, stdin=b"x\n").code == 1
    assert not witness.exists(topic)
    do("append", "--partitions", 2, f"{url}?partition=1", stdin=b"x\n")
    assert [len(messages) for messages in witness.messages(topic)] == [0, 1]


def test_partitions_are_for_topics(tmp_path):
    for command in ("create", "append"):
        assert run(command, "--partitions", 2, tmp_path / "journal").code == 2
    assert not (tmp_path / "journal").exists()


def test_a_journals_own_options_are_errors_of_usage_for_a_topic(url):
    for command in (["dump", "--blocks"], ["verify"], ["clean"], ["roll"], ["options"]):
        result = run(*command, url)
        assert (result.code, "topic" in result.err) == (2, True)


WITH_SETTINGS = ("dump", "tail", "info", "ls")


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_settings_come_from_options_a_file_and_the_environment(numbers, broker, tmp_path, monkeypatch, command):
    """Each of these makes every attempt fail; what is over it lets it work again."""
    where = f"kafka://{broker.address}" if command == "ls" else numbers
    bad, good, file = "security.protocol=nonsense", "security.protocol=plaintext", tmp_path / "settings"
    monkeypatch.setenv("JLOG_KAFKA_SECURITY_PROTOCOL", "nonsense")
    assert run(command, where).code == 1
    do(command, where, "-X", good)
    file.write_text(good + "\n")
    do(command, where, "--config", file)
    assert run(command, where, "--config", file, "-X", bad).code == 1
    file.write_text(bad + "\n")
    do(command, where, "-X", good, "--config", file)


def test_tail_follows_a_topic(url, witness, topic):
    witness.make(topic)
    following = subprocess.Popen([*TOOL, "tail", "-f", "-n", "0", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stop = threading.Event()

    def feed():  # it begins at the end, wherever that is by then
        number = 0
        while not stop.is_set():
            witness.produce(topic, [b"%d" % number])
            number += 1

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        first = int(following.stdout.readline())
        assert int(following.stdout.readline()) == first + 1
    finally:
        stop.set()
        thread.join()
        following.kill()
        following.communicate()


def test_the_console_has_a_line_for_each_partition_of_a_topic_and_its_pages(witness, topic, tmp_path):
    url = witness.make(topic, partitions=2)
    do("append", f"{url}?partition=1", stdin=b"0\n1\n2\n")
    do("subscriber", "add", f"{url}?partition=1", f"{topic}-billing")
    jlog.Writer(tmp_path / "orders").close()
    with serving(tmp_path, url) as console:
        wait_until(lambda: "…" not in ask(f"{console}/glance")[2])
        text = re.sub(r"<[^>]+>+", " ", ask(f"{console}/glance")[2])
        partition = f"{url}?partition=1"
        records = ask(f"{console}/records?{urlencode({'path': partition, 'start': 1, 'grep': '[1-9]'})}")[2]
        assert re.findall(r'class="value">(\d)</td>', records) == ["1", "2"]
        state = ask(f"{console}/state?{urlencode({'path': partition})}")[2]
        assert re.search(rf"{topic}-billing</td><td[^>]*>0</td><td[^>]*>3</td>", state)
        found = post(console, "sql", path=partition, statement="SELECT count(*) + 39 FROM journal")[2]
        assert ">42</td>" in found
        with urllib.request.urlopen(f"{console}/tail?{urlencode({'path': partition})}", timeout=HUNG_SECONDS) as events:
            assert events.readline() == b": nothing new\n"
            do("append", partition, stdin=b"followed\n")
            while not (line := events.readline()).startswith(b"data: "):
                pass
        assert "followed" in json.loads(line[6:])[0]
    assert re.findall(rf"{re.escape(url)}\?partition=(\d)\s+(\d+)\s+(\d+)\s+(\d+)\s", text) == [
        ("0", "0", "0", "0"),
        ("1", "3", "1", "3"),
    ]
    assert f"{tmp_path}/orders" in text


def test_the_console_moves_positions_of_a_topic_as_was_confirmed(numbers, topic):
    partition = f"{numbers}?partition=0"
    journal = open_journal(partition)
    name = f"{topic}-billing"
    journal.add_subscriber(name)
    with serving("--allow-changes", numbers) as console:
        listed = ask(f"{console}/glance")[2]
        (path,) = set(re.findall(r'href="/records\?([^"]*)"', listed))
        change = {"path": parse_qs(path)["path"][0], "kind": "subscriber", "name": name, "position": "7"}
        said = ask(f"{console}/confirm?{urlencode(change)}")[2]
        assert "to 7? It is at 0 now. It skips 7 sequences.<" in said.replace(" <", "<")  # and it keeps them
        assert journal.subscribers()[name].sequence == 0
        status, headers, _ = post(console, "change", **change)
        assert status == 303
        assert re.search(rf"{name}</td><td[^>]*>7</td><td[^>]*>3</td>", ask(console + headers["Location"])[2])
        assert journal.subscribers()[name].sequence == 7
        mark = {**change, "kind": "checkpoint", "name": "mark", "position": "4"}
        assert "to 4? It does not exist yet." in ask(f"{console}/confirm?{urlencode(mark)}")[2]
        assert post(console, "change", **mark)[0] == 303
        assert journal.checkpoints()["mark"].sequence == 4
        back = {**change, "position": "mark"}
        assert "to 4? It is at 7 now. It goes back: 3 sequences come again." in ask(f"{console}/confirm?{urlencode(back)}")[2]
        assert post(console, "change", **back)[0] == 303
        for position, sequence in {"end": 10, "1000w": 0, "begin": 0}.items():
            assert post(console, "change", **{**change, "position": position})[0] == 303
            assert journal.subscribers()[name].sequence == sequence
        unknown = {**change, "name": f"{topic}-nobody"}
        assert "has no subscriber" in ask(f"{console}/confirm?{urlencode(unknown)}")[2]
        with jlog.open_reader(partition, name) as reader:
            next(iter(reader))
            status, _, text = post(console, "change", **change)
            assert (status, name in text) == (400, True)
        assert journal.subscribers()[name].sequence == 0


def test_the_console_ends_at_once_where_there_is_no_such_topic(url):
    result = run("console", "--listen", "127.0.0.1:0", url)
    assert (result.code, "there is no topic" in result.err) == (1, True)

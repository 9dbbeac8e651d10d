"""`jlogtool console` shows journals in a browser, as they are, to this machine alone."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from urllib.parse import quote, urlencode

import pytest

import jlog
from cli.command import run
from cli.consoles import NAME, ask, page, post, running, serving
from jlog.console import curves, isolation, pages, samples
from jlog.console.app import FOLLOWING
from patience import HUNG_SECONDS, wait_until


def test_only_this_machine_by_its_own_name_is_answered(console):
    assert ask(console + "/")[0] == 200
    assert ask(console + "/", Host="evil.example")[0] == 403
    assert ask(console + "/", Origin="http://evil.example")[0] == 403
    assert ask(console + "/", Origin="null")[0] == 403
    assert ask(console + "/", Origin=console)[0] == 200
    assert ask(console + "/", method="POST")[0] == 403
    assert ask(console + "/", method="POST", Origin="http://evil.example")[0] == 403
    assert ask(console + "/", method="POST", Origin=console)[0] == 405


def test_each_page_has_a_policy_that_loads_nothing_from_elsewhere(console, journals):
    for url in (console + "/", page(console, journals), console + "/console.js", console + "/nothing"):
        policy = ask(url)[1]["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "http" not in policy


def test_no_journal_outside_is_shown(console, journals, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "journal"
    jlog.Writer(outside).close()
    for path in (outside, f"{journals}/../{outside.parent.name}/journal", "/etc", ""):
        for where in ("records", "tail", "state", "curves", "sql"):
            assert ask(f"{console}/{where}?path={quote(str(path))}")[0] == 404


def test_records_are_escaped(console, journals):
    status, _, text = ask(page(console, journals, start="begin"))
    assert status == 200
    assert "<script>document" not in text
    assert "<img" not in text
    assert "<b>here" not in text
    assert "\x1b" not in text
    assert "\\x1b[2J\\x1b]0;owned\\x07" in text
    assert "00 01 02 03" in text
    assert ">null<" in text


def test_a_position_or_a_pattern_that_is_wrong_is_said(console, journals):
    assert ask(page(console, journals, start="nonsense"))[0] == 400
    assert ask(page(console, journals, grep="("))[0] == 400


def test_without_a_position_the_newest_records_come_first(console, journals):
    sequences = re.findall(r'<td class="number">(\d+)', ask(page(console, journals))[2])
    assert sequences == [str(sequence) for sequence in range(199, 149, -1)]


def test_a_page_begins_at_a_time_a_sequence_or_a_match(console, journals):
    with jlog.Reader(journals / NAME, start=100) as reader:
        (record,) = reader.read(1)
        reader.seek(record.timestamp)
        wanted = {"100": 100, record.timestamp.isoformat(): reader.position}
    for start, first in wanted.items():
        text = ask(page(console, journals, start=start))[2]
        assert re.search(r'<td class="number">(\d+)', text)[1] == str(first)
    jlog.Journal(journals / NAME).set_checkpoint("before", 42)
    assert re.search(r'<td class="number">(\d+)', ask(page(console, journals, start="before"))[2])[1] == "42"
    assert re.findall(r"number 1\d7", ask(page(console, journals, grep="number 1.7$"))[2])[:3] == [
        "number 197",
        "number 187",
        "number 177",
    ]


def damaged(journals):
    """Creates a journal in which the second of three records is damaged."""
    with jlog.Writer(journals / "damaged", precommit=0) as writer:
        for number in range(3):
            writer.append(b"value %d" % number)
    (segment,) = jlog.Journal(journals / "damaged").segments()
    content = Path(segment.path).read_bytes()
    Path(segment.path).write_bytes(content.replace(b"value 1", b"value X"))


@pytest.mark.damage
def test_damage_is_said_and_passed(console, journals):
    damaged(journals)
    text = ask(page(console, journals, journal="damaged"))[2]
    assert "damaged at byte" in text
    assert "value 0" in text
    assert "value 2" in text
    assert "value X" not in text


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "nonsense", ":8080", "127.0.0.1:99999", "127.0.0.1:-1"]
)
def test_it_listens_on_this_machine_alone(listen, tmp_path):
    result = run("console", "--listen", listen, tmp_path)
    assert result.code == 2
    assert repr(listen) in result.err


def test_a_page_of_large_values_shows_their_beginnings(console, journals):
    with jlog.Writer(journals / "large") as writer:
        for number in range(60):
            writer.append(b"%d " % number + b"x" * (1 << 20), key=b"k" * (1 << 20))
    text = ask(page(console, journals, journal="large", start="begin"))[2]
    assert "1,048,578 bytes" in text
    assert text.count("<tr>") == 51
    assert len(text) < 400_000


def test_very_many_subscribers_come_in_pages(console, journals):
    journal = jlog.Journal(journals / NAME)
    for number in range(250):
        journal.add_subscriber(f"<b>{number:03}", start=number % 200)
    text = ask(page(console, journals, "state"))[2]
    assert "Subscribers: 250" in text
    assert "&lt;b&gt;099" in text
    assert "&lt;b&gt;100" not in text
    assert "<b>0" not in text
    more = re.search(r'id="more-subscribers" href="([^"]+)"', text)[1].replace("&amp;", "&")
    text = ask(console + more)[2]
    assert re.findall(r"&lt;b&gt;(\d+)", text) == [f"{number}" for number in range(100, 200)]


def test_the_state_shows_checkpoints_segments_and_workers(console, journals):
    journal = jlog.Journal(journals / NAME)
    journal.set_checkpoint("<i>before", 17)
    with jlog.Worker(journals / NAME, "crew") as worker:
        tasks = worker.take(3)
        text = ask(page(console, journals, "state"))[2]
        assert len(tasks) == 3
    assert "&lt;i&gt;before" in text
    assert 'data-is="position">17</td>' in text
    assert "Segments: 1" in text
    assert re.search(r'crew</td>.*<span title="processes \d+">1</span></td><td [^>]*"taken">3</td>', text)


def test_a_page_that_is_not_there_is_an_empty_one(console, journals):
    for field in ("subscriber", "checkpoint", "segment"):
        for first in ("-1", "x", "999999999999", "²"):
            assert ask(page(console, journals, "state", **{field: first}))[0] == 200, (field, first)


# --- SQL ----------------------------------------------------------------------------------------------------------------


def test_sql_is_answered_with_the_first_rows(console, journals):
    status, _, text = post(console, "sql", path=journals / NAME, statement='SELECT sequence AS "<b>", value FROM journal')
    assert status == 200
    assert "&lt;b&gt;" in text
    assert "<script>document" not in text
    assert "number 199" in text
    more = post(console, "sql", path=journals / NAME, statement="FROM range(501)")[2]
    assert "The first 500 rows. There are more." in more


def test_sql_knows_the_other_journals_by_their_names(console, journals):
    with jlog.Writer(journals / "orders") as writer:
        writer.append(b'{"drink": "tea", "cups": 2}')
    statement = "SELECT drink, cups + n FROM orders, (SELECT count(*) AS n FROM journal)"
    ask(page(console, journals, journal="orders"))  # it was created just now
    text = post(console, "sql", path=journals / "orders", statement=statement, parse="json")[2]
    assert ">tea</td>" in text
    assert ">3</td>" in text


def test_sql_reads_journals_and_nothing_else(console, journals, tmp_path):
    place = tmp_path / "place"
    for statement in (
        "SELECT * FROM read_text('/etc/passwd')",
        "FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO 'PLACE'",
        "ATTACH 'PLACE'",
        "INSTALL httpfs",
        "LOAD 'PLACE'",
        "SET enable_external_access = true",
        "SELECT * FROM question",  # a variable of the program
        "SELECT 1; COPY (SELECT 1) TO 'PLACE'",
        "",
        ";",
        "SELECT (",
        "SELECT length(repeat('x', 100000000000))",
        "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(100000000))",
    ):
        text = post(console, "sql", path=journals / NAME, statement=statement.replace("PLACE", str(place)))[2]
        assert 'id="error"' in text, statement
        assert "root:" not in text, statement
        assert not place.exists(), statement
        assert ask(console + "/")[0] == 200, statement


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 'written') TO ':memory:' (FORMAT csv, HEADER false)",
        "COPY (SELECT repeat('x', 100000)) TO ':memory:.wal' (FORMAT csv)",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO ':memory:' (FORMAT csv)",
        "SET log_query_path = 'PLACE'; SELECT 1",
        "PRAGMA enable_profiling = 'json'; PRAGMA profiling_output = 'PLACE'; SELECT 1",
        "SET secret_directory = 'PLACE'; CREATE PERSISTENT SECRET s (TYPE http)",
        "SET extension_directory = 'PLACE'; INSTALL icu",
        "EXPORT DATABASE 'PLACE'",
        "CALL enable_logging('QueryLog', storage = 'file', storage_path = 'PLACE'); SELECT 1",
        "SELECT content FROM read_text(':memory:')",
        "SELECT content FROM read_text(':memory:.wal')",
        "FROM query('COPY (SELECT 1) TO $$:memory:$$')",
    ],
)
def test_no_statement_reads_or_writes_a_file_of_the_working_directory(statement, journals, tmp_path_factory, monkeypatch):
    here = tmp_path_factory.mktemp("here")
    for name in (":memory:", ":memory:.wal"):
        (here / name).write_text("a secret")
    monkeypatch.chdir(here)
    with serving(journals) as console:
        text = post(console, "sql", path=journals / NAME, statement=statement.replace("PLACE", str(here / "place")))[2]
        assert "a secret" not in text
        assert {file.name: file.read_text() for file in here.iterdir()} == {":memory:": "a secret", ":memory:.wal": "a secret"}


def test_no_module_of_the_working_directory_is_run(journals, tmp_path_factory, monkeypatch):
    here = tmp_path_factory.mktemp("here")
    for name in ("json", "re", "runpy", "duckdb"):
        (here / f"{name}.py").write_text(f"open({str(here / 'was_run')!r}, 'w').close()")
    monkeypatch.chdir(here)
    command = Path(sys.executable).with_name("jlogtool")
    with serving(journals, command=[command]) as console:
        for name in ("records", "state"):
            assert ask(page(console, journals, name))[0] == 200
        assert ">201</td>" in post(console, "sql", path=journals / NAME, statement="SELECT count(*) + 1 FROM journal")[2]
    assert not (here / "was_run").exists()


def test_a_name_of_several_journals_is_none_in_sql_and_a_path_is(console, journals):
    for tenant in ("a.b", "c"):
        for name in ("orders", "Orders"):
            with jlog.Writer(journals / tenant / name) as writer:
                writer.append(f"record of {tenant}/{name}".encode())
            assert ask(page(console, journals, journal=f"{tenant}/{name}"))[0] == 200  # they were created just now
    own = journals / "a.b" / "orders"
    for name in ("orders", '"Orders"'):
        text = post(console, "sql", path=own, statement=f"SELECT value FROM {name}")[2]
        assert "4 journals have the name orders" in text
        assert "record of" not in text
    for tenant in ("a.b", "c"):
        path = journals / tenant / "Orders"
        text = post(console, "sql", path=own, statement=f'SELECT value FROM "{path}"')[2]
        assert f"record of {tenant}/Orders" in text


def test_a_statement_that_is_not_utf_8_is_an_error(console, journals):
    body = urlencode({"path": journals / NAME}).encode() + b"&statement=SELECT+%27%FF%27"
    assert "not UTF-8" in ask(f"{console}/sql", "POST", body, Origin=console)[2]


def test_what_nobody_waits_for_is_ended(journals):
    statement = "SELECT max(hash(range)) FROM range(1000000000000)"
    with running(journals) as (console, pid):
        headers = {"Origin": console, "Content-Type": "application/x-www-form-urlencoded"}
        closed = http.client.HTTPConnection(console.removeprefix("http://"), timeout=HUNG_SECONDS)
        closed.request("POST", "/sql", urlencode({"path": journals / NAME, "statement": statement}), headers)
        wait_until(lambda: ticks_at_work(pid))
        (worker,) = ticks_at_work(pid)
        closed.close()
        wait_until(lambda: not ticks_at_work(pid))
        assert worker[1] < isolation.CPU_SECONDS


def ticks_at_work(pid):
    """Returns the processes of the console that have used CPU time for SQL, with the seconds."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            ticks = sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]))
            found.append((child, ticks / os.sysconf("SC_CLK_TCK")))
    return found


def test_a_statement_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(isolation, "CPU_SECONDS", 1)
    asked = {"statement": "SELECT max(hash(range)) FROM range(1000000000000)", "sources": {}, "parse": None}
    with pytest.raises(isolation.Refused, match="was ended"):
        asyncio.run(isolation.answer("jlog.console.sql", "", asked))


@pytest.mark.damage
def test_sql_says_what_damage_leaves_out(console, journals):
    damaged(journals)
    text = post(console, "sql", path=journals / "damaged", statement="SELECT value FROM journal")[2]
    assert "Left out at 1 damaged places." in text
    assert "value 2" in text


# --- Changes ------------------------------------------------------------------------------------------------------------


def test_nothing_can_be_changed_unless_it_was_allowed(console, journals):
    jlog.Journal(journals / NAME).add_subscriber("billing")
    change = {"path": journals / NAME, "kind": "subscriber", "name": "billing", "position": "end"}
    assert "<form" not in ask(page(console, journals, "state"))[2]
    assert ask(f"{console}/confirm?{urlencode(change)}")[0] == 404
    assert post(console, "change", **change)[0] == 404
    assert jlog.Journal(journals / NAME).subscribers()["billing"].sequence == 0


@pytest.fixture
def changing(journals):
    """A console that may change these journals."""
    with serving("--allow-changes", journals) as address:
        yield address


def test_a_subscriber_moves_to_what_was_confirmed(changing, journals):
    journal = jlog.Journal(journals / NAME)
    journal.add_subscriber("billing", start=100)
    change = {"path": journals / NAME, "kind": "subscriber", "name": "billing", "position": "end"}
    text = ask(f"{changing}/confirm?{urlencode(change)}")[2]
    assert "to 200? It is at 100 now. It skips 100 sequences" in text
    assert journal.subscribers()["billing"].sequence == 100
    with jlog.Writer(journals / NAME) as writer:
        writer.append(b"after the question")
    change["position"] = re.search(r'name="position" value="(\d+)"', text)[1]
    status, headers, _ = post(changing, "change", **change)
    assert status == 303
    assert ask(changing + headers["Location"])[0] == 200
    assert journal.subscribers()["billing"].sequence == 200


def test_a_subscriber_goes_back_to_a_checkpoint_that_was_set(changing, journals):
    journal = jlog.Journal(journals / NAME)
    journal.add_subscriber("billing", start="end")
    here = {"path": journals / NAME}
    assert post(changing, "change", **here, kind="checkpoint", name="before", position="1000w")[0] == 303
    assert post(changing, "change", **here, kind="checkpoint", name="before", position="20")[0] == 303
    assert post(changing, "change", **here, kind="subscriber", name="billing", position="before")[0] == 303
    assert journal.checkpoints()["before"].sequence == 20
    assert journal.subscribers()["billing"].sequence == 20


def test_a_change_from_another_page_is_refused(changing, journals):
    journal = jlog.Journal(journals / NAME)
    journal.add_subscriber("billing")
    change = {"path": journals / NAME, "kind": "subscriber", "name": "billing", "position": "end"}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert post(changing, "change", origin, **change)[0] == 403
    assert ask(f"{changing}/change", "POST", urlencode(change).encode())[0] == 403
    assert ask(f"{changing}/change?{urlencode(change)}")[0] == 405
    assert journal.subscribers()["billing"].sequence == 0


def test_a_change_that_cannot_be_made_says_why(changing, journals):
    here = {"path": journals / NAME, "kind": "subscriber"}
    assert "has no subscriber" in ask(f"{changing}/confirm?{urlencode({**here, 'name': 'nobody', 'position': 'end'})}")[2]
    with jlog.Reader(journals / NAME, "billing"):
        status, _, text = post(changing, "change", **here, name="billing", position="end")
    assert status == 400
    assert "billing" in text
    for wrong in ({"name": ""}, {"position": ""}, {"position": "nonsense"}, {"kind": "segment"}, {"name": "../../x"}):
        assert post(changing, "change", **{**here, "name": "billing", "position": "end", **wrong})[0] == 400
    assert post(changing, "change", path="/etc", kind="subscriber", name="billing", position="end")[0] == 404


# --- Other machines -----------------------------------------------------------------------------------------------------

TOKEN = "sixteen characters"


def test_elsewhere_each_page_asks_for_the_token(journals):
    with serving("--token", TOKEN, journals, listen="0.0.0.0:0") as address:
        here = address.replace("0.0.0.0", "127.0.0.1")
        for url in ("/", "/glance", "/console.js", page("", journals), page("", journals, "tail"), page("", journals, "sql")):
            assert ask(here + url)[0] == 401
        assert post(here, "sql", path=journals / NAME, statement="SELECT 1")[0] == 401
        assert post(here, "token", token="another one with length")[0] == 401
        assert post(here, "token", "http://evil.example", token=TOKEN)[0] == 403
        assert ask(here + "/", Authorization=f"Bearer {TOKEN}")[0] == 200
        status, headers, _ = post(here, "token", token=TOKEN)
        assert status == 303
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=strict" in headers["Set-Cookie"]
        assert TOKEN not in headers["Set-Cookie"]
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert ask(page(here, journals), Cookie=cookie)[0] == 200
        assert ask(here + "/", Cookie=cookie, Host="console.example")[0] == 200
        assert ask(here + "/", Cookie=cookie, Host="console.example", Origin="http://evil.example")[0] == 403


def test_behind_a_proxy_its_origin_is_answered(journals):
    public, name = "https://journals.example.org", "journals.example.org"
    with serving("--token", TOKEN, "--origin", f"{public}/", journals) as console:
        own, token = console.removeprefix("http://"), urlencode({"token": TOKEN}).encode()
        for host in (name, own):  # a proxy hands on its own name, or not
            assert ask(console + "/console.css", Host=host)[0] == 200
            status, headers, _ = ask(console + "/token", "POST", token, Host=host, Origin=public)
            assert status == 303
            assert "Secure" in headers["Set-Cookie"]
            assert ask(console + "/token", "POST", token, Host=host, Origin="http://evil.example")[0] == 403
        for host, origin in ((name, f"http://{name}"), (own, console)):
            assert ask(console + "/token", "POST", token, Host=host, Origin=origin)[0] == 403
        assert ask(console + "/", Host="evil.example")[0] == 403


@pytest.mark.parametrize("arguments", [["--origin", "https://a.example"], ["--token", TOKEN, "--origin", "a.example"]])
def test_an_origin_is_whole_and_needs_a_token(arguments, tmp_path):
    result = run("console", *arguments, tmp_path)
    assert result.code == 2
    assert "--origin is for a proxy" in result.err or "is not an origin" in result.err


def test_a_short_token_is_refused(tmp_path):
    result = run("console", "--token", "secret", tmp_path)
    assert result.code == 2
    assert "at least 16" in result.err


# --- Hostile journals ---------------------------------------------------------------------------------------------------

MANY = samples.MANY_SUBSCRIBERS * 3
LARGE = 100 << 20
CONSOLE_KIB = 90 << 10


def many_subscribers(journals):
    """One file has all these names, since only a file system with room for millions of files has them otherwise."""
    jlog.Journal(journals / NAME).add_subscriber("s")
    for number in range(MANY):
        os.link(journals / NAME / "subscribers" / "s", journals / NAME / "subscribers" / f"s{number:07}")


def most_kib(pid):
    """Returns the most memory that the process has had at a time."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


def test_many_subscribers_cost_the_console_no_memory(journals):
    many_subscribers(journals)
    with running(journals) as (console, pid):
        wait_until(lambda: "very many" in ask(console + "/glance")[2])
        text = ask(page(console, journals, "state", subscriber=MANY - 50))[2]
        assert f"Subscribers: {MANY + 1:,}" in text
        assert re.findall(r">s(\d+)</td>", text)[0] == f"{MANY - 51:07}"
        assert most_kib(pid) < CONSOLE_KIB


def test_large_records_cost_the_console_no_memory(journals):
    with jlog.Writer(journals / "large") as writer:
        writer.append(b"large " + bytes(LARGE), key=b"key")
    with running(journals) as (console, pid):
        with urllib.request.urlopen(page(console, journals, "tail", "large"), timeout=HUNG_SECONDS) as events:
            assert events.readline() == b": nothing new\n"
            with jlog.Writer(journals / "large") as writer:
                writer.append(b"followed " + bytes(LARGE))
            while not (line := events.readline()).startswith(b"data: "):
                pass
        assert json.loads(line[6:])[0][3].endswith(f"{LARGE + 9:,} bytes")
        for more in ({}, {"grep": "large.*\0$"}):
            assert f"{LARGE + 6:,} bytes" in ask(page(console, journals, journal="large", **more))[2]
        assert "Segments: 2" in ask(page(console, journals, "state", "large"))[2]
        assert most_kib(pid) < CONSOLE_KIB


def test_a_pattern_that_never_ends_is_ended(journals, monkeypatch):
    monkeypatch.setattr(isolation, "CPU_SECONDS", 1)
    with jlog.Writer(journals / "hostile") as writer:
        writer.append(b"x" * 100)
    asked = {"path": str(journals / "hostile"), "start": "begin", "grep": "(x+)+$y"}
    with pytest.raises(isolation.Refused, match="with a simpler pattern"):
        asyncio.run(isolation.answer("jlog.console.records", asked["path"], asked))


def test_slow_pages_of_one_journal_keep_no_page_of_another_waiting(console, journals):
    jlog.Writer(journals / "slow").close()
    ask(page(console, journals, journal="slow"))  # it was created just now
    slow = [Thread(target=in_vain, args=(console,), kwargs={"path": journals / "slow"}) for _ in range(6)]
    for thread in slow:
        thread.start()
    for name in ("records", "state", "sql"):
        assert ask(page(console, journals, name))[0] == 200
    assert ">201</td>" in post(console, "sql", path=journals / NAME, statement="SELECT count(*) + 1 FROM journal")[2]
    assert any(thread.is_alive() for thread in slow)


def in_vain(console, path):
    """Asks what takes more than ten seconds of CPU time, until the console ends."""
    with suppress(OSError, http.client.HTTPException):
        post(console, "sql", path=path, statement="SELECT max(hash(range)) FROM range(1000000000000)")


def test_only_some_pages_follow_at_a_time(console, journals):
    with ExitStack() as stack:
        for number in range(FOLLOWING + 1):
            url = page(console, journals, "tail")
            events = stack.enter_context(urllib.request.urlopen(url, timeout=HUNG_SECONDS))
            assert events.readline().startswith(b": nothing" if number < FOLLOWING else b"data: [[")
    wait_until(lambda: follows(page(console, journals, "tail")))


def follows(url):
    with urllib.request.urlopen(url, timeout=HUNG_SECONDS) as events:
        return events.readline().startswith(b": nothing")


# --- What is known without a disk ---------------------------------------------------------------------------------------


def test_a_directory_without_a_journal_is_not_looked_through_for_long(tmp_path, monkeypatch):
    looked = []
    real = samples.journals_below
    monkeypatch.setattr(samples, "journals_below", lambda place: looked.append(place) or real(place))
    jlog.Writer(tmp_path / "here" / "one").close()
    sampler = samples.Sampler([str(tmp_path)])
    sampler._refresh()
    sampler._walk_at = float("inf")  # as after a long walk
    for place in ("here/two", "there/three", "elsewhere"):
        jlog.Writer(tmp_path / place).close()
    os.symlink(tmp_path / "there", tmp_path / "link")
    sampler._refresh()
    assert [Path(watched.path).name for watched in sampler.all()] == ["one", "two"]
    assert sampler.named(str(tmp_path / "there" / "three")) is not None
    for path in ("none", "link/three", "../three", "there/../elsewhere", "here", "here/one/", "here/one/subscribers"):
        assert sampler.named(f"{tmp_path}/{path}") is None
    assert looked == [str(tmp_path)]


def test_too_many_subscribers_to_look_at_leave_the_rest_known(journals):
    many_subscribers(journals)
    watched = samples.Watched(str(journals / NAME))
    watched.look()
    assert watched.looks[-1].end == 200
    assert watched.lags() == []
    assert "very many" in pages.glance([watched])


def test_the_curves_show_what_was_appended_and_what_lags(journals):
    jlog.Journal(journals / NAME).add_subscriber("billing")
    watched = samples.Watched(str(journals / NAME))
    watched.look()
    with jlog.Writer(journals / NAME) as writer:
        writer.extend([b"more"] * 50)
    watched.look()
    ((_, rate),) = watched.rates()
    assert rate > 0
    assert [lag for _, lag in watched.lags()] == [200, 250]
    assert "now 250 records" in pages.curves(watched)
    jlog.Journal.delete(journals / NAME)
    watched.look()
    assert 'class="bad"' in pages.curves(watched)


def test_a_peak_of_one_look_is_in_the_curve():
    values = [(float(at), 0.0) for at in range(0, 3600, 5)]
    values[100] = (500.0, 1000.0)
    assert ",2.0" in curves.line(values, now=3600)
    assert curves.line([], now=3600).count("path") == 0

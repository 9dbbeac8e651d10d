"""`jlogtool work` and `work-retry`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import jlog
from cli.command import COMMAND, do, run, start
from crash.tampering import invert
from patience import HUNG_SECONDS, wait_until


def work(journal: Path, script: str, *options: object) -> None:
    do("work", journal, "resize", *options, "--until-end", "--", "sh", "-c", script)


def test_the_command_is_run_once_for_each_record(numbers: Path, tmp_path: Path) -> None:
    work(numbers, f'cat > {tmp_path}/"$JLOG_SEQUENCE.done"', "-j", 4)
    for number in range(100):
        assert (tmp_path / f"{number}.done").read_text() == str(number)
    assert do("subscriber", "ls", numbers, "--json").json == [
        {
            "name": "resize",
            "sequence": 100,
            "lag": 0,
            "busy": False,
            "taken": 0,
            "delayed": 0,
            "done": 0,
            "unfinished": 0,
            "workers": [],
            "order": "any",
            "max_attempts": None,
            "dead_letters": None,
            "backoff": [1.0, 60.0],
            "oldest_unread_seconds": None,
        }
    ]


def test_ls_counts_what_is_taken_delayed_and_done(numbers: Path) -> None:
    options = {"order": "key", "max_attempts": 5, "dead_letters": str(numbers) + ".dead", "backoff": (2, 30)}
    with jlog.Worker(numbers, "resize", **options) as worker:
        tasks = worker.take(10)
        tasks[3].ack()
        tasks[4].ack()
        tasks[5].nack(delay=3600)
        (found,) = do("subscriber", "ls", numbers, "--json").json
        (informed,) = do("info", numbers, "--json").json["subscribers"]
    with jlog.Reader(numbers) as reader:
        oldest = time.time() - next(iter(reader)).timestamp.timestamp()
    assert 0 < found.pop("oldest_unread_seconds") <= informed.pop("oldest_unread_seconds") <= oldest
    assert informed == found
    assert found == options | {
        "backoff": [2.0, 30.0],
        "name": "resize",
        "sequence": 0,
        "lag": 100,
        "busy": True,
        "taken": 7,
        "delayed": 1,
        "done": 2,
        "unfinished": 98,
        "workers": [{"pid": os.getpid(), "taken": 7}],
    }


def test_ls_info_stats_and_top_show_what_workers_do(numbers: Path) -> None:
    jlog.Journal(numbers).add_subscriber("billing")
    dead = numbers.with_name("dead")
    with jlog.Worker(numbers, "resize", window=10, order="key", max_attempts=5, dead_letters=dead) as worker:
        _held = worker.take(10)
        _held[0].nack(delay=3600)
        listed = [line.split() for line in do("subscriber", "ls", numbers).out.decode().splitlines()]
        counts = ["name", "sequence", "lag", "busy", "workers", "taken", "delayed", "unfinished"]
        assert [*counts, "oldest", "order", "max_attempts", "dead_letters"] in listed
        (resize,) = (line for line in listed if line[0] == "resize")
        assert resize[1:8] + resize[-3:] == ["0", "100", "yes", "1", "9", "1", "100", "key", "5", str(dead)]
        assert ["billing", "0", "100", "no"] in listed
        told = " ".join(do("info", numbers).out.decode().split())  # it is folded
        assert "resize at 0 (lag 100, 9 taken by 1 worker, the oldest " in told
        assert f" old, in order of the key, at most 5 attempts, dead letters in {dead})" in told
        assert "billing at 0 (lag 100)" in do("info", numbers).out.decode()
        (resize,) = (at for at in do("stats", numbers, "--json").json["subscribers"] if at["name"] == "resize")
        assert (resize["work"]["taken"], resize["work"]["full"]) == (9, True)
        assert "full" in do("stats", numbers).out.decode()
        assert "full" in do("top", "-i", "0.1", numbers).out.decode()
    with jlog.Worker(numbers, "resize") as worker:
        worker.ack(worker.take(5))
        assert "1 work" in do("top", "-i", "0.1", numbers).out.decode()


def test_the_exit_code_finishes_rejects_or_gives_back(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"done", b"unwanted", b"flaky"], keys=[b"k", b"a\0b", None])
    script = f"""
        value=$(cat); echo "$value $JLOG_ATTEMPT ${{JLOG_KEY-none}} ${{JLOG_KEY_BASE64-none}}" >> {tmp_path}/log
        case $value in unwanted) exit 100;; flaky) test "$JLOG_ATTEMPT" = 2 || exit 1;; esac"""
    options = ("--dead-letters", tmp_path / "dead", "--max-attempts", 3, "--until-end")
    found = run("work", journal, "resize", *options, "--", "sh", "-c", script)
    assert (found.code, found.err) == (0, "jlogtool: record 2: sh ended with 1 in attempt 1\n")
    assert (tmp_path / "log").read_text().splitlines() == [
        "done 1 k none",
        "unwanted 1 none YQBi",
        "flaky 1 none none",
        "flaky 2 none none",
    ]
    with jlog.Reader(tmp_path / "dead") as reader:
        assert [(record.value, dict(record.headers)["jlog.work.reason"]) for record in reader] == [
            (b"unwanted", b"sh ended with 100")
        ]


def test_a_command_that_does_not_exist_is_refused(numbers: Path) -> None:
    found = run("work", numbers, "resize", "--", "no-such-command")
    assert found.code == 2
    assert "there is no command 'no-such-command'" in found.err
    assert jlog.Journal(numbers).subscribers() == {}


def test_more_jobs_than_a_worker_has_threads_are_refused_before_it_opens(numbers: Path) -> None:
    found = run("work", numbers, "resize", "-j", "10001", "--", "true")
    assert found.code == 2
    assert "10001 is not in the range 1<=x<=10000" in found.err
    assert jlog.Journal(numbers).subscribers() == {}


def test_dead_letters_are_put_back_once(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"poison", key=b"k", headers=[("own", b"1")])
    work(journal, "exit 100", "--dead-letters", tmp_path / "dead")
    assert do("work-retry", tmp_path / "dead").out == b"1 records\n"
    assert do("work-retry", tmp_path / "dead").out == b"0 records\n"
    with jlog.Reader(journal) as reader:
        first, again = reader
    assert (again.value, again.key, again.headers) == (first.value, first.key, first.headers)
    assert again.timestamp == first.timestamp


def test_dead_letters_are_put_into_the_journal_that_is_named(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"poison")
    work(journal, "exit 100", "--dead-letters", tmp_path / "dead")
    jlog.Journal.create(tmp_path / "other")
    assert do("work-retry", tmp_path / "dead", tmp_path / "other").out == b"1 records\n"
    with jlog.Reader(tmp_path / "other") as reader:
        assert list(reader.values()) == [b"poison"]
    assert len(jlog.Journal(journal)) == 1


def test_records_of_one_key_are_done_one_after_the_other(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"%d" % number for number in range(12)], [b"ab"[number % 2 :][:1] for number in range(12)])
    work(journal, f"cat >> {tmp_path}/$JLOG_KEY; echo >> {tmp_path}/$JLOG_KEY", "-j", 4, "--order", "key")
    assert (tmp_path / "a").read_text().split() == [str(number) for number in range(0, 12, 2)]
    assert (tmp_path / "b").read_text().split() == [str(number) for number in range(1, 12, 2)]


def test_sigterm_lets_the_command_end(numbers: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"test -e {tmp_path}/ended && exit; touch {tmp_path}/begun; cat {tmp_path}/go; touch {tmp_path}/ended"
    with start("work", numbers, "resize", "--", "sh", "-c", script) as tool:
        wait_until((tmp_path / "begun").exists)
        tool.send_signal(signal.SIGTERM)
        (tmp_path / "go").write_text("go")
        assert tool.wait(HUNG_SECONDS) == 0
    assert (tmp_path / "ended").exists()
    assert jlog.Journal(numbers).subscribers()["resize"].sequence >= 1


def lives(path: Path) -> bool:
    """Whether the process that has written its number into the file lives."""
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_commands_of_a_killed_jlogtool_end_before_the_next_one_for_their_key_begins(journal: Path, tmp_path: Path) -> None:
    """Also the process that the command has started in a group of its own, and that does not hear SIGTERM."""
    with jlog.Writer(journal) as writer:
        writer.extend([b"first", b"second"], [b"k", b"k"])
    script = f"""
        echo "begun $$" >> {tmp_path}/log
        test -e {tmp_path}/child && exit
        trap 'echo "told $$" >> {tmp_path}/log; read line < {tmp_path}/go; exit 1' TERM
        timeout 1000 sh -c 'trap "" TERM; echo $$ > {tmp_path}/child; read line < {tmp_path}/go' &
        wait"""
    os.mkfifo(tmp_path / "go")
    options = ("--order", "key", "--", "sh", "-c", script)
    with start("work", journal, "resize", *options) as first:
        wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith("\n"))
        with start("work", journal, "resize", *options) as second:
            first.kill()
            wait_until(lambda: "told" in (tmp_path / "log").read_text())
            assert lives(tmp_path / "child")
            wait_until(lambda: len((tmp_path / "log").read_text().splitlines()) > 2)  # the second jlogtool has begun a command
            assert not lives(tmp_path / "child")
            wait_until(lambda: jlog.Journal(journal).subscribers()["resize"].sequence == 2)
            second.terminate()
            assert second.wait(HUNG_SECONDS) == 0
    said = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [word for word, _ in said] == ["begun", "told", "begun", "begun"]
    assert said[0][1] == said[1][1] != said[2][1]


def test_a_command_deaf_to_sigterm_is_killed_after_its_jlogtool_without_another_one(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"job")
    os.mkfifo(tmp_path / "go")
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; read line < {tmp_path}/go"
    with start("work", journal, "resize", "--", "sh", "-c", script) as tool:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        tool.kill()
        tool.wait(HUNG_SECONDS)
    wait_until(lambda: not lives(tmp_path / "pid"))


def test_a_command_that_takes_longer_than_the_timeout_has_failed(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"slow", b"quick"])
    os.mkfifo(tmp_path / "go")
    script = f'test "$(cat)" = quick || (echo $$ > {tmp_path}/pid; read line < {tmp_path}/go)'
    options = ("--timeout", "1.5", "--max-attempts", 1, "--dead-letters", tmp_path / "dead", "--until-end")
    found = run("work", journal, "resize", *options, "--", "sh", "-c", script)
    assert (found.code, found.err) == (0, "jlogtool: record 0: sh took longer than 1.5 s in attempt 1\n")
    assert not lives(tmp_path / "pid")
    with jlog.Reader(tmp_path / "dead") as reader:
        assert [dict(record.headers)["jlog.work.reason"] for record in reader] == [b"sh took longer than 1.5 s"]


def test_where_the_process_of_the_commands_is_killed_the_records_come_again(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"job")
    script = f"echo $PPID > {tmp_path}/commander; read line < {tmp_path}/go"
    os.mkfifo(tmp_path / "go")
    with start("work", journal, "resize", "--", "sh", "-c", script) as tool:
        wait_until(lambda: (tmp_path / "commander").exists() and (tmp_path / "commander").read_text())
        os.kill(int((tmp_path / "commander").read_text()), signal.SIGKILL)
        assert tool.wait(HUNG_SECONDS) == 1
    work(journal, "exit $((JLOG_ATTEMPT - 1))")


def test_a_retry_that_was_killed_before_its_commit_appends_nothing_twice(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"poison")
    work(journal, "exit 100", "--dead-letters", tmp_path / "dead")
    do("work-retry", tmp_path / "dead")
    do("subscriber", "set", tmp_path / "dead", "work-retry", "begin")
    assert do("work-retry", tmp_path / "dead").out == b"0 records\n"
    assert len(jlog.Journal(journal)) == 2


def test_what_is_taken_delayed_and_failed_is_listed_with_the_reason(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"a", b"b", b"c", b"d"], [b"k", None, b"\xff", None])
    with jlog.Worker(journal, "resize", backoff=(0, 0)) as worker:
        tasks = worker.take(4)
        tasks[1].nack(delay=3600, reason="no such picture: " + "x" * 200)
        tasks[2].nack(reason="too small")
        tasks[3].ack()
        found = do("work-ls", journal, "resize", "--json").json
        assert "no such picture" in do("work-ls", journal, "resize").out.decode()
    assert [row.pop("age") >= 0 for row in found] == [True] * 3
    assert found[1].pop("reason").startswith("no such picture: xxx")
    last = {
        "key": None,
        "key_base64": "/w==",
        "state": "failed",
        "attempt": 1,
        "failures": 1,
        "reason": "too small",
        "pid": None,
    }
    assert found == [
        {"sequence": 0, "key": "k", "state": "taken", "attempt": 1, "failures": 0, "reason": "", "pid": os.getpid()},
        {"sequence": 1, "key": None, "state": "delayed", "attempt": 1, "failures": 1, "pid": None},
        {"sequence": 2, **last},
    ]


def test_a_taken_and_a_delayed_record_are_released_while_their_worker_lives(numbers: Path) -> None:
    with jlog.Worker(numbers, "resize") as worker:
        taken, delayed = worker.take(2)
        delayed.nack(delay=3600)
        for sequence in (0, 1):
            do("work-release", numbers, "resize", sequence)
        with pytest.raises(jlog.LeaseLost):
            taken.ack()
        again = worker.take(2, timeout=0)
        assert [(task.sequence, task.attempt, task.failures) for task in again] == [(0, 2, 0), (1, 2, 1)]
        worker.ack(again)
        found = run("work-release", numbers, "resize", 1)
        assert (found.code, "record 1 is finished" in found.err) == (1, True)


def test_a_record_is_rejected_while_its_worker_lives(numbers: Path, tmp_path: Path) -> None:
    with jlog.Worker(numbers, "resize", dead_letters=tmp_path / "dead") as worker:
        task = worker.take(1)[0]
        do("work-reject", numbers, "resize", 0, "--reason", "it eats memory")
        with pytest.raises(jlog.LeaseLost):
            task.ack()
        assert worker.committed == 1
        assert worker.take(1, timeout=0)[0].sequence == 1
    with jlog.Reader(tmp_path / "dead") as reader:
        assert [(letter.value, dict(letter.headers)["jlog.work.reason"]) for letter in reader] == [(b"0", b"it eats memory")]


def test_a_record_that_waits_for_its_key_and_a_reader_s_subscriber_are_left_alone(journal: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b"a", b"b", b"c"], [b"k", b"k", None])
    jlog.Journal(journal).add_subscriber("billing")
    with jlog.Worker(journal, "resize", order="key") as worker:
        worker.take(3)
        found = run("work-reject", journal, "resize", 1)
        assert (found.code, "record 1 waits for an earlier one of its key" in found.err) == (1, True)
    found = run("work-release", journal, "billing", 0)
    assert (found.code, "no workers have shared subscriber 'billing'" in found.err) == (1, True)


def test_a_record_whose_command_still_runs_elsewhere_keeps_nothing_waiting_and_does_not_fail(
    journal: Path, tmp_path: Path
) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"long")
    os.mkfifo(tmp_path / "go")
    script = f'echo $JLOG_SEQUENCE >> {tmp_path}/log; test "$(cat)" = short || read line < {tmp_path}/go'
    with start("work", journal, "resize", "--", "sh", "-c", script) as first:
        wait_until((tmp_path / "log").exists)
        with start("work", journal, "resize", "--lease", 600, "--", "sh", "-c", script) as second:
            wait_until(lambda: len(do("subscriber", "ls", journal, "--json").json[0]["workers"]) == 2)
            do("work-release", journal, "resize", 0)
            wait_until(lambda: second.pid in [row["pid"] for row in do("work-ls", journal, "resize", "--json").json])
            with jlog.Writer(journal) as writer:
                writer.append(b"short")
            wait_until(lambda: (tmp_path / "log").read_text().splitlines() == ["0", "1"])
            second.terminate()
            assert second.wait(HUNG_SECONDS) == 0
        with jlog.Worker(journal, "resize") as worker:
            task = worker.take(1)[0]
            assert (task.sequence, task.failures) == (0, 0)
            (tmp_path / "go").write_text("go")
            first.terminate()
            assert first.wait(HUNG_SECONDS) == 0
    assert (tmp_path / "log").read_text().splitlines() == ["0", "1"]


def test_a_command_that_ends_after_its_record_was_taken_from_it_is_a_warning(journal: Path, tmp_path: Path) -> None:
    with jlog.Writer(journal) as writer:
        writer.append(b"job")
    os.mkfifo(tmp_path / "go")
    with start("work", journal, "resize", "--", "sh", "-c", f"touch {tmp_path}/begun; cat {tmp_path}/go") as tool:
        wait_until((tmp_path / "begun").exists)
        assert run("work-reject", journal, "resize", 0).code == 0
        (tmp_path / "go").write_text("go")
        tool.terminate()
        said = tool.communicate(timeout=HUNG_SECONDS)[1].decode()
    assert (tool.returncode, said.count("\n")) == (0, 1), said
    assert "were handed out again, or finished" in said


def start_with_descriptors(limit: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_records_wait_and_do_not_fail_where_jlogtool_may_open_no_more_files(numbers: Path, tmp_path: Path) -> None:
    script = f"echo >> {tmp_path}/log; until test -e {tmp_path}/go; do sleep 0.05; done"
    options = ("-j", 20, "--max-attempts", 1, "--dead-letters", tmp_path / "dead", "--until-end")
    with start_with_descriptors("-n 40", "work", numbers, "resize", *options, "--", "sh", "-c", script) as tool:
        assert tool.stderr is not None
        assert "Too many open files" in tool.stderr.readline().decode()
        (tmp_path / "go").touch()
        assert tool.wait(HUNG_SECONDS) == 0
        assert tool.stderr.read() == b""
    assert len((tmp_path / "log").read_text()) == 100
    assert not (tmp_path / "dead").exists()


def test_jlogtool_opens_as_many_files_as_it_may_and_its_commands_have_the_limit_of_before(
    numbers: Path, tmp_path: Path
) -> None:
    script = f"ulimit -n >> {tmp_path}/log; until test -e {tmp_path}/go; do sleep 0.05; done"
    with start_with_descriptors("-S -n 40", "work", numbers, "resize", "-j", 20, "--", "sh", "-c", script) as tool:
        wait_until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text() == "40\n" * 20)
        tool.terminate()
        (tmp_path / "go").touch()
        assert tool.wait(HUNG_SECONDS) == 0


@pytest.mark.damage
def test_a_damaged_record_is_listed_without_its_key_and_stays_where_it_is(journal: Path) -> None:
    with jlog.Writer(journal, precommit=0, compression=None) as writer:
        for number in range(3):
            writer.append(b"value %d" % number, key=b"k")
    with jlog.Worker(journal, "resize") as worker:
        tasks = worker.take(3)
        segment = Path(jlog.Journal(journal).segments()[0].path)
        invert(segment, segment.read_bytes().index(b"value 1"))
        listed = run("work-ls", journal, "resize", "--json")
        assert (listed.code, listed.err.count("\n")) == (3, 1)
        assert "damaged at byte" in listed.err
        assert [(row["sequence"], row["key"], row["age"] is None) for row in listed.json] == [
            (0, "k", False),
            (1, None, True),
            (2, "k", False),
        ]
        assert run("work-reject", journal, "resize", 1).code == 3
        tasks[1].ack()


def test_a_record_stays_with_its_worker_where_no_dead_letter_can_be_written(numbers: Path, tmp_path: Path) -> None:
    with jlog.Worker(numbers, "resize", dead_letters=tmp_path / "dead") as worker:
        task = worker.take(1)[0]
        (tmp_path / "dead").touch()
        found = run("work-reject", numbers, "resize", 0)
        assert (found.code, "dead is a file" in found.err) == (1, True)
        task.ack()

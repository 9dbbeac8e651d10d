"""Records histories of eight processes on one journal, and has Porcupine judge them (tools/histories/main.go, which needs Go).

    python tools/histories.py --count 1000 --seed 1

The processes append, extend, read, take, finish and give back. Meanwhile they are stopped, continued and killed at random
moments, and at named points of the core where it has been compiled with them. Each call's begin and end are times of
CLOCK_MONOTONIC, which is one clock for all processes. Status 1 if a history has no explanation; it is then kept, and its path
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jlog

FOLDER = Path(__file__).resolve().parent / "histories"
PROCESSES = 8
CALLS = 14  # of each process
NAME = "crew"
POINTS = (
    *("append.encoded", "append.published", "rotate.before", "rotate.filled", "rotate.turned", "rotate.emptied"),
    *("window.passing", "window.passed", "window.finishing", "window.finished", "window.returning"),
)
Call = dict[str, Any]


# --- In a process ----------------------------------------------------------------------------------------------------


class Recorder:
    """Writes what a client calls, and what comes of it, into a file that outlives it."""

    def __init__(self, path: Path, client: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._client = client

    def note(self, kind: str, values: list[str], first: int = -1, **times: int | None) -> None:
        told = {"client": self._client, "kind": kind, "values": values, "first": first, **times}
        os.write(self._fd, json.dumps(told).encode() + b"\n")

    def begin(self, kind: str, values: list[str]) -> int:
        now = time.monotonic_ns()
        self.note(kind, values, call=now)
        return now

    def end(self, kind: str, values: list[str], began: int, first: int = -1) -> None:
        self.note(kind, values, first, call=began, **{"return": time.monotonic_ns()})


def live(path: Path, log: Path, client: int, seed: int) -> None:
    """One process's life."""
    chance = random.Random(seed)
    recorder = Recorder(log, client)
    if chance.random() < 0.5:
        action = chance.choice(("kill", "stop"))
        os.environ["JLOG_FAILPOINTS"] = f"{chance.choice(POINTS)}={action}@{chance.randint(1, 6)}"
    tasks: list[jlog.Task] = []
    with jlog.Writer(path) as writer, jlog.Worker(path, NAME, backoff=(0, 0)) as worker:
        for number in range(CALLS):
            kind = chance.choice(("append", "extend", "read", "take", "take", "finish", "finish", "release"))
            if kind in ("append", "extend"):
                values = [f"{client}.{number}.{i};" for i in range(1 if kind == "append" else chance.randint(2, 4))]
                began = recorder.begin("append", values)
                if kind == "append":
                    first = writer.append(values[0].encode())
                else:
                    first = writer.extend([value.encode() for value in values])
                recorder.end("append", values, began, first)
            elif kind == "read":
                began = time.monotonic_ns()
                with jlog.Reader(path) as reader:
                    values = [value.decode() for value in reader.values()]
                recorder.end("read", values, began)
            elif kind == "take":
                began = time.monotonic_ns()
                taken = worker.take(chance.randint(1, 3), timeout=0)
                if taken:
                    recorder.end("take", [task.value.decode() for task in taken], began)
                tasks += taken
            elif tasks:
                task = tasks.pop(chance.randrange(len(tasks)))
                values = [task.value.decode()]
                end = "ack" if kind == "finish" else "release"
                began = recorder.begin(end, values)
                if end == "ack":
                    task.ack()
                elif chance.random() < 0.5:
                    task.nack()
                else:
                    task.release()
                recorder.end(end, values, began)
        began = recorder.begin("leave", [task.value.decode() for task in tasks])
        worker.close()
        recorder.end("leave", [task.value.decode() for task in tasks], began)


def start(path: Path, log: Path, client: int, seed: int, gate: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.read(gate, 1)  # all begin at once
            live(path, log, client, seed)
        except BaseException as error:  # noqa: BLE001
            print(f"client {client}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


# --- The history -----------------------------------------------------------------------------------------------------


class Broken(Exception):
    """A call has raised what it may not raise."""


def record(seed: int) -> list[Call]:
    """Lets eight processes live on a new journal, and returns all calls, in no order."""
    chance = random.Random(seed)
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="jlog-histories-", dir=base) as folder:
        path = Path(folder) / "journal"
        jlog.Journal.create(path, precommit=4096, segment_bytes=8192, retention=jlog.Retention(delete_read=False))
        jlog.Journal(path).add_subscriber(NAME)
        logs = [Path(folder) / f"log.{client}" for client in range(PROCESSES)]
        gate, opens = os.pipe()
        living = {start(path, log, client, chance.getrandbits(32), gate): client for client, log in enumerate(logs)}
        os.write(opens, b"!" * PROCESSES)
        os.close(gate)
        os.close(opens)
        gone = disturb(living, chance)
        calls = [call for client, log in enumerate(logs) for call in calls_of(client, log, gone.get(client))]
        return [*calls, *ending(path)]


def disturb(living: dict[int, int], chance: random.Random) -> dict[int, int]:
    """Stops, continues and kills processes until all have ended. Returns when each that was killed was gone."""
    gone: dict[int, int] = {}
    while living:
        for pid in list(living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                client = living.pop(pid)
                if os.WIFSIGNALED(status):
                    gone[client] = time.monotonic_ns()
                elif status != 0:
                    raise Broken(f"client {client} has ended with status {status}")
        if living:
            numbers = (signal.SIGSTOP, signal.SIGCONT, signal.SIGCONT, signal.SIGCONT, signal.SIGKILL, 0, 0, 0)
            os.kill(chance.choice(list(living)), chance.choice(numbers))
            time.sleep(chance.random() * 0.004)
    return gone


def calls_of(client: int, log: Path, gone: int | None) -> Iterator[Call]:
    """Yields the calls of a client. A call without an end was cut off by its death, which was before `gone`."""
    open_call, last = None, 0
    taken: set[str] = set()
    for line in log.read_text().splitlines() if log.exists() else []:
        call = json.loads(line)
        last = max(call["call"], call.get("return", 0))
        if "return" in call:
            open_call = None
            taken.update(call["values"] if call["kind"] == "take" else ())
            yield call
        else:
            open_call = call
    if open_call is not None:
        kind = {"ack": "maybe-ack", "release": "leave"}.get(open_call["kind"], open_call["kind"])
        yield {**open_call, "kind": kind, "return": None}
    if gone is not None and taken:
        yield call_of(client, "leave", sorted(taken), last, gone)


def call_of(client: int, kind: str, values: list[str], began: int, ended: int) -> Call:
    return {"client": client, "kind": kind, "values": values, "first": -1, "call": began, "return": ended}


def ending(path: Path) -> Iterator[Call]:
    """Reads all, and finishes what is left."""
    client = PROCESSES
    began = time.monotonic_ns()
    with jlog.Reader(path) as reader:
        values = [value.decode() for value in reader.values()]
    yield call_of(client, "read", values, began, time.monotonic_ns())
    with jlog.Worker(path, NAME) as worker:
        for task in worker.tasks(timeout=0.2):
            value = [task.value.decode()]
            for kind in ("take", "ack"):
                began = time.monotonic_ns()
                if kind == "ack":
                    task.ack()
                yield {
                    "client": client,
                    "kind": kind,
                    "values": value,
                    "first": -1,
                    "call": began,
                    "return": time.monotonic_ns(),
                }
    began = time.monotonic_ns()
    yield call_of(client, "end", values, began, began + 1)


def histories_of(calls: list[Call]) -> dict[str, list[Call]]:
    """Returns the two histories: of the journal, and of the worker."""
    return {
        "log": [call for call in calls if call["kind"] in ("append", "read")],
        "work": [call for call in calls if call["kind"] != "read"],
    }


# --- The judge -------------------------------------------------------------------------------------------------------


def build() -> Path:
    """Compiles the judge, into build/."""
    target = FOLDER.parent.parent / "build" / "histories"
    subprocess.run(["go", "build", "-o", target, "."], cwd=FOLDER, check=True)
    return target


def judge(program: Path, histories: list[tuple[str, list[Call]]]) -> list[str]:
    told = "".join(json.dumps({"model": model, "calls": calls}) + "\n" for model, calls in histories)
    return subprocess.run([program], input=told, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def planted(calls: list[Call]) -> dict[str, tuple[str, list[Call]]]:
    """Returns the history with mistakes, each of which has to be found."""
    histories = histories_of(calls)
    last_read = max((call for call in histories["log"] if call["kind"] == "read"), key=lambda call: call["call"])
    known = [value for call in histories["log"] if call["kind"] == "append" and call["return"] for value in call["values"]]
    lost = {**last_read, "values": [value for value in last_read["values"] if value != known[-1]]}
    ack = next(call for call in histories["work"] if call["kind"] == "ack" and call["return"])
    take = max(  # the one that the ack ends
        (call for call in histories["work"] if call["kind"] == "take" and set(ack["values"]) <= set(call["values"])),
        key=lambda call: (call["return"] <= ack["call"], call["return"]),
    )
    other = call_of(99, "take", ack["values"], take["return"] + 1, take["return"] + 2)
    again = call_of(99, "take", ack["values"], ack["return"] + 1, ack["return"] + 2)
    return {
        "a lost append": ("log", [lost if call is last_read else call for call in histories["log"]]),
        "a record with two owners": ("work", [*histories["work"], other]),
        "a finished record that comes again": ("work", [*histories["work"], again]),
    }


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="histories of each kind: %(default)s")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many seconds: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of all random decisions: %(default)s")
    arguments = parser.parse_args()
    if shutil.which("go") is None:
        print("the judge needs Go: https://go.dev/dl", file=sys.stderr)
        return 2
    program = build()
    began = time.monotonic()
    counts = {"calls": 0, "cut off": 0}
    tested, number = False, 0
    while number < arguments.count and (number == 0 or time.monotonic() - began < arguments.seconds):
        seed = arguments.seed * 1_000_003 + number
        calls = record(seed)
        counts["calls"] += len(calls)
        counts["cut off"] += sum(call["return"] is None for call in calls)
        judged = judge(program, list(histories_of(calls).items()))
        if not tested and any(call["kind"] == "ack" and call["return"] for call in calls[:-1]):
            tested = True
            mistakes = planted(calls)
            for mistake, verdict in zip(mistakes, judge(program, list(mistakes.values())), strict=True):
                if verdict != "Illegal":
                    print(f"the judge does not find {mistake}: {verdict}", file=sys.stderr)
                    return 1
        if judged != ["Ok", "Ok"]:
            kept = Path(tempfile.mkdtemp(prefix="jlog-history-")) / "calls.json"
            kept.write_text(json.dumps(calls, indent=1))
            print(f"history {number} of seed {arguments.seed}: {judged}, kept in {kept}", file=sys.stderr)
            return 1
        number += 1
    print(
        f"{number} histories of the journal and of its workers, {counts['calls']} calls, "
        f"{counts['cut off']} cut off by a kill, in {time.monotonic() - began:.0f} s: each has an explanation"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A child: plays the role that its specification describes, until it is told to end or dies.

Its standard input takes the lines `pause`, `go`, `arm FAILPOINTS` and `end`. The child answers each with a line.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

from faults import shim
from torture.gate import Gate
from torture.keeper import keep
from torture.log import Log
from torture.mirror import mirror
from torture.mover import move
from torture.producer import Producer
from torture.subscriber import subscribe
from torture.worker import Crew

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def figures() -> dict[str, int]:
    """Returns the figures that must not grow, once no thread archives."""
    for thread in threading.enumerate():
        if thread.name == "jlog-archive":
            thread.join()
    with open("/proc/self/maps") as file:
        mappings = sum(1 for line in file if "precommit" in line)
    return {"descriptors": len(os.listdir("/proc/self/fd")), "mappings": mappings}


def threads_of(spec: dict[str, Any], gate: Gate) -> list[Callable[[], None]]:
    if spec["role"] == "producer":
        producer = Producer(spec, gate)
        return [
            lambda name=name: producer.run(name, Log(f"{spec['logs']}/{name}.acks"))  # type: ignore[misc]
            for name in spec["writers"]
        ]
    log = Log(f"{spec['logs']}/{spec['name']}.seen")
    if spec["role"] == "worker":
        crew = Crew(spec, gate, log)
        return [lambda thread=thread: crew.run(thread) for thread in range(spec["threads"])]  # type: ignore[misc]
    play = {"keeper": keep, "mirror": mirror, "mover": move, "subscriber": subscribe}[spec["role"]]
    return [lambda: play(spec, gate, log)]


def guarded(run: Callable[[], None], gate: Gate | None) -> None:
    """Ends the child at an error that a thread does not expect. SystemExit is one too: it would end the thread without a
    report, and the gate would wait for that thread."""
    try:
        run()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    if gate is not None:
        gate.left()


def play(spec: dict[str, Any]) -> None:
    """Obeys commands until the child is told to end. The first answer says that it has begun."""
    sys.setswitchinterval(spec["switch_seconds"])
    gate = Gate(spec["threads"])
    runs = threads_of(spec, gate)
    assert len(runs) == spec["threads"]
    if spec["raising"]:  # a signal's handler runs in the main thread: this is the one that works
        listener = threading.Thread(target=guarded, args=(lambda: obey(gate), None), daemon=True)
        listener.start()
        guarded(runs[0], gate)
        listener.join()
        return
    for run in runs:
        threading.Thread(target=guarded, args=(run, gate), daemon=True).start()
    obey(gate)


def obey(gate: Gate) -> None:
    if shim.loaded():
        shim.spare_thread()
    os.write(1, b"null\n")
    for line in open(0, closefd=False):  # noqa: SIM115 - a standard input of its own
        word, _, rest = line.strip().partition(" ")
        answer: object = None
        if word == "arm":
            os.environ["JLOG_FAILPOINTS"] = rest
        elif word == "pause":
            gate.shut()
            answer = figures()
        elif word == "go":
            gate.open()
        elif word == "end":
            gate.end()
            gate.wait_for_all()
            os.write(1, b"null\n")
            return
        os.write(1, json.dumps(answer).encode() + b"\n")


def begin(spec: dict[str, Any], standard: tuple[int, int, int], parents: set[int]) -> NoReturn:
    """Runs in a process that was just forked.

    parents: the parent's ends of pipes. Other descriptors may belong to objects that are not collected yet, and the objects
    will close them. Every exception here, also KeyboardInterrupt and SystemExit, is reported and ends the process: it must not
    reach the parent's code that called this.
    """
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
        for fd in {*standard, *parents}:
            os.close(fd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ["JLOG_FAILPOINTS"] = spec["failpoints"]
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        play(spec)
        os._exit(0)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)

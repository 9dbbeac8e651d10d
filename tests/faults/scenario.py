"""Recorded runs of writing and reading processes: what they do follows from a seed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from faults import shim
from faults.recording import Event, read_log

OPTIONS: dict[str, Any] = {"precommit": 4 << 10, "segment_bytes": 8 << 10}
DEADLY = (
    "append.encoded", "append.published", "close.before_write", "close.written", "close.deferred", "close.intent",
    "rotate.before", "rotate.emptied", "rotate.filled", "rotate.turned", "direct.written", "roll.completed", "roll.renamed",
    "file.allocate", "file.write", "file.write_block", "file.sync", "file.sync_directory", "file.rename", "file.unlink",
    "file.open", "sync.begun", "sync.done", "sync.told", "compress.copied", "replace.intent", "replace.renamed",
    "replace.rotated", "takeover.taken", "takeover.derived", "takeover.unlinked",
)  # fmt: skip


class Died(Exception):
    """The actor was killed at a failpoint."""


class Stage:
    """The actors of a run: up to three, of which those that died are replaced."""

    def __init__(self, root: Path, log: Path, seed: int, boot: str) -> None:
        self.root = root
        self.dice = random.Random(seed)
        self.number = 0
        self.actors: list[subprocess.Popen[bytes]] = []
        self.log = log
        self.environment = {"JLOG_SHIM_BELOW": str(root), "JLOG_SHIM_LOG": str(log)}
        self.errors: list[str] = []
        if boot == "absent":
            self.environment["JLOG_SHIM_NO_BOOT_ID"] = "1"

    def enter(self, options: dict[str, Any]) -> subprocess.Popen[bytes]:
        self.number += 1
        command = [sys.executable, "-m", "faults.actor", f"w{self.number}", str(self.root / "j")]
        environment = shim.environment(**self.environment)
        actor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0)
        self.actors.append(actor)
        self.tell(actor, "open", options)
        return actor

    def start(self, actor: subprocess.Popen[bytes], *call: Any) -> None:
        assert actor.stdin is not None
        with suppress(BrokenPipeError):  # its own threads may have met the failpoint: result() finds it dead
            actor.stdin.write(json.dumps(call).encode() + b"\n")

    def result(self, actor: subprocess.Popen[bytes]) -> None:
        assert actor.stdout is not None
        line = actor.stdout.readline()
        if not line:
            self.actors.remove(actor)
            self._end(actor)
            assert actor.returncode == -signal.SIGKILL, f"an actor ended with {actor.returncode}"
            raise Died
        complaint = json.loads(line)
        if complaint is not None:
            self.errors.append(complaint)

    def tell(self, actor: subprocess.Popen[bytes], *call: Any) -> None:
        self.start(actor, *call)
        self.result(actor)

    def _end(self, actor: subprocess.Popen[bytes], *, kill: bool = False) -> None:
        if kill:
            actor.kill()
        assert actor.stdin is not None
        assert actor.stdout is not None
        actor.stdin.close()
        actor.stdout.close()
        actor.wait()

    def end(self) -> None:
        for actor in self.actors:
            self._end(actor, kill=True)

    # --- One step after the other ------------------------------------------------------------------------------

    def choose(self) -> list[Any]:
        dice = self.dice
        call: list[list[Any]] = [
            ["append", dice.choice((10, 60, 400))], ["append", 60], ["append", 1500],
            ["extend", dice.randint(1, 20), dice.choice((20, 100)), False], ["extend", 2, 60, True],
            ["extend", 3, 2500, dice.random() < 0.3], ["store", dice.choice((10, 300))],
            ["flush"], ["sync"], ["sync"], ["roll"], ["read"], ["commit", False, 30], ["commit", True, 50], ["checkpoint"],
            ["leave"], ["clean"], ["ingest", 60],
        ]  # fmt: skip
        return dice.choice(call)

    def step(self, options: dict[str, Any]) -> None:
        dice = self.dice
        try:
            if not self.actors or (len(self.actors) < 3 and dice.random() < 0.08):
                self.enter(dice.choice(({}, {"precommit": 0}, options)))
            actor = dice.choice(self.actors)
            turn = dice.random()
            if turn < 0.04:
                self.actors.remove(actor)
                self._end(actor, kill=True)
            elif turn < 0.08:
                self.tell(actor, "close")
                self.tell(actor, "open", {})
            elif turn < 0.16:
                self.tell(actor, "arm", f"{dice.choice(DEADLY)}=kill@1")
            elif turn < 0.4 and len(self.actors) > 1:
                self._together(dice.sample(self.actors, 2))
            else:
                self.tell(actor, *self.choose())
        except Died:
            return

    def _together(self, actors: list[subprocess.Popen[bytes]]) -> None:
        calls = [self.choose() for _ in actors]
        for actor, call in zip(actors, calls, strict=True):
            self.start(actor, *call)
        dead = 0
        for actor in actors:
            try:
                self.result(actor)
            except Died:
                dead += 1
        if dead:
            raise Died


def record(folder: Path, seed: int, steps: int, boot: str) -> list[Event]:
    """Records what happens on the disk below `folder`/root. Its log stays in `folder`."""
    root, log = folder / "root", folder / "log"
    root.mkdir(parents=True)
    dice = random.Random(seed)
    options = {
        **OPTIONS,
        "sync": dice.choice(("none", "none", "interval", "append")),
        "compression": dice.choice(("none", "none", "lz4")),
        "precommit": dice.choice((4 << 10, 4 << 10, 0)),
    }
    stage = Stage(root, log, seed, boot)
    try:
        stage.enter(options)
        for _ in range(steps):
            stage.step(options)
        if stage.actors:
            stage.tell(stage.actors[0], "read")
            stage.tell(stage.actors[0], "close")
    except Died:
        pass
    finally:
        stage.end()
    (folder / "errors").write_text("\n".join(stage.errors))
    return read_log(log, root)

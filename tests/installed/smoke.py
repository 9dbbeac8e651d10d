"""Runs every command of an installed `jlogtool` once, with the base package alone. Needs nothing else: `python smoke.py`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TOOL = Path(sys.executable).with_name("jlogtool")
TOPIC = "kafka://127.0.0.1:1/topic"

# What is typed, the exit code, and a part of the output. The lines follow each other on one journal.
STEPS = """
create orders                               | 0 |
append orders lines                         | 0 |
info orders                                 | 0 | records
ls .                                        | 0 | orders
options orders                              | 0 | segment_bytes
subscriber add orders billing               | 0 |
subscriber ls orders                        | 0 | billing
subscriber set orders billing 1             | 0 |
subscriber copy orders billing search       | 0 |
subscriber rm orders search                 | 0 |
checkpoint set orders before 1              | 0 |
checkpoint ls orders                        | 0 | before
read orders billing                         | 0 | third
rewind orders billing before                | 0 |
checkpoint rm orders before                 | 0 |
dump orders --format jsonl                  | 0 | "value": "second"
tail orders                                 | 0 | third
roll orders                                 | 0 |
verify orders                               | 0 |
clean orders                                | 0 | first record
work orders jobs --until-end -- python -c "print(input())" | 0 | second
work orders dying --until-end --max-attempts 1 --dead-letters dead -- python -c "raise SystemExit(1)" | 0 | python ended with 1
work-retry dead orders                      | 0 | 3
work-ls orders jobs                         | 0 |
work-release orders jobs 0                  | 1 | work-ls
work-reject orders jobs 0                   | 1 | work-ls
stats orders                                | 0 | billing
top --interval 0.1 orders                   | 0 | orders
backup orders copy                          | 0 |
repair copy                                 | 0 |
export orders old                           | 0 |
import old new                              | 0 |
rm --yes new                                | 0 |
bench --records 100 --rounds 1 --only append| 0 | append
doctor nowhere                              | 1 | does not exist
completion bash                             | 0 | _JLOGTOOL_COMPLETE
demo lines                                  | 0 | every acknowledged line reached

# An extra that is not installed is named, with the command that installs it.
archive orders                              | 1 | has no archive
create --archive file:///archive archived   | 1 | pyjlog[archive]
restore file:///archive restored            | 1 | pyjlog[archive]
metrics orders                              | 1 | pyjlog[metrics]
console orders                              | 1 | pyjlog[console]
mirror run mirrors.toml                     | 1 | pyjlog[kafka]
mirror to-kafka orders TOPIC                | 1 | pyjlog[kafka]
mirror from-kafka TOPIC captured            | 1 | pyjlog[kafka]
mirror standby TOPIC captured               | 1 | pyjlog[kafka]
mirror promote TOPIC captured               | 1 | pyjlog[kafka]
mirror status orders TOPIC                  | 1 | pyjlog[kafka]
mirror verify orders TOPIC                  | 1 | pyjlog[kafka]
mirror positions ls orders TOPIC            | 1 | pyjlog[kafka]
mirror positions set orders TOPIC begin     | 1 | pyjlog[kafka]
transform --transform os:stat TOPIC orders  | 1 | pyjlog[kafka]
pipeline orders lake                        | 1 | pyjlog[spark]
sql "FROM o" o=orders                       | 1 | pyjlog[sql]
"""


def steps() -> Iterator[tuple[str, int, str]]:
    for line in STEPS.splitlines():
        if "|" in line:
            command, code, text = (part.strip() for part in line.split("|"))
            yield command.replace("TOPIC", TOPIC), int(code), text


def run(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [TOOL, *shlex.split(command)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "200"},
        text=True,
    )
    return done.returncode, done.stdout


def main() -> None:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "lines").write_text("first\nsecond\nthird\n")
        Path(folder, "mirrors.toml").write_text(f'[[to-kafka]]\njournals = "orders"\nurl = "{TOPIC}"\n')
        for command, code, text in steps():
            found, output = run(command, Path(folder))
            if found != code or text not in output or "Traceback" in output:
                wrong += 1
                sys.stdout.write(f"jlogtool {command}: exit code {found} instead of {code}, or without {text!r}:\n{output}\n")
    sys.exit(f"{wrong} commands went wrong" if wrong else 0)


if __name__ == "__main__":
    main()

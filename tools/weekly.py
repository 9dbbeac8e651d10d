"""Programs that look for mistakes for as long as they are given. .github/workflows/weekly.yml runs each for an hour every week.

    make weekly                                           each for an hour, one after another
    make weekly ARGS='power-loss --seconds 600 --seed 7'  only this one

Status 1 if one has found something. It prints the command that finds it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    # Hostile bytes for the decoders of the core, under the sanitizers.
    "headers": "make fuzz ARGS='--seconds {seconds} --seed {seed}'",
    # Whole journals with changed files.
    "journals": "{python} tools/fuzz/journals.py --seconds {seconds} --seed {seed}",
    # The publish protocol with real threads, under ThreadSanitizer.
    "publish": "mkdir -p build && ${{CC:-cc}} -g -O1 -fsanitize=thread -Wno-tsan -Ipyx tools/tsan/publish.c -lpthread"
    " -o build/publish && build/publish {seconds}",
    # The tests, under the address and undefined-behaviour sanitizers. They take the time that they take.
    "sanitizers": "make test-sanitized",
    # Every state of the models of the protocol between processes.
    "model": "{python} tools/model/check.py --seconds {seconds}",
    # A power loss at every moment of recorded runs, also with a boot id that cannot be read.
    "power-loss": "{python} -m faults.replay --full --seconds {seconds} --seed {seed}000",
    "power-loss-without-boot-id": "{python} -m faults.replay --full --seconds {seconds} --seed {seed}000 --boot absent",
    # Every system call below every public call fails.
    "calls": "{python} -m faults.calls --full --seconds {seconds} --seed {seed}",
    # An exception of a signal's handler at every moment of every public call, and every allocation that fails.
    "moments": "{python} -m faults.calls --full --kind moment --seconds {seconds} --seed {seed}",
    "memory": "{python} -m faults.calls --full --kind memory --seconds {seconds} --seed {seed}",
    # Everything at once, with kills, stops and failing system calls, compared with the acknowledged records.
    "torture": "{python} tools/torture.py --minutes {minutes} --seed {seed}",
    # The same for mirrors, captures and transforms on three brokers.
    "kafka-torture": "{python} tools/kafka_torture.py --minutes {minutes} --seed {seed}",
    "kafka-torture-secured": "{python} tools/kafka_torture.py --secured --minutes {minutes} --seed {seed}",
    # Histories of the journal and of its workers, which another checker judges. It needs Go.
    "histories": "{python} tools/histories.py --count 1000 --seconds {seconds} --seed {seed}",
    # The tests of Celery and kombu, with jlog:// as the broker. They take the time that they take.
    "brokers": "{python} tools/broker_suites.py",
    # The tests of each extra, with the oldest versions that it allows. They take the time that they take.
    "oldest": "{python} tools/oldest.py",
    # The types that a user's checker sees.
    "types": "{python} tools/check_types.py",
    # Every test there is.
    "tests": "make test-all",
}


def command_of(program: str, seconds: float, seed: int) -> str:
    return PROGRAMS[program].format(python=sys.executable, seconds=f"{seconds:g}", minutes=f"{seconds / 60:g}", seed=seed)


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="*", choices=[*PROGRAMS, []], metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--seconds", type=float, default=3600, help="for each: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of what is decided at random: %(default)s")
    arguments = parser.parse_args()
    failed = []
    for program in arguments.program or PROGRAMS:
        command = command_of(program, arguments.seconds, arguments.seed)
        print(f"{program}: {command}", flush=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        if subprocess.run(command, shell=True, cwd=ROOT, env=environment, check=False).returncode != 0:
            failed.append(program)
    for program in failed:
        print(f"failed: make weekly ARGS='{program} --seconds {arguments.seconds:g} --seed {arguments.seed}'", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the models: every scenario must hold, and every known mistake must be caught.

    python check.py            all of them, 9 minutes of a core
    python check.py --quick    those that take a second or two each
    python check.py --seconds 600   those that begin within this time
    python check.py WORDS...   only what has one of these words in its name, and the traces

The exit status is 1 if a scenario does not hold, or a mistake is not caught.
"""

import argparse
import math
import sys
import time

import cleaning
import derived
import failing
import forking
import full
import ingesting
import living
import recovery
import replacing
import reservations
import scenarios
import waiting
import working
from explore import explore

MODELS = (
    scenarios,
    reservations,
    recovery,
    replacing,
    cleaning,
    ingesting,
    derived,
    full,
    failing,
    living,
    forking,
    waiting,
    working,
)
SCENARIOS = [scenario for model in MODELS for scenario in model.SCENARIOS]
MISTAKES = [mistake for model in MODELS for mistake in model.MISTAKES]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf)
    arguments = parser.parse_args()
    words, began, failed = arguments.words, time.monotonic(), False
    for model in SCENARIOS + MISTAKES:
        name = model.wrong or model.name
        if (arguments.quick and not model.quick) or (words and not any(word in name for word in words)):
            continue
        if time.monotonic() >= began + arguments.seconds:
            break
        result = explore(model)
        expected = bool(result.violation) == bool(model.wrong)
        failed |= not expected
        verdict = "ok  " if expected else "FAIL"
        print(f"{verdict} {result.states:9,} states {result.seconds:6.1f} s  {name}", flush=True)
        if result.violation:
            print(f"     {result.violation}", flush=True)
            if words or not expected:
                print("".join(f"       {step}\n" for step in result.trace if step), end="", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

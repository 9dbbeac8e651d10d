"""Checks that a user's type checker knows the types of what jlog exports: pyright says for how much of it.

It installs pyright below build/pyright. The test environment has the packages that jlog's types come from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "pyright"
PYRIGHT = FOLDER / "bin" / "pyright"
LEAST = 0.98


def install() -> None:
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    subprocess.run(
        [str(FOLDER / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "pyright[nodejs]"],
        check=True,
    )


def main() -> int:
    if not PYRIGHT.exists():
        install()
    # pyright looks for packages where the first `python` of PATH does.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(PYRIGHT), "--verifytypes", "jlog", "--ignoreexternal", "--outputjson"],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=False,  # its status is 1 below 100 %
    )
    report = json.loads(done.stdout)["typeCompleteness"]
    for symbol in report["symbols"]:
        if symbol["isExported"] and (symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"]):
            # Without a message it is known as soon as the symbols are that it is made of.
            print(symbol["name"], *(fault["message"] for fault in symbol["diagnostics"]), sep="\n    ")
    score = report["completenessScore"]
    print(f"{score:.2%} of what jlog exports has a known type; at least {LEAST:.0%} must have")
    return 0 if score >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())

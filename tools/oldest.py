"""Runs the tests of each extra with the oldest versions that pyproject.toml allows, each in an environment below build/oldest.

    python tools/oldest.py [EXTRA …]

What an extra's tests need besides comes from the environment that runs this, in its newest version.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from requirements import PROJECT, requirements, tomllib

ROOT = PROJECT.parent
FOLDER = ROOT / "build" / "oldest"
SQL = ("tests/behaviour/test_scan.py", "tests/behaviour/test_time_ranges.py", "tests/behaviour/test_arrow_capsules.py")
COMPRESSION = "tests/behaviour/test_compression.py"
TESTS = {
    "base": (*(f"tests/cli/test_{name}.py" for name in ("append", "command", "dump", "read", "stats", "top")), COMPRESSION),
    "archive": ("tests/behaviour/test_archive.py", "tests/processes/test_archive.py", "-k", "not s3 and not bucket"),
    "arrow": (
        *SQL[:2],
        "tests/behaviour/test_arrow.py",
        "tests/behaviour/test_extend_arrow.py",
        "tests/behaviour/test_ingest.py",
    ),
    "celery": ("tests/brokers/test_celery.py", "tests/brokers/test_kombu.py"),
    "console": ("tests/cli/test_console.py",),
    "kafka": ("tests/kafka/test_backend.py", "tests/kafka/test_mirror.py", "tests/kafka/test_native.py"),
    "metrics": ("tests/behaviour/test_metrics.py", "tests/cli/test_metrics.py"),
    "polars": SQL,
    "spark": ("tests/spark/test_connector.py", "tests/spark/test_source.py", "tests/spark/test_frames.py"),
    "sql": (*SQL, "tests/cli/test_sql.py", "tests/cli/test_console.py"),
    "taskiq": ("tests/brokers/test_taskiq.py",),
    "typed": ("tests/behaviour/test_typed.py", "tests/behaviour/test_typed_transform.py"),
}
# What an extra's tests use, and users bring along themselves. The bounds are those of the extra "test".
BESIDE = {"typed": ("pydantic",)}


def pins(extra: str) -> list[str]:
    """Returns the requirements of the extra, each as its lower bound alone."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    bounds = project["dependencies"] if extra == "base" else list(requirements(project, [extra]))
    bounds += [text for text in requirements(project, ["test"]) if re.split("[^a-z0-9-]", text)[0] in BESIDE.get(extra, ())]
    return [re.sub(r">=([^,;]+)[^;]*", r"==\1", text) for text in bounds]


def environment(extra: str) -> Path:
    """Creates the environment, and returns its Python."""
    folder = FOLDER / extra
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *pins(extra)], check=True)
    # After the environment's own packages come those of the Python that runs this, among them pytest and jlog.
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    (folder / "bin" / "jlogtool").write_text(f"#!{python}\nfrom jlogtool import main\n\nmain()\n")
    (folder / "bin" / "jlogtool").chmod(0o755)
    return python


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extra", nargs="*", choices=[*TESTS, []], metavar="EXTRA", help=", ".join(TESTS))
    failed = []
    for extra in parser.parse_args().extra or TESTS:
        print(f"{extra}: {', '.join(pins(extra))}", flush=True)
        # Old versions may warn of what newer Pythons regret.
        command = [
            environment(extra),
            "-m",
            "pytest",
            "-q",
            "-n",
            "auto",
            "--dist",
            "loadgroup",
            "-W",
            "default",
            *TESTS[extra],
        ]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(extra)
    for extra in failed:
        print(f"failed: python tools/oldest.py {extra}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The package as it is installed: built from its source distribution, without a network, and run without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import exhaustive
import jlog
from installed import smoke
from jlog.cli.tool import SECTIONS, tool

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "wheelhouse"  # what it is built with, and what it depends on
OFFLINE = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(PACKAGES), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

MEGABYTE = 1_000_000

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(exhaustive.LIMIT_SECONDS)]


def checked(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the core that `make test` has compiled, so that nothing is compiled here."""
    if Path(sys.prefix) != ROOT / ".venv-test":
        pytest.skip("the compiled core is another environment's: make test")
    folder = tmp_path_factory.mktemp("wheel")
    settings = ["-C", "build-dir=build/test", "-C", "cmake.define.JLOG_FAILPOINTS=ON"]
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
    checked(*pip, *settings, "--wheel-dir", folder, ROOT, env=OFFLINE)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv")


def install(wheel: Path, folder: Path) -> Path:
    """Creates an environment that has jlog and what it depends on, and not even pip. Returns its Python."""
    if not PACKAGES.is_dir():
        pytest.skip("no packages that jlog depends on: make build/.wheelhouse")
    checked(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    checked(sys.executable, "-m", "pip", "--python", python, "install", "--only-binary", ":all:", wheel, env=OFFLINE)
    return python


def bare(python: Path) -> dict[str, str]:
    """An environment in which no compiler is found, and nothing of this checkout."""
    return {"PATH": str(python.parent), "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C.UTF-8"}


def test_every_command_runs_where_there_is_no_compiler(installed: Path, tmp_path: Path) -> None:
    checked(installed, smoke.__file__, cwd=tmp_path, env=bare(installed))


PROGRAM = """
import jlog
with jlog.Writer("journal") as writer:
    writer.append(b"tea")
with jlog.Reader("journal", "billing") as reader, jlog.Worker("journal", "work") as worker:
    journal = jlog.Journal("journal")
    print(list(reader.values()), worker.take()[0].value, journal.verify().ok, journal.stats().appends)
"""


def test_one_file_of_pyinstaller_writes_and_reads(wheel: Path, tmp_path: Path) -> None:
    """Without the hook in the wheel it would lack the compiled modules."""
    pytest.importorskip("PyInstaller", reason="pip install pyinstaller")
    python = install(wheel, tmp_path / "venv")
    place = checked(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    for name in ("PyInstaller", "_pyinstaller_hooks_contrib", "altgraph", "packaging", "setuptools", "pyinstaller*.dist-info"):
        for package in Path(sysconfig.get_path("purelib")).glob(name):
            os.symlink(package, Path(place) / package.name)
    (tmp_path / "program.py").write_text(PROGRAM)
    checked(python, "-m", "PyInstaller", "--onefile", "--distpath", tmp_path, "program.py", cwd=tmp_path)
    shutil.rmtree(tmp_path / "venv")
    assert checked(tmp_path / "program", cwd=tmp_path, env={}) == "[b'tea'] b'tea' True 1\n"


@pytest.mark.exhaustive
def test_the_source_distribution_becomes_a_wheel_without_a_network(tmp_path: Path) -> None:
    if not PACKAGES.is_dir():
        pytest.skip("nothing to build with: make build/.wheelhouse")
    checked(sys.executable, "tools/wheels.py", tmp_path, sys.executable, cwd=ROOT, env=OFFLINE)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"pyjlog-{jlog.__version__}-cp3")
    assert "manylinux" in wheel.name
    assert wheel.stat().st_size < 2 * MEGABYTE
    python = install(wheel, tmp_path / "venv")
    checked(python, "-c", "import jlog; jlog.Writer('journal').close()", cwd=tmp_path, env=bare(python))


def test_the_wheel_has_the_package_the_manual_and_completion_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shared = f"pyjlog-{jlog.__version__}.data/data/share/"
    assert {name.split("/")[0] for name in names} == {
        "jlog", "jlogtool.py", "pyspark_jlog.py", f"pyjlog-{jlog.__version__}.data", f"pyjlog-{jlog.__version__}.dist-info"
    }  # fmt: skip
    assert {Path(name).suffix for name in names if name.startswith("jlog/")} <= {".py", ".pyi", ".so", ".typed"}
    assert not {"jlog/spark/pyspark_jlog.py", "jlog/cli/jlogtool.py"} & set(names)
    assert {name.removeprefix(shared) for name in names if ".data/" in name} == {
        *(f"man/man1/{path.name}" for path in (ROOT / "docs" / "man").glob("*.1")),
        "bash-completion/completions/jlogtool",
        "zsh/site-functions/_jlogtool",
        "fish/vendor_completions.d/jlogtool.fish",
    }


def modules_of(python: Path, *command: str) -> set[str]:
    """The modules that a command imports, besides those of Python's own start."""
    timed = [python, "-X", "importtime", *command]
    done = subprocess.run(
        timed, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=bare(python), cwd=python.parent
    )
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


# Time depends on the machine, and the number of modules does not: importing them is nearly all that both do.
def test_import_and_help_are_quick(installed: Path) -> None:
    nothing = modules_of(installed, "-c", "")
    assert len(modules_of(installed, "-c", "import jlog") - nothing) <= 200
    assert len(modules_of(installed, str(installed.with_name("jlogtool")), "--help") - nothing) <= 240


def commands() -> Iterator[str]:
    def below(name: str, command: click.Command | None) -> Iterator[str]:
        if isinstance(command, click.Group):
            for sub, found in command.commands.items():
                yield from below(f"{name} {sub}", found)
        else:
            yield name

    for section in SECTIONS.values():
        for name in section:
            yield from below(name, tool.get_command(click.Context(tool), name))


def test_the_smoke_test_knows_every_command() -> None:
    typed = [command for command, _, _ in smoke.steps()]
    assert [name for name in commands() if not any(f"{command} ".startswith(f"{name} ") for command in typed)] == []


FREE_THREADED = """\
import importlib
usual = importlib.import_module({name!r})
build_time_vars = dict(usual.build_time_vars, Py_GIL_DISABLED=1)
"""


# What the build of CPython says of itself comes from a module that this variable names, as in a build for another machine.
def test_a_python_without_the_gil_is_refused(tmp_path: Path) -> None:
    name = sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined]
    (tmp_path / "free_threaded.py").write_text(FREE_THREADED.format(name=name))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "_PYTHON_SYSCONFIGDATA_NAME": "free_threaded"}
    cmake = [sys.executable, "-m", "cmake", f"-DPython_EXECUTABLE={sys.executable}"]
    done = subprocess.run(
        [*cmake, "-S", ROOT / "pyx", "-B", tmp_path / "build"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "jlog needs a Python that has the GIL" in done.stderr
    assert "free-threaded" in done.stderr


@pytest.mark.parametrize("there", [[], ["patchlevel.h"]], ids=["none", "another one"])
def test_a_python_without_its_headers_is_refused_before_anything_is_compiled(tmp_path: Path, there: list[str]) -> None:
    headers = tmp_path / "include"
    headers.mkdir()
    for name in there:
        shutil.copy(Path(sysconfig.get_path("include"), name), headers)
    cmake = [sys.executable, "-m", "cmake", f"-DPython_EXECUTABLE={sys.executable}", f"-DPython_INCLUDE_DIR={headers}"]
    done = subprocess.run([*cmake, "-S", ROOT / "pyx", "-B", tmp_path / "build"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "apt-get install python3-dev" in " ".join(done.stderr.split())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="cibuildwheel needs Python 3.11")
def test_cibuildwheel_is_told_to_build_each_python_with_a_gil_for_both_libraries_and_processors() -> None:
    done = checked(sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", "linux", ROOT)
    assert set(done.split()) == {
        f"cp3{minor}-{library}_{processor}"
        for minor in (10, 11, 12, 13, 14)
        for library in ("manylinux", "musllinux")
        for processor in ("x86_64", "aarch64")
    }

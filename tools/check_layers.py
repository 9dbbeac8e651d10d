"""Checks that imports point one way: in the package, in the core below it, and in the tools.

It reads every import of every source: `import` and `from` in Python, `cimport` and `cdef extern from` in Cython, and
`#include` in C. An import that only annotations need counts too. Two rules hold:

- Rooms stand above each other, as ROOMS has them. A file imports from its own room and from the rooms below.
- Files never import each other in a circle, also inside one room.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The topmost room comes first. Rooms on one line do not know each other. A room is a folder or a module of `jlog`, or a folder
# of one that has a line of its own; the rooms of
# the core are the folders of `pyx`.
ROOMS = """
jlog.cli
jlog.demo jlog.bench jlog.console
jlog.pipeline
jlog.spark jlog.logging jlog.metrics
jlog.celery jlog.taskiq
jlog.pyinstaller
jlog.libjlog
jlog
jlog.transform
jlog.query
jlog.urls
jlog.kafka
jlog.kafka.topic jlog.kafka.ends
jlog.kafka.client
jlog.flow
jlog.journal
jlog.working
jlog.repair
jlog.writer jlog.reading
jlog.care
jlog.archive
jlog.interfaces
jlog.positions
jlog.storage
jlog.typed
jlog.record
jlog.options
pyx.kafka
pyx.write
pyx.append
pyx.process
pyx.work
pyx.read
pyx.recover
pyx.buffer
pyx.segments
pyx.records
pyx.format
pyx.system
jlog.system
pyx.system.file
pyx.system.fork
pyx.system.failpoint
jlog.errors
jlog.html
""".strip().splitlines()

# Rooms that are built on the public API, and stay out of the core.
ON_THE_PUBLIC_API = (
    "jlog.celery",
    "jlog.cli",
    "jlog.console",
    "jlog.demo",
    "jlog.flow",
    "jlog.kafka",
    "jlog.kafka.client",
    "jlog.kafka.ends",
    "jlog.kafka.topic",
    "jlog.logging",
    "jlog.metrics",
    "jlog.pipeline",
    "jlog.spark",
    "jlog.taskiq",
)
OF_THE_CORE = {
    "jlog.kafka.ends": ("pyx.kafka",),
    "jlog.kafka.client": ("pyx.kafka",),
}  # the exceptions: a room of the core that was made for one of these

CYTHON_FROM = re.compile(r"^\s*from ([\w.]+) c?import \(?([^#\n)]*)", re.MULTILINE)
CYTHON_IMPORT = re.compile(r"^\s*c?import ([\w.]+)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*(?:#include|cdef extern from) "([\w/]+)\.h"', re.MULTILINE)


def sources() -> dict[str, Path]:
    """Returns every module by its name. A `.pyx`, its `.pxd` and a `.h` of the same name are one module."""
    found = {}
    for folder in ("jlog", "tools/torture", "tools/model"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("tools.")
            if "jlog._core" not in name:
                found[name.removeprefix("model.").removesuffix(".__init__")] = path
    for path in sorted((ROOT / "pyx").rglob("*.[hp]*")):
        found[".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
    return found


def imports(path: Path) -> list[tuple[str, str]]:
    """Returns the imports of a source: pairs of a module and a name in it, or "" for the module itself."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return _python_imports(ast.parse(text))
    found = [("pyx." + include.replace("/", "."), "") for include in INCLUDE.findall(text)]
    found += [(module, "") for module in CYTHON_IMPORT.findall(text)]
    for module, names in CYTHON_FROM.findall(text):
        found += [(module, name.strip()) for name in names.split(",")]
    return found


def _python_imports(tree: ast.Module) -> list[tuple[str, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found += [(node.module, alias.name) for alias in node.names]
    return found


def graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Returns the modules that each module imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for ext in (".h", ".pxd", ".pyx", ".py"):
            if path.with_suffix(ext).exists():
                for module, member in imports(path.with_suffix(ext)):
                    used = module.replace("jlog._core.", "pyx.")
                    used = f"{used}.{member}" if f"{used}.{member}" in modules else used
                    if used in modules and used != name:
                        found[name].add(used)
    return found


def room_of(module: str) -> str:
    parts = module.split(".")
    inner = ".".join(parts[:3])
    return inner if any(inner in row.split() for row in ROOMS) else ".".join(parts[:2])


def problems() -> list[str]:
    modules = sources()
    uses = graph(modules)
    height = {name: -row for row, names in enumerate(ROOMS) for name in names.split()}
    found = []
    for name in sorted(modules):
        if not name.startswith(("jlog", "pyx.")):
            continue
        here = room_of(name)
        if here not in height:
            found.append(f"{name}: give the room {here} a line in tools/check_layers.py")
            continue
        for used in sorted(uses[name]):
            there = room_of(used)
            if there != here and there in height and height[there] >= height[here]:
                found.append(f"{name} imports {used}: {there} is not below {here}")
            if here in ON_THE_PUBLIC_API and there.startswith("pyx.") and there not in OF_THE_CORE.get(here, ()):
                found.append(f"{name} imports {used}: it is built on the public API, and stays out of the core")
    found += [" -> ".join(circle) + ": they import each other in a circle" for circle in circles(uses)]
    return found


def circles(uses: dict[str, set[str]]) -> list[list[str]]:
    """Returns one circle of each group of modules that import each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for used in sorted(uses[name]):
            if used not in order:
                visit(used)
                low[name] = min(low[name], low[used])
            elif used in stack:
                low[name] = min(low[name], order[used])
        if low[name] == order[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(uses):
        if name not in order:
            visit(name)
    return found


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)

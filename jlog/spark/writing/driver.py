"""Finds out whether Spark's driver runs where its user has started it. Spark does not tell a Python data source its master, but
the virtual machine of the driver, which has started this process, got it as an argument."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

MAIN = "org.apache.spark.deploy.SparkSubmit"
MAIN_CLASSES = ("org.apache.spark.deploy.", "org.apache.spark.executor.")  # YARN's and Kubernetes' too
FLAGS = ("-v", "--verbose", "--supervise")  # options of spark-submit without a value
DEFAULT = "local[*]"
SETTING = re.compile(r"\s*(?P<name>[\w.]+)\s*[=:\s]\s*(?P<value>\S*)")


def has_local_master() -> bool:
    """Says whether the driver and its executors run on this machine alone: the master is `local`. Also returns True in a
    process that no driver has started."""
    process = os.getppid()
    while process > 1:
        arguments = _arguments(process)
        if any(argument.startswith(MAIN_CLASSES) for argument in arguments):
            return master_of(arguments, os.environ.get("SPARK_CONF_DIR")).startswith("local")
        process = parent_of(process)
    return True


def master_of(arguments: Sequence[str], conf_directory: str | None) -> str:
    """Returns the master that a driver's command line names, or its file of settings. A driver that a cluster has started has
    another main class; its master is returned as an empty text."""
    if MAIN not in arguments:
        return ""
    found: dict[str, str] = {}
    options = iter(arguments[list(arguments).index(MAIN) + 1 :])
    for argument in options:
        if not argument.startswith("-"):
            break  # the program, and then its own arguments
        if argument in FLAGS:
            continue
        name, equals, value = argument.partition("=")
        value = value if equals else next(options, "")
        if name in ("-c", "--conf"):
            name, _, value = value.partition("=")
        found[name] = value
    if "--deploy-mode" in found and found["--deploy-mode"] != "client":
        return ""
    settings = found.get("--properties-file") or os.path.join(conf_directory or "", "spark-defaults.conf")
    return found.get("--master") or found.get("spark.master") or _setting(settings, "spark.master") or DEFAULT


def _setting(path: str, name: str) -> str | None:
    """Returns the value of a setting in a file of Java properties, where a blank, "=" or ":" ends a name."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = [SETTING.match(line) for line in file]
    except OSError:
        return None
    values = [line["value"] for line in found if line is not None and line["name"] == name]
    return values[-1] if values else None


def _arguments(process: int) -> list[str]:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return [os.fsdecode(argument) for argument in file.read().split(b"\0")]
    except OSError:
        return []


def parent_of(process: int) -> int:
    """Returns the process that has started this one; 0 where it has ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0

"""The files in docs/services: what they run exists, and ends as they expect."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import click
import pytest

import jlog
from jlog.cli.tool import tool
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from patience import HUNG_SECONDS

ROOT = Path(__file__).parents[2]
FILES = ROOT / "docs" / "services"
UNITS = sorted(FILES.glob("*.service"))
INSTALLED = "/opt/jlog/bin/jlogtool"
TOOL = [sys.executable, "-m", "jlog.cli"]


def unit(path):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(path)
    return parser["Service"]


def check_command(arguments):
    """Parses the arguments as the command does, and raises its error; runs nothing."""
    program, *rest = arguments
    assert program == INSTALLED
    command, context = tool, click.Context(tool, info_name="jlogtool")
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, name
        if isinstance(command, click.Group):
            context = click.Context(command, parent=context)
    command.make_context(name, list(rest), parent=context)


def container():
    """The Containerfile's instructions, each with its text, in order."""
    text = re.sub(r"(?m)^#.*\n", "", (FILES / "Containerfile").read_text()).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_the_command_of_a_unit_is_one(path):
    check_command(shlex.split(unit(path)["ExecStart"]))


def test_an_option_that_is_none_would_be_found():
    with pytest.raises(click.NoSuchOption):
        check_command([INSTALLED, "mirror", "run", "--nonsense", "file"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_a_unit(path, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    text = path.read_text().replace(INSTALLED, sys.executable)
    copy = tmp_path / path.name
    copy.write_text(
        re.sub(r"(?m)^(User|Group)=jlog$", r"\1=root", text).replace("\n#LoadC", "\nLoadC").replace("\n#Env", "\nEnv")
    )
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_restarts_after_an_error_but_not_after_one_of_usage(path, tmp_path):
    assert (unit(path)["Restart"], unit(path)["RestartPreventExitStatus"]) == ("on-failure", "2")
    arguments = shlex.split(unit(path)["ExecStart"])[1:]
    arguments[-1] = str(tmp_path / "mirrors.toml")
    Path(arguments[-1]).write_text("[[nonsense]]\n")
    wrong = [*arguments, "--nonsense"] if "mirrors" not in path.stem else arguments
    assert subprocess.run([*TOOL, *wrong], capture_output=True, timeout=HUNG_SECONDS).returncode == 2


def test_a_credential_reaches_the_settings(tmp_path, monkeypatch):
    (line,) = re.findall(r"(?m)^#Environment=(\w+)=%d/(\S+)$", (FILES / "jlog-mirrors.service").read_text())
    (tmp_path / line[1]).write_text("geheim\n")
    monkeypatch.setenv(line[0], str(tmp_path / line[1]))
    assert Settings(parse("kafka://localhost/t")).given == {"sasl.password": "geheim"}


def is_ready(arguments, tmp_path):
    """Runs it as systemd runs a unit of Type=notify, until it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(HUNG_SECONDS)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        running = subprocess.Popen([*TOOL, *arguments], env=environment, stderr=subprocess.PIPE)
        try:
            return line.recv(100)
        finally:
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=HUNG_SECONDS)
            assert running.returncode == 0


def test_mirrors_and_metrics_say_when_they_are_ready(tmp_path):
    assert {unit(FILES / f"jlog-{name}.service")["Type"] for name in ("mirrors", "metrics")} == {"notify"}
    file = tmp_path / "mirrors.toml"
    file.write_text(f'[[to-kafka]]\njournals = "{tmp_path}/none/*"\nurl = "kafka://127.0.0.1:1"\n')
    assert is_ready(["mirror", "run", "--metrics", "127.0.0.1:0", file], tmp_path) == b"READY=1"
    jlog.Writer(tmp_path / "journal").close()
    (tmp_path / "notify").unlink()
    assert is_ready(["metrics", "--listen", "127.0.0.1:0", tmp_path / "journal"], tmp_path) == b"READY=1"


def test_the_command_of_the_container_is_one():
    given = {name: json.loads(text) for name, text in container() if name in ("ENTRYPOINT", "CMD")}
    check_command(given["ENTRYPOINT"] + given["CMD"])


def test_the_container_is_asked_at_the_port_that_it_serves():
    texts = dict(container())
    port = texts["EXPOSE"]
    assert f":{port}" in texts["CMD"]
    assert f"127.0.0.1:{port}/healthz" in texts["HEALTHCHECK"]
    compile(json.loads(texts["HEALTHCHECK"].partition(" CMD ")[2])[2], "HEALTHCHECK", "exec")


def built_and_run():
    """The commands at the top of the Containerfile."""
    lines = re.findall(r"(?m)^#   (podman .*)$", (FILES / "Containerfile").read_text())
    return [shlex.split(line) for line in lines]


def test_the_container_installs_extras_that_exist():
    defaults = [text.partition("=")[2] for name, text in container() if name == "ARG" and text.startswith("EXTRAS=")]
    given = [word.partition("=")[2] for line in built_and_run() for word in line if word.startswith("EXTRAS=")]
    assert (len(defaults), len(given)) == (1, 1)
    assert set(",".join(defaults + given).split(",")) <= set(metadata("pyjlog").get_all("Provides-Extra"))


def test_what_a_container_is_told_to_run_is_a_command():
    told = [
        re.split(r" jlog(?:-spark)?(?= |$)", " ".join(line), maxsplit=1)[1].split()
        for line in built_and_run()
        if line[1] == "run"
    ]
    assert [arguments[:1] for arguments in told] == [[], ["metrics"], ["pipeline"]]
    for arguments in filter(None, told):
        check_command([INSTALLED, *arguments])

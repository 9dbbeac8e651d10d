"""Signals while the client is busy: with a name server that never answers, for which it waits for minutes, or with a call."""

from __future__ import annotations

import shlex
import signal

import pytest

from elsewhere import mounted_by, run_python
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse

# As long as the resolver lets a name server be silent: 150 s for one name.
SILENT = "nameserver 127.0.0.53\noptions timeout:30 attempts:5\n"
FAR_LESS_SECONDS = 60


@pytest.mark.parametrize("command", ["to-kafka", "from-kafka", "transform", "verify"])
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_at_once_while_a_name_server_is_silent(tmp_path, command, number):
    (tmp_path / "resolv.conf").write_text(SILENT)
    here, topic = str(tmp_path / "journal"), "kafka://broker.example:9092/topic"
    arguments = {
        "to-kafka": ["mirror", "to-kafka", here, topic],
        "from-kafka": ["mirror", "from-kafka", f"{topic},others.*", f"{here}-copy"],
        "transform": ["transform", topic, f"{topic}.sink", "--transform", "builtins:repr"],
        "verify": ["mirror", "verify", here, topic],
    }[command]
    run_python(
        f"""
        import signal, socket, subprocess
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.53", 53))
        jlog.Writer({here!r}).close()
        running = subprocess.Popen([sys.executable, "-m", "jlog.cli", *{arguments!r}], stderr=subprocess.PIPE)
        server.recv(1)  # it asks
        running.send_signal(signal.{number})
        _, said = running.communicate(timeout={FAR_LESS_SECONDS})
        assert b"Traceback" not in said, said
        assert running.returncode == (0 if {command!r} != "verify" else 130 if {number!r} == "SIGINT" else -15), said
        """,
        mounted_by(f"mount --bind {shlex.quote(str(tmp_path / 'resolv.conf'))} /etc/resolv.conf", alone=True),
    )


def test_ctrl_c_in_a_question_for_the_brokers_is_nothing_else(witness, topic):
    """The client's calls return a result beside the exception of a signal handler, which would be a SystemError."""
    witness.make(topic)
    cluster = Cluster(Settings(parse(witness.url(topic))))
    interrupted = 0

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupted < 300:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + interrupted * 0.00001)
                while True:
                    cluster.topic(topic)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

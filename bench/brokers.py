"""Kafka brokers on this machine for `mirroring.py`: a plain one, and one with TLS and a login."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jlog.bench import ContestSettings, empty_directory

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))

from kafka_broker import Broker, Missing, check_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

HUNG_SECONDS = 60
USER, PASSWORD = "bench", "only-for-the-bench"
MECHANISM = "SCRAM-SHA-512"
# Creates a certificate that signs itself, which the clients then trust.
OPENSSL = [
    "openssl",
    "req",
    "-x509",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-days",
    "2",
    "-subj",
    "/CN=bench",
    "-addext",
    "subjectAltName=IP:127.0.0.1",
]

topics = (f"bench-{number}" for number in itertools.count())


@dataclass(frozen=True)
class Cluster:
    """The address of a broker, and the settings with which clients log in there."""

    address: str
    security: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a bare client."""
        return {**self.security, "bootstrap.servers": self.address}

    def url(self, topic: str) -> str:
        return f"kafka://{self.address}/{topic}"

    def make_topic(self, partitions: int = 1) -> str:
        from jlog.kafka import create_journal

        topic = next(topics)
        create_journal(self.url(topic), partitions=partitions, retention=None, config=self.security)
        return topic


def missing() -> str:
    """Returns the reason why there is no broker; empty if there is one."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "pip install 'pyjlog[kafka]'"
    try:
        check_machine()
    except Missing as error:
        return str(error)
    return ""


@contextmanager
def plain(settings: ContestSettings) -> Iterator[Cluster]:
    with empty_directory(settings.directory) as directory, Broker(directory) as started:
        yield Cluster(started.address)


@contextmanager
def secured(settings: ContestSettings) -> Iterator[Cluster]:
    """Clients log in with a password over TLS (SASL_SSL, SCRAM)."""
    with empty_directory(settings.directory) as directory:
        key, certificate, both = (directory / name for name in ("key.pem", "certificate.pem", "both.pem"))
        command = [*OPENSSL, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True, timeout=HUNG_SECONDS)
        both.write_text(key.read_text() + certificate.read_text())
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        server = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
        }
        with Broker(directory / "data", settings=server, listeners=["SASL_SSL"]) as started:
            create_user(started.address)
            yield Cluster(
                started.address_of("SASL_SSL"),
                {
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": str(certificate),
                    "sasl.mechanism": MECHANISM,
                    "sasl.username": USER,
                    "sasl.password": PASSWORD,
                },
            )


def create_user(address: str) -> None:
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    user = UserScramCredentialUpsertion(USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": address})
    for done in admin.alter_user_scram_credentials([user]).values():
        done.result(HUNG_SECONDS)

"""tools/kafka-broker, which `make kafka` runs."""

from __future__ import annotations

import socket

import pytest
from kafka_broker import USUAL_PORT, cause_in, usual_port


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "[ERROR] no plugin\n[ERROR] to central: PKIX path building failed\n[ERROR] more",
            "[ERROR] to central: PKIX path building failed",
        ),
        ("[INFO] a\n[ERROR] first\n[ERROR] second", "[ERROR] first"),
        ("java: not found", "java: not found"),
        ("", "it says nothing"),
    ],
    ids=["a certificate", "an error", "no error", "nothing"],
)
def test_the_cause_of_a_failed_download_is_named(said: str, cause: str) -> None:
    assert cause_in(said) == cause


def test_where_the_usual_port_is_taken_the_broker_gets_another() -> None:
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            pass  # another program has it already
        else:
            taken.listen()
        assert usual_port() != USUAL_PORT

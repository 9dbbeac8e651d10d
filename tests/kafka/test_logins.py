"""Each way to log in at a company's brokers: there and back over TLS. Secrets are seen nowhere."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import jlog
from jlog.kafka import BrokerError, Capture, Mirror
from kafka.processes import journal_of_ten  # noqa: F401
from kafka.secured import PASSWORD, Right, token_server
from kafka.test_command import run
from kafka.witness import numbered
from patience import wait_until

ALL_OF_ACME = [Right("all", kind, "acme.") for kind in ("topic", "group", "transactional id")]


def there_and_back(secured, journal, settings, protocol="SASL_SSL"):
    url = secured.secured_url(secured.unique("acme.orders").replace("acme-", "acme."), protocol)
    config = {**settings, "prefix": "acme."}
    Mirror(journal, url, until_end=True, config=config).run()
    copy = journal.with_name("copy")
    Capture(url, copy, until_end=True, config=config).run()
    with jlog.Reader(copy) as reader:
        assert list(reader.values()) == numbered(10)
    return url


def test_scram(secured, journal):
    settings = secured.user(ALL_OF_ACME, prefixed=True)
    url = there_and_back(secured, journal, settings)
    with pytest.raises(BrokerError, match="invalid credentials with SASL mechanism SCRAM") as raised:
        Mirror(journal, url, until_end=True, config={**settings, "sasl.password": "falsch-71"}).run()
    assert "falsch-71" not in str(raised.value)


def test_client_certificates(secured, journal):
    secured.allow("client", ALL_OF_ACME, prefixed=True)
    url = there_and_back(secured, journal, secured.with_certificate("client"), "SSL")
    with pytest.raises(BrokerError):
        Mirror(journal, url, until_end=True, config={**secured.trust(), "security.protocol": "SSL"}).run()


def test_tokens(secured, journal, secured_folder):
    secured.allow("token-client", ALL_OF_ACME, prefixed=True)
    with token_server(secured_folder) as tokens:
        there_and_back(secured, journal, secured.with_tokens("token-client", tokens))


def test_a_secret_is_seen_nowhere(secured, journal, processes, tmp_path, caplog):
    settings = secured.user(ALL_OF_ACME, prefixed=True)
    (tmp_path / "password").write_text(settings.pop("sasl.password"))
    lines = {**settings, "sasl.password.file": str(tmp_path / "password"), "prefix": "acme."}
    (tmp_path / "settings").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    url = secured.secured_url(secured.unique("acme.seen").replace("acme-", "acme."))
    running = processes("to-kafka", "--config", tmp_path / "settings", "-X", "debug=security,conf", journal, url)
    wait_until(lambda: jlog.Journal(journal).subscribers() and max(jlog.Journal(journal).subscribers().values()).sequence == 10)
    for seen in ("cmdline", "environ"):
        assert PASSWORD.encode() not in Path(f"/proc/{running.pid}/{seen}").read_bytes()
    code, said = running.end()
    assert code == 0
    assert PASSWORD not in said
    code, out, said = run("mirror", "to-kafka", "--dry-run", "--json", "--config", tmp_path / "settings", journal, url)
    assert code == 0
    assert PASSWORD not in out.decode() + said
    with caplog.at_level(logging.DEBUG):
        flow = Mirror(journal, url, until_end=True, config={**lines, "debug": "all"})
        flow.run()
        assert PASSWORD not in repr(flow) + repr(flow.__dict__)
    assert "jlog.kafka" in {record.name for record in caplog.records}
    assert PASSWORD not in caplog.text


def test_a_command_gives_no_settings_to_its_children(secured, journal, tmp_path):
    """-X of a command that takes journals too stays in the process: `jlogtool append` and others start none."""
    settings = secured.user(ALL_OF_ACME, prefixed=True)
    url = secured.secured_url(secured.unique("acme.append").replace("acme-", "acme."))
    given = [word for name, value in settings.items() if name != "sasl.password" for word in ("-X", f"{name}={value}")]
    (tmp_path / "password").write_text(PASSWORD)
    given += ["-X", f"sasl.password.file={tmp_path / 'password'}", "-X", "prefix=acme."]
    code, _, said = run("append", *given, url, stdin=b"1\n2\n")
    assert (code, said) == (0, "")
    assert secured.values(url.rpartition("/")[2]) == [b"1", b"2"]
    assert not [name for name in os.environ if name.startswith("JLOG_KAFKA_")]

"""Changes on the secured road while flows run: passwords, certificates, sessions that end, a broker that is killed."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
from kafka_broker import SESSION_SECONDS

import jlog
from jlog.kafka import BrokerError, Capture, Mirror, verify
from kafka.processes import captured, fill
from kafka.secured import ANYTHING, Right, join_key_and_certificate, make_authority, make_certificate, set_password, started
from kafka.witness import numbered
from patience import wait_until

pytestmark = pytest.mark.timeout(300)
REAUTHENTICATION_SECONDS = 3  # a broker refuses a second login within one second, to which a slow machine may delay the first


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("changing-broker")


@pytest.fixture(scope="module")
def secured(_jars, folder):
    """A broker that a test may kill and start. It ends a session of these seconds unless the client logs in anew."""
    with started(folder, {"connections.max.reauth.ms": str(REAUTHENTICATION_SECONDS * 1000)}, SESSION_SECONDS) as found:
        yield found


@pytest.fixture
def login(secured):
    return secured.user([Right("all", kind, "*") for kind in ANYTHING])


@pytest.fixture
def url(secured, topic):
    return secured.secured_url(topic)


class Pair:
    """A journal that is mirrored to a topic, which is captured into a copy, at the same time."""

    def __init__(self, directory, url, login, count=0):
        self.journal, self.copy, self.login, self.url = directory / "journal", directory / "copy", login, url
        self.said = []
        self.errors = []
        self.count = count
        self.append()
        Mirror(self.journal, url, until_end=True, config=login).run()
        how = {"config": login, "on_event": self.said.append}
        self.flows = [Mirror(self.journal, url, **how), Capture(url, self.copy, **how)]

    def append(self, count=100):
        fill(self.journal, count, self.count)
        self.count += count

    def _run(self, flow):
        try:
            flow.run()
        except jlog.JournalError as error:
            self.errors.append(error)

    @contextmanager
    def running(self):
        threads = [threading.Thread(target=self._run, args=(flow,)) for flow in self.flows]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: self.errors or (self.is_moved() and all(flow.is_open for flow in self.flows)))
            yield
        finally:
            for flow in self.flows:
                flow.stop()
            for thread in threads:
                thread.join()

    def is_moved(self):
        return captured(self.copy) == self.count or self.errors

    def move_more(self):
        self.append()
        wait_until(self.is_moved)
        assert self.errors == []

    def check(self):
        with jlog.Reader(self.copy) as reader:
            assert list(reader.values()) == numbered(self.count)
        assert verify(self.journal, self.url, config=self.login).ok


@pytest.mark.usefixtures("way")
def test_a_session_that_ends_is_renewed_and_nobody_notices(url, login, tmp_path):
    pair = Pair(tmp_path, url, login)
    with pair.running():
        until = time.monotonic() + 4 * REAUTHENTICATION_SECONDS
        while time.monotonic() < until:
            pair.move_more()
    assert pair.said == []
    assert [flow.stats.retries for flow in pair.flows] == [0, 0]
    pair.check()


def test_a_password_that_has_expired_ends_the_flows_and_the_new_one_goes_on(secured, url, login, tmp_path):
    pair = Pair(tmp_path, url, login)
    with pair.running():
        set_password(secured, login["sasl.username"], "another")
        wait_until(lambda: len(pair.errors) == 2)
    for error in pair.errors:
        assert isinstance(error, BrokerError)
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in str(error)
        assert "look at security.protocol and sasl.*" in str(error)
    pair = Pair(tmp_path, url, {**login, "sasl.password": "another"}, pair.count)
    with pair.running():
        pair.move_more()
    pair.check()


def test_a_broker_with_a_new_certificate_is_the_same_broker(secured, url, login, tmp_path, folder):
    pair = Pair(tmp_path, url, login)
    with pair.running():
        secured.broker.kill()
        make_certificate(folder, "broker")
        join_key_and_certificate(folder)
        secured.broker.start()
        pair.move_more()
    pair.check()


@pytest.mark.exhaustive
def test_a_certificate_of_an_authority_that_is_not_trusted_yet_is_waited_for(secured, url, login, tmp_path, folder):
    trusted = tmp_path / "trusted.pem"
    trusted.write_text((folder / "ca.pem").read_text())
    pair = Pair(tmp_path, url, {**login, "ssl.ca.location": str(trusted)})
    with pair.running():
        secured.broker.kill()
        make_authority(folder)
        make_certificate(folder, "broker")
        join_key_and_certificate(folder)
        secured.broker.start()
        pair.append()
        wait_until(lambda: any("certificate verify failed" in line for line in pair.said) or pair.errors)
        assert pair.errors == []
        trusted.write_text((folder / "ca.pem").read_text())
        wait_until(pair.is_moved)
        assert pair.errors == []
    pair.check()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("way")
def test_a_broker_that_is_killed_and_comes_back_has_every_record_once(secured, url, login, tmp_path):
    pair = Pair(tmp_path, url, login)
    with pair.running():
        for _ in range(2):
            pair.append()
            secured.broker.kill()
            secured.broker.start()
            pair.move_more()
    pair.check()

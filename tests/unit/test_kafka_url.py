"""kafka:// URLs and librdkafka's settings; no broker is asked."""

from __future__ import annotations

import pytest

from jlog.kafka.client.partitioner import murmur2
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse, parse_topics

URL = parse("kafka://localhost/orders")

GOOD = {
    "kafka://localhost:9092/orders": ("localhost:9092", "orders", None),
    "kafka://localhost/orders": ("localhost:9092", "orders", None),
    "KAFKA://localhost/orders": ("localhost:9092", "orders", None),
    "kafka://a:1,b,c:3/orders": ("a:1,b:9092,c:3", "orders", None),
    "kafka://[::1]/orders": ("[::1]:9092", "orders", None),
    "kafka://[::1]:9093/o.r_d-ers?partition=12": ("[::1]:9093", "o.r_d-ers", 12),
}


@pytest.mark.parametrize("url", GOOD)
def test_a_url_names_brokers_topic_and_partition(url):
    found = parse(url)
    assert (found.servers, found.topic, found.partition) == GOOD[url]


def test_a_url_is_written_as_it_is_meant():
    assert str(parse("kafka://a,b:1/orders?partition=3")) == "kafka://a:9092,b:1/orders?partition=3"


def test_only_a_capture_takes_several_topics_or_patterns():
    assert parse_topics("kafka://a/orders.*,clicks").topics == ("orders.*", "clicks")
    for url in ("kafka://a/orders,clicks", "kafka://a/orders.*"):
        with pytest.raises(ValueError, match="does not name one topic"):
            parse(url)


BAD = [
    "kafka://",
    "kafka:///orders",
    "kafka://localhost",
    "kafka://localhost/",
    "kafka://localhost/..",
    "kafka://localhost/a/b",
    "kafka://localhost/a b",
    "kafka://localhost:port/orders",
    "kafka://localhost/orders?partition=x",
    "kafka://localhost/orders?partition=1&partition=2",
    "kafka://localhost/orders?security.protocol=SSL",
    "kafka://localhost/orders#1",
    "http://localhost/orders",
    "localhost/orders",
]


@pytest.mark.parametrize("url", BAD)
def test_a_url_without_a_topic_is_an_error_that_shows_how(url):
    with pytest.raises(ValueError, match=r"kafka://HOST|partition=N"):
        parse(url)


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="JLOG_KAFKA_SASL_PASSWORD") as caught:
        parse("kafka://user:geheim@localhost/orders")
    assert "geheim" not in str(caught.value)


# --- Settings -------------------------------------------------------------------------------------------------------


def test_the_last_of_several_settings_counts(tmp_path, monkeypatch):
    (tmp_path / "all").write_text("# comment\n\nclient.id = environment file\nlinger.ms=1\nretries=1\nsocket.nagle.disable=1\n")
    (tmp_path / "own").write_text("client.id=file\nlinger.ms=3\n")
    monkeypatch.setenv("JLOG_KAFKA_CONFIG", str(tmp_path / "all"))
    monkeypatch.setenv("JLOG_KAFKA_LINGER_MS", "2")
    monkeypatch.setenv("JLOG_KAFKA_RETRIES", "2")
    found = Settings(URL, ["client.id=given"], tmp_path / "own").given
    assert found == {"client.id": "given", "linger.ms": "3", "retries": "2", "socket.nagle.disable": "1"}


def test_settings_reach_every_client_over_ours():
    settings = Settings(URL, {"client.id": "me", "linger.ms": "7"})
    assert settings.for_producer()["linger.ms"] == "7"
    assert {conf["client.id"] for conf in (settings.for_producer(), settings.for_consumer(), settings.for_admin())} == {"me"}


@pytest.mark.parametrize("name", ["transactional.id", "acks", "isolation.level", "bootstrap.servers", "enable.idempotence"])
def test_an_option_that_a_promise_hangs_on_cannot_be_set(name):
    with pytest.raises(ValueError, match=name):
        Settings(URL, {name: "x"})


SECRETS = {
    "sasl.password": "geheim",
    "ssl.key.password": "geheim",
    "ssl.key.pem": "geheim",
    "ssl.keystore.password": "geheim",
    "sasl.oauthbearer.client.secret": "geheim",
    "sasl.oauthbearer.config": "geheim",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_never_shown(name):
    settings = Settings(URL, {name: SECRETS[name], "sasl.username": "me"})
    assert "geheim" not in repr(settings)
    assert settings.shown()["sasl.username"] == "me"
    assert settings.without_secrets("the broker says: geheim!") == "the broker says: ***!"


def test_a_line_that_is_not_a_setting_is_told_by_its_number_alone(tmp_path):
    (tmp_path / "file").write_text("client.id=x\ngeheim\n")
    with pytest.raises(ValueError, match=r"file, line 2") as caught:
        Settings(URL, None, tmp_path / "file")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("given", [["geheim"], ["Ge Heim=1"], {"GEHEIM": 1}])
def test_a_bad_setting_is_refused(given):
    with pytest.raises(ValueError, match="setting"):
        Settings(URL, given)


def test_the_hash_is_that_of_javas_partitioner():
    # The values that Kafka's own tests of Utils.murmur2 expect, as unsigned numbers.
    expected = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in expected} == {key: value % (1 << 32) for key, value in expected.items()}

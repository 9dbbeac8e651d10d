"""Settings of librdkafka: what a user gives wins, or is refused by its name."""

from __future__ import annotations

import pytest

import jlog
from jlog.kafka import Mirror, RecordRefused
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from kafka.processes import journal_of_ten  # noqa: F401
from kafka.test_command import run
from kafka.witness import numbered


def mirror(journal, url, **config):
    given = {name.replace("_", "."): value for name, value in config.items()}
    return Mirror(journal, url, until_end=True, config=given).run()


@pytest.mark.parametrize(
    "given",
    [
        {"transaction_timeout_ms": "5000"},
        {"transaction_timeout_ms": 1000},
        {"message_timeout_ms": "20000", "transaction_timeout_ms": "25000"},
        {"batch_size": "1000"},
        {"socket_timeout_ms": "500"},
        {"fetch_max_bytes": "1000000", "message_max_bytes": "900000"},
    ],
)
def test_presets_give_way(journal, url, topic, witness, given):
    mirror(journal, url, **given)
    assert witness.values(topic) == numbered(10)


def test_the_largest_message_is_the_users(journal, url, topic, witness):
    with jlog.Writer(journal) as writer:
        writer.append(bytes(1000))
        writer.append(bytes(3000))
    with pytest.raises(RecordRefused, match="2000"):
        mirror(journal, url, message_max_bytes="2000")
    assert witness.values(topic) == [*numbered(10), bytes(1000)]


def test_a_batch_that_no_topic_takes_is_refused_by_name(journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    with pytest.raises(ValueError, match=r"batch\.size=20000 is more than"):
        mirror(journal, url, batch_size="20000")


def test_a_secret_comes_from_a_file(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("gäheim\n", encoding="utf-8")
    settings = Settings(parse("kafka://h/t"), {"sasl.password.file": str(tmp_path / "secret")})
    assert settings.for_admin()["sasl.password"] == "gäheim"
    assert "sasl.password.file" not in settings.for_admin()
    assert "gäheim" not in repr(settings)
    monkeypatch.setenv("JLOG_KAFKA_SSL_KEY_PASSWORD_FILE", str(tmp_path / "secret"))
    assert Settings(parse("kafka://h/t")).for_producer()["ssl.key.password"] == "gäheim"
    with pytest.raises(OSError, match="missing"):
        Settings(parse("kafka://h/t"), {"sasl.password.file": str(tmp_path / "missing")})


def test_a_file_that_is_not_text_is_named_and_nothing_of_it_is_shown(tmp_path):
    (tmp_path / "file").write_bytes(b"geheim\xff")
    for given in (({"sasl.password.file": str(tmp_path / "file")}, None), (None, tmp_path / "file")):
        with pytest.raises(ValueError, match="file: it is not text in UTF-8") as caught:
            Settings(parse("kafka://h/t"), *given)
        assert "0xff" not in str(caught.value)


def test_a_secret_on_the_command_line_is_warned_of(journal, url):
    for command in (["mirror", "status", journal, url], ["info", url]):
        _, _, said = run(*command, "-X", "sasl.password=geheim", "-X", "client.id=me")
        assert "warning: everybody who lists processes sees -X sasl.password=…" in said
        assert "geheim" not in said
        assert "client.id" not in said

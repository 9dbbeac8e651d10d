"""The settings of librdkafka: those of the user, and those that exactly once depends on. Secrets are never shown."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from confluent_kafka import KafkaError

from jlog.kafka.client.names import Names
from jlog.kafka.client.url import TopicUrl

ENVIRONMENT = "JLOG_KAFKA_"
CONFIG_FILE = ENVIRONMENT + "CONFIG"
HIDDEN = "***"
LOGGER = logging.getLogger("jlog.kafka")
LOGGER.addHandler(logging.NullHandler())  # lines of librdkafka are shown only to a program that asks for them

_NAME = re.compile(r"[a-z][a-z0-9._]*\Z")
_SECRET = re.compile(r"password|secret|\.pem$|token|oauthbearer\.config|assertion|jwt")

# Settings on which a delivery guarantee depends are not the user's.
OURS = frozenset(
    (
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "metadata.broker.list",
        "on_delivery",
        "queue.buffering.backpressure.threshold",
        "request.required.acks",
        "transactional.id",
    )
)
EVERYWHERE: dict[str, Any] = {
    "allow.auto.create.topics": False,  # a deleted topic would come back empty, without an error
    "socket.timeout.ms": 10_000,  # a broker that hangs costs 10 s and not 60
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 60_000,
}
PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "delivery.report.only.error": True,
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 65_536,  # bounds the memory of a producer, whatever the lag
    "partitioner": "murmur2_random",  # puts a key into the partition that Java's producer chooses
}
TRANSACTIONAL = {"transaction.timeout.ms": 60_000}
# A preset is lowered to what the user gives for the setting that bounds it: the client refuses other pairs.
BOUNDED_BY = {
    "socket.timeout.ms": "transaction.timeout.ms",
    "linger.ms": "message.timeout.ms",
    "fetch.message.max.bytes": "fetch.max.bytes",
}
SECRET_FILE = ".file"  # sasl.password.file names a file with the sasl.password
CONSUMER: dict[str, Any] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # an error where retention was faster, instead of skipped records
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,  # the default of 1 s is how long a queue sleeps that was full once
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,  # of each partition: bounds the memory of a consumer
    "fetch.message.max.bytes": 1 << 20,
}

PREFIX = "prefix"  # the one setting that is not librdkafka's
ENDS = "source", "sink"

Config = Mapping[str, Any] | Iterable[str] | None
End = Literal["source", "sink"]


class Settings:
    """Settings for the clients of one cluster: the environment's, then a file's, then those given, each over the one before.

    A property `sasl.password` is JLOG_KAFKA_SASL_PASSWORD in the environment, `sasl.password=…` on a line of a file.
    JLOG_KAFKA_CONFIG names a file for all. `sasl.password.file` names a file that has nothing but the password, and so for
    every secret. What is given wins over every preset. `prefix` begins every name that jlog keeps for itself in the cluster
    (see Names). Raises ValueError for a name that is not one, and for a setting that only jlog sets; OSError for a file that
    cannot be read.

    ends: of the flow's source and sink those that are topics. The first one is the end that these settings are for, or
        None: its own, such as `sink.sasl.username`, win over those for both ends.
    """

    def __init__(
        self,
        url: TopicUrl,
        given: Config = None,
        config_file: str | os.PathLike[str] | None = None,
        ends: Sequence[End | None] = (),
    ) -> None:
        found: dict[str, Any] = {**from_surroundings(), **(read_file(config_file) if config_file else {})}
        found |= given if isinstance(given, Mapping) else dict(map(parse_pair, given or ()))
        found = _of_end(found, ends)
        for name in found:
            if not _NAME.match(name):
                raise ValueError(f"{name!r} is not a setting of librdkafka")
            if name in OURS:
                raise ValueError(f"{name} cannot be set: {_why(name)}")
        self.given: dict[str, Any] = _with_secrets(found)
        self.names: Names = Names(str(self.given.get(PREFIX, "")))
        self.servers: str = url.servers
        self.last_said: str = ""  # the reason why no broker can be reached, as a client has said it
        self.heard_nothing()

    def heard_nothing(self) -> None:
        """Forgets what clients have said until now."""
        self.unreachable: bool = False  # no broker can be reached
        self.refused: bool = False  # one of them cannot
        self.login_failed: bool = False  # the last thing that was said

    def __repr__(self) -> str:
        return f"<jlog.kafka.Settings {self.servers} {self.shown()}>"

    def shown(self) -> dict[str, Any]:
        """Returns the user's settings for a listing, with secrets hidden."""
        return {name: HIDDEN if _SECRET.search(name) else value for name, value in sorted(self.given.items())}

    def without_secrets(self, text: str) -> str:
        """Hides secrets in an error that may quote a setting."""
        for name, value in self.given.items():
            if _SECRET.search(name) and len(str(value)) > 1:
                text = text.replace(str(value), HIDDEN)
        return text

    @property
    def partitioner(self) -> str:
        return str(self.given.get("partitioner", PRODUCER["partitioner"]))

    def for_admin(self) -> dict[str, Any]:
        return self._merged({})

    def for_producer(self, **more: Any) -> dict[str, Any]:
        return self._merged(PRODUCER, more)

    def for_consumer(self, **more: Any) -> dict[str, Any]:
        # The client needs a group; it joins none, and commits nothing by itself.
        return self._merged(CONSUMER, {"group_id": self.names.group, **more})

    def _merged(self, own: Mapping[str, Any], more: Mapping[str, Any] = {}) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in more.items()}
        presets = {**EVERYWHERE, **own}
        given = {name: value for name, value in self.given.items() if name != PREFIX}
        for name, bound in BOUNDED_BY.items():
            if name in presets and bound in given:
                presets[name] = min(presets[name], int(given[bound]))
        return {**presets, **given, **named, "bootstrap.servers": self.servers, "error_cb": self._note, "logger": LOGGER}

    def _note(self, error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # follows the error that says why
            self.unreachable = True
        else:
            self.last_said = self.without_secrets(str(error.str()))
            self.refused = self.refused or error.code() == KafkaError._TRANSPORT
            self.login_failed = error.code() == KafkaError._AUTHENTICATION


def _of_end(given: Mapping[str, Any], ends: Sequence[End | None]) -> dict[str, Any]:
    """Returns the settings for the first of the ends, with its own over those for both, and without those of the other."""
    common: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in given.items():
        end, _, rest = name.partition(".")
        if end not in ENDS:
            common[name] = value
        elif end not in ends:
            raise ValueError(f"{name} cannot be set: it is for a flow that has a topic as its {end}")
        elif end == ends[0]:
            own[rest] = value
    return common | own


def is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not name.endswith(SECRET_FILE)


def _with_secrets(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with the secrets of the files that they name."""
    found = {}
    for name, value in given.items():
        secret = name.removesuffix(SECRET_FILE)
        if name == secret or not is_secret(secret):
            found[name] = value
            continue
        found[secret] = text_of(value).rstrip("\r\n")
    return found


def text_of(path: str | os.PathLike[str]) -> str:
    """Reads a file of UTF-8. A ValueError names the file, and shows nothing of its content."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise ValueError(f"{os.fspath(path)}: it is not text in UTF-8; save it as UTF-8") from None


def parse_pair(text: str) -> tuple[str, str]:
    """Parses the NAME=VALUE of -X."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{name!r} is not a setting of the form NAME=VALUE")
    return name.strip(), value.strip()


def read_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads lines of NAME=VALUE; # begins a comment. A ValueError names the number of the line, and not its text."""
    found = {}
    for number, line in enumerate(text_of(path).split("\n"), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, equals, value = text.partition("=")
            if not equals or not _NAME.match(name.strip()):
                raise ValueError(f"{os.fspath(path)}, line {number}: write NAME=VALUE, as in security.protocol=SSL")
            found[name.strip()] = value.strip()
    return found


def from_surroundings() -> dict[str, str]:
    """Returns the settings of this process's environment, over those of the file that it names."""
    named = os.environ.get(CONFIG_FILE)
    return (read_file(named) if named else {}) | {
        name[len(ENVIRONMENT) :].lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT) and name != CONFIG_FILE
    }


def _why(name: str) -> str:
    if name in ("bootstrap.servers", "metadata.broker.list"):
        return "the URL names the brokers"
    return "jlog's guarantees depend on its value"

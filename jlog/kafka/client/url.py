"""Parses kafka:// URLs, which name brokers, a topic and a partition."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

SCHEME = "kafka://"
PORT = 9092
PORT_MAX = (1 << 16) - 1
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?\Z")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_PATTERN = re.compile(r"[A-Za-z0-9._*\[\]!-]{1,249}\Z")


@dataclass(frozen=True)
class TopicUrl:
    """The parts of a kafka:// URL. `topics` are names or patterns; only a capture takes several."""

    servers: str
    topics: tuple[str, ...]
    partition: int | None = None

    @property
    def topic(self) -> str:
        (topic,) = self.topics
        return topic

    def __str__(self) -> str:
        query = "" if self.partition is None else f"?partition={self.partition}"
        return f"{SCHEME}{self.servers}/{','.join(self.topics)}{query}"


def parse(url: str) -> TopicUrl:
    """Parses kafka://HOST[:PORT][,HOST[:PORT]]/TOPIC[?partition=N]. Raises ValueError for anything else."""
    found = parse_any(url)
    if len(found.topics) != 1 or not is_topic_name(found.topics[0]):
        raise ValueError(f"{_shown(url)} does not name one topic; write {SCHEME}HOST:PORT/TOPIC")
    return found


def parse_topics(url: str) -> TopicUrl:
    """Parses the same with one or several topics, or patterns with *: kafka://HOST:PORT/orders,clicks.*"""
    found = parse_any(url)
    if not found.topics or not all(_PATTERN.match(topic) for topic in found.topics):
        raise ValueError(f"{_shown(url)} does not name topics; write {SCHEME}HOST:PORT/TOPIC[,TOPIC]")
    if found.partition is not None and (len(found.topics) > 1 or not is_topic_name(found.topics[0])):
        raise ValueError(f"{_shown(url)} names a partition of more than one topic; name one topic")
    return found


def parse_any(url: str) -> TopicUrl:
    """Parses the same with or without topics: kafka://HOST:PORT is a whole cluster."""
    if not is_topic_url(url):
        raise ValueError(f"{_shown(url)} is not the URL of a topic; write {SCHEME}HOST:PORT/TOPIC")
    rest, _, query = url[len(SCHEME) :].partition("?")
    servers, _, path = rest.partition("/")
    if "@" in servers:
        raise ValueError(
            f"{_shown(url)} has a user in it, and everybody can see a URL; give sasl.username and sasl.password in a file "
            "(--config) or in the environment (JLOG_KAFKA_SASL_PASSWORD)"
        )
    if "#" in url:
        raise ValueError(f"{_shown(url)} has a fragment; write {SCHEME}HOST:PORT/TOPIC")
    found = [_SERVER.match(server) for server in servers.split(",")]
    if not all(server and int(server["port"] or PORT) <= PORT_MAX for server in found):
        raise ValueError(f"{_shown(url)} does not name a broker; write {SCHEME}HOST:PORT/TOPIC")
    with_ports = ",".join(f"{server['host']}:{server['port'] or PORT}" for server in found if server)
    topics = tuple(unquote(path).split(",")) if path else ()
    return TopicUrl(with_ports, topics, _partition(url, query))


def _partition(url: str, query: str) -> int | None:
    if not query:
        return None
    fields = parse_qsl(query, keep_blank_values=True)
    if len(fields) != 1 or fields[0][0] != "partition" or not re.fullmatch(r"\d{1,9}", fields[0][1], re.ASCII):
        raise ValueError(f"{_shown(url)}: only partition=N may follow the ?; give settings with -X or --config")
    return int(fields[0][1])


def is_topic_url(url: str | os.PathLike[str] | None) -> bool:
    return str(url)[: len(SCHEME)].lower() == SCHEME


def is_topic_name(topic: str) -> bool:
    return bool(_TOPIC.match(topic)) and topic not in (".", "..")


def _shown(url: str) -> str:
    """Returns the URL without a part that may be a password."""
    return repr(re.sub(r"//[^/]*@", "//***@", url))

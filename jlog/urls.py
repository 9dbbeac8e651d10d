"""Journals and Kafka topics by URL: one program for both, which of them it is stands in the URL."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jlog.errors import JournalError
from jlog.journal import Journal
from jlog.reading.reader import Reader
from jlog.system.filesystem import EMPTY, path_of_file
from jlog.writer import Writer

FILE, KAFKA = "file", "kafka"
KNOWN = "file:PATH, kafka://HOST:PORT/TOPIC, or a path without a scheme"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")


def open_writer(url: str | os.PathLike[str], **options: Any) -> Writer:
    """A Writer of the journal, or of the Kafka topic, at `url`.

    url: file:/absolute, file:relative, file:///absolute or a plain path for a journal, with what is special in a URL as
        %XX; kafka://HOST:PORT/TOPIC for a topic, which needs the extra pyjlog[kafka].
    options: of jlog.Writer; a topic's are those of jlog.kafka.

    A topic's writer has the methods of jlog.Writer; where they differ is in docs/kafka.md. ValueError for a URL that
    names neither, ImportError where the extra is missing, else as jlog.Writer.
    """
    path = path_of(url)
    if path is not None:
        return Writer(path, **options)
    with _kafka("open_writer") as open_topic:
        return open_topic(url, **options)  # type: ignore[no-any-return]


def open_reader(url: str | os.PathLike[str], subscriber: str | None = None, **options: Any) -> Reader:
    """A Reader of the journal, or of the Kafka topic, at `url`: of the subscriber, which is a consumer group there, or an
    anonymous one. As open_writer, with the options of jlog.Reader."""
    path = path_of(url)
    if path is not None:
        return Reader(path, subscriber, **options)
    with _kafka("open_reader") as open_topic:
        return open_topic(url, subscriber, **options)  # type: ignore[no-any-return]


def open_journal(url: str | os.PathLike[str], *, lock_timeout: float | None = None) -> Journal:
    """The Journal at `url`, with its lock_timeout; of a topic, what has the same methods for looking at it and for its
    positions."""
    path = path_of(url)
    if path is not None:
        return Journal(path, lock_timeout=lock_timeout)
    with _kafka("open_journal") as open_topic:
        return open_topic(url)  # type: ignore[no-any-return]


def create_journal(url: str | os.PathLike[str], **options: Any) -> None:
    """As jlog.Journal.create."""
    path = path_of(url)
    if path is not None:
        Journal.create(path, **options)
        return
    with _kafka("create_journal") as create_topic:
        create_topic(url, **options)


def delete_journal(url: str | os.PathLike[str]) -> None:
    """As jlog.Journal.delete."""
    path = path_of(url)
    if path is not None:
        Journal.delete(path)
        return
    with _kafka("delete_journal") as delete_topic:
        delete_topic(url)


def list_topics(url: str) -> list[str]:
    """The URLs of the topics at kafka://HOST:PORT."""
    with _kafka("list_topics") as topics_at:
        return list(topics_at(url))


def path_of(url: str | os.PathLike[str]) -> str | os.PathLike[str] | None:
    """A journal's path; None for the URL of a topic. ValueError for any other URL.

    Without a known scheme, and without `//` behind an unknown one, it is a path: file names may have colons.
    """
    found = _SCHEME.match(url) if isinstance(url, str) else None
    if url == "":
        raise ValueError(EMPTY)
    if found is None:
        return url
    scheme, rest = found[1].lower(), found.string[found.end() :]
    if scheme == FILE:
        return path_of_file(found.string, rest)
    if scheme == KAFKA:
        if not rest.startswith("//"):
            raise ValueError(f"{url!r} is no URL of a topic; write kafka://HOST:PORT/TOPIC")
        return None
    if rest.startswith("//"):
        raise ValueError(
            f"{url!r} has the scheme {scheme!r}, which is not known here; use {KNOWN}. The URL of an archive is for "
            f"jlog.Reader, and for `jlogtool` dump, tail, info, verify and restore"
        )
    return url


@contextmanager
def _kafka(name: str) -> Iterator[Callable[..., Any]]:
    """What jlog.kafka has for this, under the same name. It is imported when a URL asks for it."""
    try:
        found = getattr(importlib.import_module("jlog.kafka"), name, None)
        if found is None:
            raise JournalError(f"this cannot be done with a Kafka topic: jlog.kafka has no {name}")
        yield found
    except ModuleNotFoundError as error:
        raise ImportError(
            f"kafka:// URLs need {error.name}, which is not installed: pip install 'pyjlog[kafka]'",
            name=error.name,
        ) from error

"""Journals and Kafka topics by URL: the URL decides which backend a program uses."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from jlog.interfaces import JournalProtocol, ReaderProtocol, WriterProtocol
from jlog.journal import Journal
from jlog.reading.reader import Reader
from jlog.system.filesystem import EMPTY, path_of_file
from jlog.writer import Writer

if TYPE_CHECKING:
    from jlog import kafka
    from jlog.working.worker import Worker

FILE, KAFKA = "file", "kafka"
KNOWN = "file:PATH, kafka://HOST:PORT/TOPIC, or a path without a scheme"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")


class _Kafka:
    """The module jlog.kafka, imported when it is needed. Raises ImportError where a library of the extra is missing."""

    def __getattr__(self, name: str) -> Any:
        try:
            from jlog import kafka
        except ModuleNotFoundError as error:
            raise ImportError(
                f"kafka:// URLs need {error.name}, which is not installed: pip install 'pyjlog[kafka]'",
                name=error.name,
            ) from error
        return getattr(kafka, name)


if not TYPE_CHECKING:
    kafka = _Kafka()


def open_writer(url: str | os.PathLike[str], **options: Any) -> WriterProtocol:
    """Opens a writer of the journal, or of the Kafka topic, at `url`.

    url: `file:/absolute`, `file:relative`, `file:///absolute` or a plain path for a journal, where %XX stands for a character
        that is special in a URL; `kafka://HOST:PORT/TOPIC` for a topic, which needs the extra pyjlog[kafka].
    options: those of jlog.Writer, or those of jlog.kafka.TopicWriter.

    Returns a jlog.Writer for a journal, and for a topic a TopicWriter; docs/kafka-reference.md says where they differ. Raises
    ValueError for a URL that names neither, ImportError where the extra is missing, and otherwise what jlog.Writer raises.
    """
    path = path_of(url)
    if path is not None:
        return Writer(path, **options)
    return kafka.TopicWriter(str(url), **options)


def open_reader(url: str | os.PathLike[str], subscriber: str | None = None, **options: Any) -> ReaderProtocol:
    """Opens a reader of the journal, or of the Kafka topic, at `url`: for `subscriber`, which is a consumer group of a topic,
    or anonymously without one. The options are those of jlog.Reader, or those of jlog.kafka.TopicReader. URLs and errors are
    those of open_writer."""
    path = path_of(url)
    if path is not None:
        return Reader(path, subscriber, **options)
    return kafka.TopicReader(str(url), subscriber, **options)


def open_worker(url: str | os.PathLike[str], name: str, **options: Any) -> Worker:
    """Opens a worker that shares the subscriber `name` of the journal at `url`. The options are those of jlog.Worker. URLs and
    errors are those of open_writer. The URL of a topic raises ValueError, which says how its messages are shared out."""
    path = path_of(url)
    if path is None:
        raise ValueError(
            f"{url}: jlog shares out the records of journals; share out a topic with ShareConsumer of confluent-kafka, or "
            "mirror the topic into a journal (`jlogtool mirror from-kafka`) and open the worker there"
        )
    from jlog.working.worker import Worker  # most programs do not need it

    return Worker(path, name, **options)


def open_journal(url: str | os.PathLike[str], *, lock_timeout: float | None = None) -> JournalProtocol:
    """Opens the journal, or the Kafka topic, at `url`, to look at it and to keep its positions. A topic has no use for
    lock_timeout."""
    path = path_of(url)
    if path is not None:
        return Journal(path, lock_timeout=lock_timeout)
    return kafka.TopicJournal(str(url))


def create_journal(url: str | os.PathLike[str], **options: Any) -> None:
    """Creates an empty journal, or a topic; as jlog.Journal.create."""
    path = path_of(url)
    if path is not None:
        Journal.create(path, **options)
        return
    kafka.create_journal(str(url), **options)


def delete_journal(url: str | os.PathLike[str]) -> None:
    """Removes a journal, or a topic; as jlog.Journal.delete."""
    path = path_of(url)
    if path is not None:
        Journal.delete(path)
        return
    kafka.delete_journal(str(url))


def list_topics(url: str) -> list[str]:
    """Returns the URLs of the topics at kafka://HOST:PORT."""
    return kafka.list_topics(url)


class Place(str):  # noqa: SLOT000 # has no attribute of its own
    """The path of a journal, or the URL of an archive or a topic."""

    is_archive = False
    is_topic = False

    @property
    def is_journal(self) -> bool:
        return not self.is_archive and not self.is_topic


class ArchivePlace(Place):
    is_archive = True


class TopicPlace(Place):
    is_topic = True


def place_of(url: str | os.PathLike[str], *, archives: bool = True) -> Place:
    """Returns what `url` names. A text without a scheme, or with an unknown one and no `//` after it, is a path: file names may
    have colons. archives: True takes any other URL for that of an archive, and so the path of a directory that is one; False
    raises ValueError for such a URL."""
    if not isinstance(url, (str, os.PathLike)):
        raise TypeError(f"a journal is named by a URL or a path, as str or pathlib.Path, not {url!r}")
    text = os.fsdecode(url)
    if text == "":
        raise ValueError(EMPTY)
    scheme, rest = "", text
    if isinstance(url, str) and (match := _SCHEME.match(text)):
        scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == KAFKA:
        if not rest.startswith("//"):
            raise ValueError(f"{url!r} is not the URL of a topic; write kafka://HOST:PORT/TOPIC")
        return TopicPlace(text)
    if scheme not in ("", FILE) and rest.startswith("//"):
        if archives:
            return ArchivePlace(text)
        raise ValueError(
            f"{url!r} has the scheme {scheme!r}, which is not known here; use {KNOWN}. The URL of an archive is for "
            f"jlog.Reader, and for `jlogtool` dump, tail, info, verify and restore"
        )
    path = path_of_file(text, rest) if scheme == FILE else text
    if archives:
        from jlog.archive import archive_at  # most programs name a journal

        archive = archive_at(path)
        return Place(path) if archive is None else ArchivePlace(archive)
    return Place(path)


def path_of(url: str | os.PathLike[str]) -> str | None:
    """Returns a journal's path, or None for the URL of a topic. Raises ValueError for any other URL."""
    place = place_of(url, archives=False)
    return None if place.is_topic else str(place)

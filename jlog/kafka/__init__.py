"""Kafka: journals mirrored to topics and captured from them, exactly once, and topics read and written as journals are.

Needs the extra pyjlog[kafka].
"""

from jlog.flow.ends import Lag
from jlog.flow.engine import Stats
from jlog.flow.errors import RecordRefused
from jlog.kafka.errors import BrokerError, Fenced, TopicChanged
from jlog.kafka.many import Mirrors
from jlog.kafka.mirror import Capture, Mirror
from jlog.kafka.plan import plan_capture, plan_mirror
from jlog.kafka.reader import TopicReader, open_reader
from jlog.kafka.settings import Settings
from jlog.kafka.status import Status, status
from jlog.kafka.topics import TopicJournal, create_journal, delete_journal, list_topics, open_journal
from jlog.kafka.url import parse
from jlog.kafka.verify import Comparison, verify
from jlog.kafka.writer import TopicWriter, open_writer

__all__ = [
    "BrokerError",
    "Capture",
    "Comparison",
    "Fenced",
    "Lag",
    "Mirror",
    "Mirrors",
    "RecordRefused",
    "Settings",
    "Stats",
    "Status",
    "TopicChanged",
    "TopicJournal",
    "TopicReader",
    "TopicWriter",
    "create_journal",
    "delete_journal",
    "list_topics",
    "open_journal",
    "open_reader",
    "open_writer",
    "parse",
    "plan_capture",
    "plan_mirror",
    "status",
    "verify",
]

"""Kafka: mirrors journals to topics and captures topics into journals, exactly once; reads and writes topics as journals.

Needs the extra pyjlog[kafka].
"""

try:
    import confluent_kafka  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"jlog.kafka needs {error.name}, which is not installed: pip install 'pyjlog[kafka]'", name=error.name
    ) from error

from jlog.flow.ends import Lag, RecordRefused
from jlog.flow.options import FlowOptions
from jlog.flow.stats import FlowStats
from jlog.kafka.client.errors import BrokerError, Fenced, TopicChanged
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from jlog.kafka.comparison import Comparison, verify
from jlog.kafka.dry_run import plan_capture, plan_mirror
from jlog.kafka.mirrors import Capture, Mirror
from jlog.kafka.standbys import Promotion, Standby, promote
from jlog.kafka.status import PartPosition, Status, positions, status
from jlog.kafka.supervisor import Mirrors
from jlog.kafka.topic.reader import TopicReader
from jlog.kafka.topic.topics import TopicJournal, create_journal, delete_journal, list_topics
from jlog.kafka.topic.writer import TopicWriter

__all__ = [
    "BrokerError",
    "Capture",
    "Comparison",
    "Fenced",
    "FlowOptions",
    "FlowStats",
    "Lag",
    "Mirror",
    "Mirrors",
    "PartPosition",
    "Promotion",
    "RecordRefused",
    "Settings",
    "Standby",
    "Status",
    "TopicChanged",
    "TopicJournal",
    "TopicReader",
    "TopicWriter",
    "create_journal",
    "delete_journal",
    "list_topics",
    "parse",
    "plan_capture",
    "plan_mirror",
    "positions",
    "promote",
    "status",
    "verify",
]

"""What Kafka says, as jlog's errors: what happened, where, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from jlog.errors import JournalError, JournalNotFound
from jlog.flow.errors import Retry

if TYPE_CHECKING:
    from jlog.kafka.client.settings import Settings


class BrokerError(JournalError):
    """The brokers refused, or did not answer in time. `code` is librdkafka's."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Fenced(JournalError):
    """Another mirror has taken over: this one has ended, and nothing of its open transaction counts."""


class TopicChanged(JournalError):
    """The topic was deleted, or deleted and made again: positions in the old one mean nothing in the new one."""


UNKNOWN_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
FENCED = (
    KafkaError._FATAL,  # which of them it was, a producer tells only the first that asks
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
)
# The topic will not have the record, whoever sends it and however often.
REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError.POLICY_VIOLATION,
)
# No further attempt will be answered otherwise: these end a mirror, all others are tried again.
FINAL = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
# No fetch gets it any more: retention was faster, or the topic is another one, or has lost its tail.
OFFSET_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
# Who leads the partition has changed a moment ago, and the client or the broker does not know it yet.
LEADER_UNKNOWN = (
    KafkaError._NOENT,  # "No leaders found": of a topic that was made a moment ago
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
TIMED_OUT = (
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)


def may_pass(error: Exception) -> bool:
    """Whether it is the brokers' being away or at odds, and not somebody's mistake."""
    return isinstance(error, BrokerError) and error.code != 0 and error.code not in FINAL


def error_of(error: BaseException) -> KafkaError | None:
    found = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return found if isinstance(found, KafkaError) else None


def code_of(error: BaseException) -> int:
    found = error_of(error)
    return 0 if found is None else int(found.code())


@contextmanager
def told(what: str, settings: Settings) -> Iterator[None]:
    """Around calls of the client's: what goes wrong is a BrokerError that says at what, or Retry where it may pass."""
    try:
        yield
    except KafkaException as error:
        raise as_ours(error, what, settings) from None


def as_ours(error: KafkaException, what: str, settings: Settings) -> Exception:
    found, code = error_of(error), code_of(error)
    said = settings.without_secrets(found.str() if found is not None else str(error))
    if code in TIMED_OUT:
        said = f"no broker answers ({settings.last_said or said})"
    text = f"{settings.servers}: {what}: {said}"
    if code in UNKNOWN_TOPIC:
        return JournalNotFound(f"{text}; `jlogtool create kafka://…` makes a topic")
    if code in FINAL:
        return BrokerError(f"{text}; {_next(code)}", code)
    return Retry(text, BrokerError(text, code))


def _next(code: int) -> str:
    if code in (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    ):
        return "look at security.protocol and sasl.*"
    if code == KafkaError._SSL:
        return "look at security.protocol and ssl.*"
    if code == KafkaError._INVALID_ARG:
        return "look at the settings given with -X, --config and JLOG_KAFKA_*"
    if code in (
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ):
        return "the brokers are too old for it"
    return "the cluster's ACLs do not allow it to this user"


@contextmanager
def at_once() -> Iterator[None]:
    """Around what nobody tries again: what might go better the next time is raised as what it is."""
    try:
        yield
    except Retry as error:
        raise error.cause from None


def is_fenced(error: BaseException) -> bool:
    return code_of(error) in FENCED


def describe(error: Any) -> str:
    """Of a message's or a delivery's own KafkaError."""
    return str(error.str() if isinstance(error, KafkaError) else error)

"""Turns Kafka's errors into jlog's: what happened, where, and what to do next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from jlog.errors import JournalError, JournalNotFound
from jlog.flow.ends import Retry, Unsettled

if TYPE_CHECKING:
    from jlog.flow.stop import Stop
    from jlog.kafka.client.settings import Settings

CALL_SECONDS = 0.2  # of one call that is repeated, so that Ctrl-C and a request to stop are heard


class BrokerError(JournalError):
    """The brokers refused, or did not answer in time. `code` is librdkafka's."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class PassingBrokerError(BrokerError, Retry):
    """A BrokerError after which a flow tries again."""


class UnsettledBrokers(PassingBrokerError, Unsettled):
    """The cluster changes at this moment, or not all brokers know of a change yet."""


class Fenced(JournalError):
    """Another mirror has taken over: this one has ended, and its open transaction is void."""


class TopicChanged(JournalError):
    """The topic was deleted, or deleted and created again: offsets in the old topic mean nothing in the new one."""

    @classmethod
    def deleted(cls, where: str, after: str) -> TopicChanged:
        """after: what that means for the caller, and what to do next."""
        return cls(f"{where} was deleted. {after}")

    @classmethod
    def created_again(cls, where: str, after: str) -> TopicChanged:
        return cls(f"{where} was deleted and created again: offsets in the old topic mean nothing in the new one. {after}")


UNKNOWN_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
FENCED = (
    KafkaError._FATAL,  # only the first call gets the cause
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
)
# The topic refuses the record, from any client and at any time.
REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError.POLICY_VIOLATION,
)
# Errors that stay: these end a mirror; after all others it tries again.
FINAL = (
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
# The leader of the partition has just changed, and the client or the broker does not know it yet.
LEADER_UNKNOWN = (
    KafkaError._NOENT,  # "No leaders found": of a topic that has just been created
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
TIMED_OUT = (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def may_pass(error: Exception) -> bool:
    """Says whether the error comes from brokers that are away or disagree, and not from a mistake."""
    return isinstance(error, BrokerError) and error.code != 0 and error.code not in FINAL


def error_of(error: BaseException) -> KafkaError | None:
    found = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return found if isinstance(found, KafkaError) else None


def code_of(error: BaseException) -> int:
    found = error_of(error)
    return 0 if found is None else int(found.code())


@contextmanager
def told(what: str, settings: Settings, needs: str = "") -> Iterator[None]:
    """Turns errors of the client's calls into a BrokerError that says what was done. needs: the right that it takes."""
    try:
        yield
    except KafkaException as error:
        raise as_ours(error, what, settings, needs) from None


def until_done(call: Callable[[float], object], stop: Stop, seconds: float = float("inf")) -> None:
    """Repeats a call of the client after a time-out, which makes the client go on with it. Raises Stopped when the time to stop
    is over, and the error of a time-out after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        try:
            call(stop.slice(CALL_SECONDS))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        else:
            return


def as_ours(error: KafkaException, what: str, settings: Settings, needs: str = "") -> Exception:
    found, code = error_of(error), code_of(error)
    said = settings.without_secrets(found.str() if found is not None else str(error))
    if code in TIMED_OUT:
        said = f"no broker answers ({settings.last_said or said})"
        # Time after time, as long as an answer was waited for. A broker that has just begun may refuse a login that is right.
        if settings.login_failed and not settings.refused:
            code = int(KafkaError.SASL_AUTHENTICATION_FAILED)
    elif code == KafkaError._AUTHENTICATION:  # also of a broker that goes away while a client logs in anew
        said = f"{said} ({settings.last_said})"
    text = f"{settings.servers}: {what}: {said}"
    if code in UNKNOWN_TOPIC:
        return JournalNotFound(f"{text}; `jlogtool create kafka://…` creates a topic")
    if code in FINAL:
        return BrokerError(f"{text}; {_next(code, needs)}", code)
    return PassingBrokerError(text, code)


def _next(code: int, needs: str) -> str:
    if code in (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM):
        return "look at security.protocol and sasl.*"
    if code == KafkaError._SSL:
        return "look at security.protocol and ssl.*"
    if code == KafkaError._INVALID_ARG:
        return "look at the settings given with -X, --config and JLOG_KAFKA_*"
    if code in (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT):
        return "the brokers are too old for it"
    return not_allowed(needs)


def not_allowed(needs: str) -> str:
    """Says that this user may not do it. needs: the right and the resource, as in `Write on topic orders`."""
    return "the cluster's ACLs do not allow it to this user" + (f", who needs {needs}" if needs else "")


def is_without_group(error: Any) -> bool:
    """Says whether the client may not look for the coordinator of its group. A client that is in no group needs none: it goes
    on to read."""
    return isinstance(error, KafkaError) and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED

"""Three brokers and a controller: any one of them may be away."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka_broker import Broker, free_port

from kafka.secured import PASSWORD, login_of, make_certificates, set_password, tls_and_scram
from kafka.witness import Witness
from kafka_torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = 3
USER = "torture"
ANSWER_SECONDS = 10.0
HUNG_SECONDS = 250.0
SETTINGS = {
    "broker.session.timeout.ms": "10000",  # on a busy machine a broker that lives may be silent for seconds
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class Cluster:
    """Starts the brokers. Use it from one thread, which outlives them."""

    def __init__(self, directory: Path, *, secured: bool = False) -> None:
        controller_port = free_port()
        listeners = f"CONTROLLER://127.0.0.1:{controller_port}"
        quorum = {"controller.quorum.voters": f"1@127.0.0.1:{controller_port}"}
        self._user = USER if secured else "ANONYMOUS"
        security = {}
        if secured:
            directory.mkdir(parents=True, exist_ok=True)
            make_certificates(directory)
            security = {**tls_and_scram(directory), "connections.max.reauth.ms": "20000"}
            for name, value in login_of(directory, USER).items():
                os.environ[f"JLOG_KAFKA_{name.upper().replace('.', '_')}"] = value
        # It has a process of its own. Of several controllers each would wait for the rights to ask the others.
        alone = {"process.roles": "controller", "listeners": listeners, "advertised.listeners": listeners}
        self.controller = Broker(directory / "controller", settings={**SETTINGS, **quorum, **alone})
        self.brokers: list[Broker] = []
        self.paused: set[int] = set()  # their numbers, from 0
        self.troubled_at = time.monotonic()  # the last moment when a broker was away, or a topic was made or deleted
        for number in range(NODES):
            joins = self.brokers[-1] if self.brokers else self.controller
            settings = {**SETTINGS, **quorum, **security}
            listeners = ["SASL_SSL"] if secured else []
            self.brokers.append(Broker(directory / f"broker-{number}", joins=joins, settings=settings, listeners=listeners))
        self.servers = ",".join(broker.address for broker in self.brokers)
        # Where the flows are. The rest of the torture asks without a login.
        self.flows_at = ",".join(broker.address_of("SASL_SSL") for broker in self.brokers) if secured else self.servers

    def start(self) -> None:
        for broker in [self.controller, *self.brokers]:
            broker.start(wait=False)
        for broker in self.brokers:
            broker.wait_until_ready()
        self.witness = Witness(self.servers)
        if self._user == USER:
            set_password(self.witness, USER, PASSWORD)

    def close(self) -> None:
        for broker in [*self.brokers, self.controller]:
            broker.kill()

    def url(self, topics: str) -> str:
        return f"kafka://{self.flows_at}/{topics}"

    # --- Brokers ----------------------------------------------------------------------------------------------------

    def away(self) -> list[int]:
        return [at for at, broker in enumerate(self.brokers) if not broker.is_running or at in self.paused]

    def look(self) -> None:
        """Notes whether a broker is away."""
        if self.away():
            self.troubled_at = time.monotonic()

    def kill(self, at: int) -> None:
        self.resume(at)
        self.brokers[at].kill()

    def stop(self, at: int) -> None:
        self.resume(at)
        self.brokers[at].stop()

    def start_again(self, at: int) -> None:
        if not self.brokers[at].is_running:
            self.brokers[at].start(wait=False)

    def pause(self, at: int) -> None:
        if self.brokers[at].is_running:
            self.brokers[at].pause()
            self.paused.add(at)

    def resume(self, at: int) -> None:
        if at in self.paused:
            self.brokers[at].resume()
            self.paused.remove(at)

    def heal(self) -> None:
        """Brings all brokers back, and all rights."""
        for at in range(NODES):
            self.resume(at)
            self.start_again(at)
        for broker in self.brokers:
            broker.wait_until_ready()
        self.allow_all()
        self.troubled_at = time.monotonic()

    # --- Topics and rights, asked again while brokers are away -------------------------------------------------------

    def make(self, topic: str, partitions: int) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=NODES)
        self._ask(lambda: self.witness.admin.create_topics([new], request_timeout=ANSWER_SECONDS)[topic], {
            KafkaError.TOPIC_ALREADY_EXISTS,
        })  # fmt: skip

    def delete(self, topic: str) -> None:
        self._ask(lambda: self.witness.admin.delete_topics([topic], request_timeout=ANSWER_SECONDS)[topic], {
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        })  # fmt: skip

    def add_partitions(self, topic: str, count: int) -> None:
        new = NewPartitions(topic, count)
        self._ask(lambda: self.witness.admin.create_partitions([new], request_timeout=ANSWER_SECONDS)[topic], {
            KafkaError.INVALID_PARTITIONS, KafkaError.UNKNOWN_TOPIC_OR_PART,
        })  # fmt: skip

    def remove_before(self, topic: str, offset: int, partition: int) -> None:
        """As retention does. Does nothing where the cluster has no time for it."""
        with suppress(KafkaException):
            self.witness.remove_before(topic, offset, partition)

    def deny(self, topic: str, operation: AclOperation) -> None:
        """Takes the right from the flows. The torture itself keeps every right, where it is another user."""
        pattern = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
        rules = {
            AclBinding(*pattern, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
            for user in (self._user, "ANONYMOUS")
        }
        for rule in (*rules, AclBinding(*pattern, f"User:{self._user}", "*", operation, AclPermissionType.DENY)):
            self._ask(lambda rule=rule: self.witness.admin.create_acls([rule], request_timeout=ANSWER_SECONDS)[rule], set())

    def allow_all(self) -> None:
        every = AclBindingFilter(
            ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        self._ask(lambda: self.witness.admin.delete_acls([every], request_timeout=ANSWER_SECONDS)[every], set())

    def _ask(self, question: Callable[[], Any], as_good: set[int]) -> None:
        """Asks until it is done, or was done before."""
        until = time.monotonic() + HUNG_SECONDS
        while True:
            try:
                question().result(HUNG_SECONDS)
            except KafkaException as error:
                if error.args[0].code() in as_good:
                    return
                if time.monotonic() > until:
                    raise Wrong(f"the cluster does not do what it is asked: {error}") from None
                self.witness = Witness(self.servers)  # the client before keeps asking a broker that is away
                time.sleep(0.2)
            else:
                self.troubled_at = time.monotonic()
                return

"""Rights that are taken away while a mirror or a capture runs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from kafka_broker import Broker

import jlog
from kafka.processes import captured, fill, position
from kafka.witness import Witness, numbered, wait_until
from patience import HUNG_SECONDS

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def guarded(_jars, tmp_path_factory):
    """A broker that keeps to ACLs. Everything is allowed that no ACL denies."""
    with Broker(tmp_path_factory.mktemp("guarded"), session_seconds=3600, settings=AUTHORIZER) as started:
        yield Witness(started.address)


def deny(witness, kind, name, operation):
    """All others keep their rights: without an ACL they had all, and with one only those that it names."""
    pattern = kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"
    rules = [
        AclBinding(*pattern, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(*pattern, operation, AclPermissionType.DENY),
    ]
    for future in witness.admin.create_acls(rules).values():
        future.result(HUNG_SECONDS)


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.mark.parametrize("right", ["topic", "table", "transactional id"])
def test_a_mirror_whose_right_is_taken_away_ends(guarded, journal, processes, right):
    topic = guarded.unique(right)
    url = guarded.url(topic)
    fill(journal, 10)
    running = processes("to-kafka", journal, url)
    wait_until(lambda: position(journal) == 10)
    table = f"jlog.mirror.{topic}.{jlog.Journal(journal).uuid}"
    kind = ResourceType.TRANSACTIONAL_ID if right == "transactional id" else ResourceType.TOPIC
    deny(guarded, kind, topic if right == "topic" else table, AclOperation.WRITE)
    fill(journal, 10, 10)
    code, said = running.wait(60)
    assert code == 1
    assert "the cluster's ACLs do not allow it to this user" in said


def test_a_capture_whose_right_is_taken_away_ends(guarded, journal, processes):
    topic = guarded.unique("captured")
    url = guarded.make(topic)
    guarded.produce(topic, numbered(10))
    running = processes("from-kafka", url, journal)
    wait_until(lambda: captured(journal) == 10)
    deny(guarded, ResourceType.TOPIC, topic, AclOperation.READ)
    code, said = running.wait(60)
    assert code == 1
    assert "the cluster's ACLs do not allow it to this user" in said

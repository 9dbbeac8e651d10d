"""Typed records in the form of Confluent's serializers, with the registry that their client brings for tests."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import jlog
from jlog import typed


@dataclasses.dataclass
class Order:
    item: str
    cups: int


ORDERS = [Order("tea", 2), Order("coffee", 1)]


def registry_at(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": url, **({} if url.startswith("mock:") else {"max.retries": 0})})


def codec_of(registry: SchemaRegistryClient, **options: Any) -> typed.Codec:
    schema = json.dumps(msgspec.json.schema(Order))
    serializer = JSONSerializer(schema, registry, lambda order, _: dataclasses.asdict(order), conf=options)
    return typed.confluent("orders", serializer, JSONDeserializer(None, lambda found, _: Order(**found), registry))


@pytest.fixture
def registry() -> SchemaRegistryClient:
    return registry_at("mock://shop")


@pytest.fixture
def nobody() -> str:
    """Returns the URL of a registry that does not run."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_the_values_are_those_of_confluents_clients_and_objects_come_back(tmp_path: Path, registry: Any) -> None:
    codec = codec_of(registry)
    with jlog.Writer(tmp_path / "j", codec=codec) as writer:
        writer.append(ORDERS[0], headers={"level": b"high"})
        writer.extend([ORDERS[1], None])
    (number,) = registry.get_versions("orders-value")
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        records = list(reader)
    assert [record.decoded for record in records] == [*ORDERS, None]
    assert records[0].value == b"\0" + registry.get_version("orders-value", number).schema_id.to_bytes(4, "big") + (
        b'{"item":"tea","cups":2}'
    )
    assert records[0].headers == [("level", b"high")]
    theirs = JSONDeserializer(None, schema_registry_client=registry)
    assert theirs(records[1].value, SerializationContext("orders", MessageField.VALUE)) == dataclasses.asdict(ORDERS[1])


def test_a_schemas_number_may_stand_in_a_header(tmp_path: Path, registry: Any) -> None:
    codec = codec_of(registry, **{"schema.id.serializer": header_schema_id_serializer})
    with jlog.Writer(tmp_path / "j", codec=codec) as writer:
        writer.append(ORDERS[0], headers={"level": b"high"})
    with jlog.Reader(tmp_path / "j", codec=codec_of(registry)) as reader:
        (record,) = reader
    assert record.decoded == ORDERS[0]
    assert record.value == b'{"item":"tea","cups":2}'
    assert [name for name, _ in record.headers] == ["level", "__value_schema_id"]


def test_an_object_that_does_not_fit_its_schema_is_not_stored(tmp_path: Path, registry: Any) -> None:
    with jlog.Writer(tmp_path / "j", codec=codec_of(registry)) as writer:
        with pytest.raises(ValueError, match=r"Order\(item='tea', cups='two'\) does not fit its schema.*'two' is not of type"):
            writer.extend([ORDERS[0], Order("tea", "two")])  # type: ignore[arg-type]
        assert writer.next_sequence == 0


def test_a_record_of_another_form_or_of_an_unknown_schema_does_not_decode(tmp_path: Path, registry: Any) -> None:
    codec = codec_of(registry)
    with jlog.Writer(tmp_path / "j", codec=codec) as writer:
        writer.append(ORDERS[0])
    with jlog.Writer(tmp_path / "j") as plain:
        plain.extend([b"tea", b"\0\0\0\0\x63{}", b'\0\0\0\0\x01{"item": 1}'])
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        sound, *others = reader
    assert sound.decoded == ORDERS[0]
    for record, reason in zip(others, ("Invalid magic byte", "Schema Not Found", "is not of type 'string'"), strict=True):
        with pytest.raises(jlog.DecodeError, match=f"record {record.sequence} cannot be decoded: .*{reason}"):
            assert record.decoded


def test_a_registry_that_is_away_makes_no_dead_letters(tmp_path: Path, registry: Any, nobody: str) -> None:
    path, away = tmp_path / "j", codec_of(registry_at(nobody))
    with jlog.Writer(path, codec=codec_of(registry)) as writer:
        writer.append(ORDERS[0])
    with jlog.Writer(path, codec=away) as cut_off, pytest.raises(ConnectionError, match="the schema registry did not answer"):
        cut_off.append(ORDERS[1])
    options: Any = {"dead_letters": tmp_path / "letters", "max_attempts": 2, "backoff": (0.01, 0.01)}
    with jlog.Worker(path, "billing", codec=away, **options) as worker:
        task = next(iter(worker.tasks(timeout=0)))
        with pytest.raises(ConnectionError), task:
            assert task.decoded
    with jlog.Worker(path, "billing", codec=codec_of(registry), **options) as worker:
        task = next(iter(worker.tasks()))
        with task:
            assert (task.decoded, task.attempt) == (ORDERS[0], 2)
    assert not (tmp_path / "letters").exists()
    assert jlog.Journal(path).next_sequence == 1


def test_a_codec_for_one_direction_says_what_the_other_one_needs(tmp_path: Path) -> None:
    codec = typed.confluent("orders")
    with jlog.Writer(tmp_path / "j", codec=codec) as writer:
        with pytest.raises(jlog.JournalError, match=re.escape("has no serializer; give confluent() one")):
            writer.append(ORDERS[0])
    with jlog.Writer(tmp_path / "j") as plain:
        plain.append(b"tea")
    with jlog.Reader(tmp_path / "j", codec=codec) as reader:
        with pytest.raises(jlog.JournalError, match=re.escape("has no deserializer; give confluent() one")):
            assert next(iter(reader)).decoded


@pytest.fixture
def refusing() -> Iterator[tuple[str, list[int]]]:
    """Serves the answers that Apicurio Registry 2.6 gave to a schema: of a change that the subject's rule forbids, and of a
    content that is not a schema. Yields its URL and the status to answer with."""
    status = [409]
    texts = {409: "Incompatible artifact: orders-value [AVRO]", 422: "Failed to discover artifact type from content."}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            content = json.dumps({"message": texts[status[0]], "error_code": status[0]}).encode()
            self.send_response(status[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", status
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("code", [409, 422])
def test_a_schema_that_the_registry_refuses_is_a_conflict_and_nothing_is_stored(
    tmp_path: Path, refusing: tuple[str, list[int]], code: int
) -> None:
    url, status = refusing
    status[0] = code
    with jlog.Writer(tmp_path / "j", codec=codec_of(registry_at(url))) as writer:
        with pytest.raises(jlog.SchemaConflict, match=rf"refuses the schema, so nothing was stored: .*HTTP status code {code}"):
            writer.append(ORDERS[0])
        assert writer.next_sequence == 0

"""A real broker for the tests below, started once; and what they ask it with, which is not jlog's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_broker import Broker, Missing, fetch

from kafka.witness import Witness

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them in one worker, so that there is one broker."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.xdist_group("kafka"))


@pytest.fixture(scope="session")
def _jars() -> None:
    try:
        fetch()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker(_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Shared by all tests, which leave it running."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def own_broker(_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Broker]]:
    """Starts brokers that a test may kill."""
    started: list[Broker] = []

    def start(**settings: str) -> Broker:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        started.append(Broker(tmp_path_factory.mktemp("own-broker"), settings=given))
        return started[-1].start()

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def witness(broker: Broker) -> Witness:
    return Witness(broker.address)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return Witness.unique(request.node.name)


@pytest.fixture
def url(broker: Broker, topic: str) -> str:
    return f"kafka://{broker.address}/{topic}"

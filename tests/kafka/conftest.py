"""A real broker for the tests below, started once; and what they ask it with, which is not jlog's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import Broker, Missing, fetch

import exhaustive
from jlog.kafka.client import clients
from kafka.processes import Process, discard
from kafka.secured import ANYTHING, Right, Secured, started
from kafka.witness import Witness

HERE = Path(__file__).parent
SECURED = ("test_logins.py", "test_rights.py", "test_secured.py")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of one file are in one worker, which starts its broker once. So is all that needs the secured cluster."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            name = item.path.name
            is_secured = name in SECURED or (
                getattr(item, "callspec", None) and item.callspec.params.get("security") == "secured"
            )
            item.add_marker(pytest.mark.xdist_group("kafka-secured" if is_secured else f"kafka-{item.path.stem}"))


@pytest.fixture(scope="session")
def _jars() -> None:
    try:
        fetch()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def jars() -> str:
    """Spark's own source for Kafka, for `spark.jars`."""
    try:
        return ",".join(map(str, fetch(HERE / "spark-source.xml").glob("*.jar")))
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker(_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Shared by all tests, which leave it running. However busy the machine is, its controller never takes it for dead."""
    with Broker(tmp_path_factory.mktemp("broker"), session_seconds=3600) as started:
        yield started


@pytest.fixture(scope="session")
def secured_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured-broker")


@pytest.fixture(scope="session")
def secured(_jars: None, secured_folder: Path) -> Iterator[Secured]:
    """A broker with TLS, logins and ACLs, for all tests about these."""
    with started(secured_folder) as found:
        yield found


@pytest.fixture(scope="module")
def _fragile(_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Not for longer: what was done to it may keep it busy, writing markers for a topic that is gone."""
    with Broker(tmp_path_factory.mktemp("fragile-broker")) as started:
        yield started


@pytest.fixture
def fragile_broker(_fragile: Broker) -> Iterator[Broker]:
    """One that a test may kill, stop and start."""
    yield _fragile
    if _fragile.is_running:
        _fragile.resume()
    else:
        _fragile.start()


@pytest.fixture(scope="session")
def _login(secured: Secured) -> dict[str, str]:
    """The settings of a user with all rights."""
    return secured.user([Right("all", kind, "*") for kind in ANYTHING])


@pytest.fixture
def security(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`plain`, or `secured`: then all that jlog opens logs in over TLS, by the settings in the environment."""
    found = str(getattr(request, "param", "plain"))
    if found == "secured":
        for name, value in request.getfixturevalue("_login").items():
            monkeypatch.setenv("JLOG_KAFKA_" + name.upper().replace(".", "_"), value)
    return found


@pytest.fixture
def witness(request: pytest.FixtureRequest, security: str) -> Witness:
    if security == "plain":
        return Witness(request.getfixturevalue("broker").address)
    secured: Secured = request.getfixturevalue("secured")
    return Witness(secured.address, secured.secured_address())


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return Witness.unique(request.node.name)


@pytest.fixture
def url(witness: Witness, topic: str) -> str:
    return witness.url(topic)


@pytest.fixture(params=["the core", exhaustive.only("the Python client")])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of librdkafka that flows use."""
    if request.param == "the Python client":
        monkeypatch.setattr(clients, "library", lambda: None)


@pytest.fixture
def processes() -> Iterator[Callable[..., Process]]:
    """Starts mirrors in processes of their own, which are gone afterwards."""
    started: list[Process] = []

    def start(*arguments: Any, **how: Any) -> Process:
        started.append(Process(*arguments, **how))
        return started[-1]

    yield start
    discard(started)

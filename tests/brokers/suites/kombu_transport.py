"""kombu's own tests of a transport, from its source, with jlog:// as the broker. tools/broker_suites.py runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kombu import Connection
from t.integration.common import BaseEventLoop, BaseExchangeTypes, BaseMessage, BasicFunctionality

import jlog.celery  # noqa: F401 - registers the transport


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    return Connection(f"jlog://{tmp_path}/broker")


@pytest.fixture
def invalid_connection() -> Connection:
    return Connection("jlog://host/var/lib/app")


class TestBasicFunctionality(BasicFunctionality): ...


class TestExchangeTypes(BaseExchangeTypes): ...


class TestMessage(BaseMessage): ...


class TestEventLoop(BaseEventLoop): ...

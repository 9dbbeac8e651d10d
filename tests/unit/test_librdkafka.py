"""librdkafka is found through the Python client that is linked with it; where it cannot be had, one line says so."""

from __future__ import annotations

import ctypes.util
import logging
import sys

import confluent_kafka
import pytest

from jlog._core.kafka.client import Library, LibraryUnavailable
from jlog.kafka.client.clients import library


def test_the_library_is_the_one_that_the_client_is_linked_with():
    calls = library()
    assert calls is not None
    assert calls.version == confluent_kafka.libversion()[0]


def test_a_module_that_is_not_loaded_is_an_error_with_its_path(tmp_path):
    with pytest.raises(LibraryUnavailable, match=r"none\.so is not loaded"):
        Library(str(tmp_path / "none.so"))


def test_a_module_without_the_library_is_an_error_with_the_name_of_a_call():
    other = ctypes.util.find_library("c")
    assert other is not None
    with pytest.raises(LibraryUnavailable, match="is not linked with a library that has rd_kafka_version"):
        Library(other)


def test_a_library_that_cannot_be_had_is_said_once(monkeypatch, caplog):
    import _ctypes  # another module that is loaded, and not linked with librdkafka

    monkeypatch.setattr(sys.modules["confluent_kafka.cimpl"], "__file__", _ctypes.__file__)
    library.cache_clear()
    try:
        with caplog.at_level(logging.INFO, "jlog.kafka"):
            assert [library(), library()] == [None, None]
    finally:
        library.cache_clear()
    (line,) = caplog.messages
    assert "is not linked with a library that has rd_kafka_version" in line

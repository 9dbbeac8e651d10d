"""librdkafka as it is found in the process: what is missing is said, and is no crash."""

from __future__ import annotations

import ctypes.util

import pytest

from jlog._core.kafka.client import Library, LibraryUnavailable
from jlog.kafka.client.library import path_of_library


def test_the_library_of_the_client_is_found_in_the_process():
    confluent_kafka = pytest.importorskip("confluent_kafka")
    path = path_of_library()
    assert path is not None
    assert Library(path).version == confluent_kafka.libversion()[0]


def test_a_path_without_a_library_is_said(tmp_path):
    with pytest.raises(LibraryUnavailable, match="cannot open shared object file"):
        Library(str(tmp_path / "none.so"))


def test_a_library_that_lacks_a_call_is_said_with_its_name():
    other = ctypes.util.find_library("c")
    assert other is not None
    with pytest.raises(LibraryUnavailable, match="has no rd_kafka_version"):
        Library(other)

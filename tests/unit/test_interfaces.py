"""The protocols of jlog.interfaces, beside the classes of both backends; mypy compares the types in jlog/urls.py."""

import inspect
from typing import Literal, get_args, get_type_hints

import pytest

import jlog
import jlog.kafka
from jlog import options
from jlog.kafka.client.records import KafkaBatch, KafkaRecord
from jlog.positions.work_files import ORDERS

PAIRS = [
    (jlog.WriterProtocol, jlog.Writer),
    (jlog.WriterProtocol, jlog.kafka.TopicWriter),
    (jlog.ReaderProtocol, jlog.Reader),
    (jlog.ReaderProtocol, jlog.kafka.TopicReader),
    (jlog.JournalProtocol, jlog.Journal),
    (jlog.JournalProtocol, jlog.kafka.TopicJournal),
    (jlog.RecordBatchProtocol, jlog.RecordBatch),
    (jlog.RecordBatchProtocol, KafkaBatch),
    (jlog.RecordProtocol, jlog.Record),
    (jlog.RecordProtocol, KafkaRecord),
]


def members(protocol):
    return {name for name in vars(protocol) if not name.startswith("_") or name in ("__iter__", "__len__", "__getitem__")}


@pytest.mark.parametrize(("protocol", "backend"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_backends_have_every_member_of_their_protocol(protocol, backend):
    assert members(protocol) <= set(dir(backend))


@pytest.mark.parametrize(("protocol", "backend"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_backends_have_every_public_member_that_they_share(protocol, backend):
    twins = [kind for found, kind in PAIRS if found is protocol]
    shared = set.intersection(*({name for name in dir(kind) if not name.startswith("_")} for kind in twins))
    unlike = {"options", "count"}  # options is an object of another kind in each, count is for the core
    assert shared - unlike <= members(protocol), f"{backend.__name__} and its twin share more than the protocol says"


@pytest.mark.parametrize("name", ["append", "extend", "flush", "close"])
def test_a_writers_methods_take_what_the_protocol_says(name):
    wanted = list(inspect.signature(getattr(jlog.WriterProtocol, name)).parameters)
    assert list(inspect.signature(getattr(jlog.kafka.TopicWriter, name)).parameters) == wanted


def test_the_openers_return_the_protocols():
    found = [inspect.signature(opener).return_annotation for opener in (jlog.open_writer, jlog.open_reader, jlog.open_journal)]
    assert found == ["WriterProtocol", "ReaderProtocol", "JournalProtocol"]


@pytest.mark.parametrize(
    ("kind", "option", "allowed"),
    [
        (jlog.Writer, "compression", options.COMPRESSIONS),
        (jlog.Writer, "roll", options.ROLLS),
        (jlog.Writer, "sync", options.SYNCS),
        (jlog.Worker, "order", ORDERS),
    ],
)
def test_a_type_checker_knows_the_values_that_an_option_may_have(kind, option, allowed):
    hint, nothing = get_args(get_type_hints(kind.__init__, localns={"Codec": object})[option])
    assert (hint, nothing) == (Literal[allowed], type(None))

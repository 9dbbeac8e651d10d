"""Names of headers that one side has no way to say."""

from __future__ import annotations

import pytest

import jlog
from behaviour.journals import values
from jlog.kafka import Capture, Mirror, RecordRefused
from kafka.processes import fill
from kafka.witness import numbered


def test_a_name_that_is_not_utf_8_is_a_refused_record(witness, topic, url, journal):
    """Everything before it is captured, and it is told where it is. It can be passed over."""
    witness.make(topic)
    witness.produce(topic, numbered(10))
    witness.produce_with_header(topic, b"refused", b"n\xff")
    witness.produce(topic, numbered(10, 10))
    with pytest.raises(RecordRefused, match="partition 0, offset 10 is refused: the name of one of its headers is not UTF-8"):
        Capture(url, journal, until_end=True).run()
    assert values(journal) == numbered(10)
    said = []
    stats = Capture(url, journal, until_end=True, refused="skip", on_event=said.append).run()
    assert (stats.refused, values(journal)) == (1, numbered(20))
    assert "offset 10 is refused" in said[0]


@pytest.mark.parametrize("refused", ["skip", "dead-letter"])
def test_a_transform_passes_over_it(witness, topic, url, refused):
    witness.make(topic)
    witness.produce_with_header(topic, b"refused", b"n\xff")
    witness.produce(topic, numbered(10))
    letters = {"dead_letter": f"{topic}.refused"} if refused == "dead-letter" else {}
    jlog.transform(url, witness.url(f"{topic}.sink"), lambda record: record, refused=refused, **letters)
    assert witness.values(f"{topic}.sink") == numbered(10)
    if letters:
        assert witness.values(f"{topic}.refused") == [b"refused"]


def test_a_name_with_a_nul_is_a_refused_record(witness, topic, url, journal):
    """The client would cut it there."""
    fill(journal, 5)
    with jlog.Writer(journal) as writer:
        writer.append(b"refused", headers=[("n\0ame", b"1")])
    fill(journal, 5, 5)
    with pytest.raises(RecordRefused, match="record 5 is refused: the name of one of its headers has a NUL"):
        Mirror(journal, url, until_end=True).run()
    assert witness.values(topic) == numbered(5)
    Mirror(journal, url, until_end=True, refused="dead-letter", dead_letter=f"{topic}.refused").run()
    assert witness.values(topic) == numbered(10)
    (letter,) = witness.fields(f"{topic}.refused")
    assert letter.value == b"refused"

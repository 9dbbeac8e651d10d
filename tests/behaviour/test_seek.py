"""seek, lag, and reading backward."""

from datetime import datetime, timedelta, timezone

import pytest

import jlog
from behaviour.journals import fill, read_away, sequences, value_of


@pytest.fixture
def hundred(writer, path):
    fill(writer, 100)
    return path


@pytest.fixture(params=["billing", None], ids=["named", "anonymous"])
def reader(request, hundred):
    with jlog.Reader(hundred, request.param) as reader:
        yield reader


@pytest.mark.parametrize(
    ("to", "expected"), [("begin", 0), ("end", 100), (0, 0), (100, 100), *[(i, i) for i in range(1, 100, 7)]]
)
def test_seek_moves_the_position_and_the_lag(reader, to, expected):
    reader.seek(50)
    reader.seek(to)
    assert (reader.position, reader.lag) == (expected, 100 - expected)
    assert sequences(reader) == list(range(expected, 100))


def test_seek_does_not_move_what_is_committed(hundred):
    with jlog.Reader(hundred, "billing") as reader:
        reader.seek(50)
        assert reader.committed == 0
    with jlog.Reader(hundred, "billing") as reader:
        assert reader.position == 0


def test_seek_finds_a_time(reader, hundred):
    found = jlog.Reader(hundred, start=40).read(1)[0]
    reader.seek(found.timestamp)
    assert reader.position <= 40
    assert next(iter(reader)).timestamp_us == found.timestamp_us
    reader.seek(datetime.now(timezone.utc) + timedelta(days=1))
    assert reader.position == 100


REFUSED = {
    "naive": (datetime(2024, 1, 1), ValueError, "time zone"),  # noqa: DTZ001
    "beyond the end": (101, ValueError, "101"),
    "negative": (-1, ValueError, "-1"),
    "checkpoint": ("name", ValueError, "rewind"),
    "float": (5.0, TypeError, "5.0"),
    "None": (None, TypeError, "None"),
}


@pytest.mark.parametrize(("to", "error", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_an_impossible_place_is_refused_and_the_position_stays(reader, to, error, said):
    reader.seek(50)
    with pytest.raises(error, match=said):
        reader.seek(to)
    assert reader.position == 50
    assert next(iter(reader)).sequence == 50


def test_an_iterator_goes_on_from_where_seek_has_moved(reader):
    records = iter(reader)
    next(records)
    reader.seek(90)
    assert next(records).sequence == 90
    reader.seek(10)
    assert next(records).sequence == 10


def test_lag_grows_with_the_journal(reader, writer):
    reader.seek("end")
    assert reader.lag == 0
    fill(writer, 7)
    assert reader.lag == 7


# --- Backward -----------------------------------------------------------------------------------------------------


def test_backward_is_newest_first_and_moves_the_position_back(reader):
    reader.seek("end")
    assert [record.sequence for record in reader.read_backward(3)] == [99, 98, 97]
    assert reader.position == 97
    assert [record.sequence for record in reader.read_backward(2)] == [96, 95]
    assert sequences(reader) == list(range(95, 100))


def test_backward_ends_at_the_first_record(reader):
    reader.seek(5)
    assert [record.value for record in reader.read_backward(100)] == [value_of(i) for i in (4, 3, 2, 1, 0)]
    assert reader.position == 0
    assert reader.read_backward(10) == []


def test_backward_over_all_segments_is_the_reverse(reader):
    forward = list(reader)
    assert reader.read_backward(1000) == forward[::-1]


def test_backward_one_by_one_is_the_reverse(reader):
    reader.seek("end")
    found = []
    while record := reader.read_backward(1):
        found += record
    assert [record.sequence for record in found] == list(range(99, -1, -1))


def test_backward_ends_at_what_retention_has_left(hundred):
    read_away(hundred, "billing", 60)
    first = jlog.Journal(hundred).first_sequence
    assert first > 0
    with jlog.Reader(hundred, start="end") as reader:
        assert [record.sequence for record in reader.read_backward(1000)] == list(range(99, first - 1, -1))
        assert reader.position == first


def test_backward_takes_at_least_1(reader):
    with pytest.raises(ValueError, match="at least 1"):
        reader.read_backward(0)


@pytest.mark.parametrize("text", ["5", "-1", "+3"])
def test_a_number_as_text_is_told_from_a_checkpoint(hundred, text):
    with pytest.raises(ValueError, match="a sequence is an int from 0 on, and not a text"):
        jlog.Reader(hundred, start=text)


@pytest.mark.parametrize("hours", [-14, 14])
def test_a_time_at_the_edge_of_the_calendar_is_a_time(hundred, hours):
    """In UTC it is before the year 1, or after the year 9999."""
    zone = timezone(timedelta(hours=hours))
    time = datetime.min.replace(tzinfo=zone) if hours > 0 else datetime.max.replace(tzinfo=zone)
    expected = 0 if hours > 0 else 100
    with jlog.Reader(hundred, start=time) as reader:
        assert reader.position == expected
        reader.seek(time)
        assert reader.position == expected
    assert jlog.Journal(hundred).find(time) == expected
    assert jlog.scan(hundred, start=time).to_arrow().num_rows == 100 - expected

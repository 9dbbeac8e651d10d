"""A call that is accepted does no damage: its options read back, and no wrong argument is taken for damage or for nothing."""

import copy
import pickle
import sys
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import exhaustive
import jlog

AGES = st.none() | st.timedeltas() | st.just(timedelta.max)
SIZES = st.none() | st.integers(-1, 1 << 70)
ENDS = st.text(st.sampled_from('a/é"\\\0\ud800'), max_size=9) | st.sampled_from([100, 1 << 16, 4 << 20]).map(
    lambda size: "a" * size
)
URLS = st.none() | ENDS.map("file:///".__add__)


@settings(max_examples=exhaustive.count(20, 300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "delete_read": st.booleans(),
            "max_bytes": SIZES,
            "max_age": AGES,
            "keep_for_subscribers": st.booleans(),
            "subscriber_max_age": AGES,
            "limit_bytes": SIZES,
            "archive": URLS,
            "archive_on_roll": st.booleans(),
        },
    ),
    st.floats() | st.integers(),
    st.integers(),
)
def test_every_option_that_is_accepted_reads_back(tmp_path_factory, fields, sync_interval, segment_bytes):
    path = tmp_path_factory.mktemp("accepted") / "j"
    with jlog.Writer(path) as writer:
        writer.append(b"precious")
    try:
        retention = jlog.Retention(**fields)
    except ValueError:
        retention = None
    for options in ({"retention": retention}, {"sync_interval": sync_interval}, {"segment_bytes": segment_bytes}):
        try:
            jlog.Writer(path, **options).close()
        except ValueError:
            continue
        kept = jlog.Journal(path).options
        for name, value in options.items():
            if isinstance(value, jlog.Retention):
                for field in ("max_age", "subscriber_max_age"):
                    stored, given_age = getattr(kept.retention, field), getattr(value, field)
                    if given_age is None:
                        assert stored is None
                    else:
                        assert stored == timedelta(seconds=given_age.total_seconds())
                assert (kept.retention.archive, kept.retention.max_bytes) == (value.archive, value.max_bytes)
            elif value is not None:
                assert getattr(kept, name) == value
    assert list(jlog.Reader(path).values()) == [b"precious"]


@pytest.mark.parametrize("field", ["max_age", "subscriber_max_age"])
def test_an_age_that_cannot_be_kept_is_refused(field):
    with pytest.raises(ValueError, match=f"{field} has more seconds than a timedelta holds"):
        jlog.Retention(**{field: timedelta.max})


def test_an_archive_that_journal_meta_has_no_room_for_is_refused():
    with pytest.raises(ValueError, match="at most 65536 characters"):
        jlog.Retention(archive="file:///" + "a" * (4 << 20))


def test_a_deep_stack_is_not_damage(path):
    jlog.Writer(path).close()
    seen = set()

    def deep(number):
        if number:
            return deep(number - 1)
        return jlog.Reader(path).close()

    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit() - 5):
        try:
            deep(depth)
            seen.add(None)
        except RecursionError as error:
            seen.add(type(error))
    assert seen == {None, RecursionError}


# --- Arguments -----------------------------------------------------------------------------------------------------------


def test_headers_may_be_a_dict(path):
    with jlog.Writer(path) as writer:
        writer.append(b"x", headers={"name": b"value", "none": None})
        writer.extend([b"y"], headers=[{"name": b"value"}])
    assert [record.headers for record in jlog.Reader(path)] == [[("name", b"value"), ("none", None)], [("name", b"value")]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": "x"}, r"^value must be bytes, not str; encode it with \.encode\(\)$"),
        ({"value": b"x", "key": "k"}, "^key must be bytes, not str"),
        ({"value": b"x", "headers": [("h", "v")]}, "^the value of a header must be bytes, not str"),
        ({"value": 5}, "^value must be bytes or another bytes-like object, not int"),
    ],
)
def test_a_wrong_type_names_the_argument(path, arguments, message):
    with jlog.Writer(path) as writer, pytest.raises(TypeError, match=message):
        writer.append(arguments.pop("value"), **arguments)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_records_and_batches_can_be_copied_and_pickled(path, again):
    with jlog.Writer(path) as writer:
        writer.append(b"x", key=b"k", headers=[("h", b"v")], timestamp_us=5)
        writer.append(None)
    batch = jlog.Reader(path).read()
    records = list(batch)
    assert [again(record) for record in records] == records
    assert again(records[0]).headers == [("h", b"v")]
    copied = again(batch)
    assert len(copied) == 2
    assert list(copied) == records
    assert copied[1] == records[1]


def test_a_subscriber_may_come_before_the_journal(path):
    with jlog.Reader(path, "billing") as reader, jlog.Writer(path) as writer:
        writer.append(b"x")
        assert [record.value for record in reader] == [b"x"]


@pytest.mark.parametrize(("name", "create"), [(None, True), ("billing", False), ("a/b", True)])
def test_a_reader_without_a_name_to_create_creates_no_journal(path, name, create):
    with pytest.raises((jlog.JournalNotFound, ValueError)):
        jlog.Reader(path, name, create=create)
    assert not path.exists()


@pytest.mark.parametrize(("start", "hint"), [("earliest", "'begin'"), ("latest", "'end'")])
def test_kafkas_words_for_a_start_get_a_hint(path, start, hint):
    jlog.Writer(path).close()
    with pytest.raises(jlog.CheckpointNotFound, match=f"did you mean {hint}"):
        jlog.Reader(path, "billing", start=start)


def test_a_timeout_that_is_not_a_number_fails_at_once(path):
    jlog.Writer(path).close()
    reader = jlog.Reader(path)
    for call in (reader.follow, reader.follow_async, lambda timeout: reader.read(timeout=timeout)):
        with pytest.raises(TypeError, match="timeout must be a number of seconds, or None to wait for ever, not '1'"):
            call(timeout="1")
    with pytest.raises(TypeError, match="lock_timeout must be a number of seconds"):
        jlog.Writer(path, lock_timeout="1")

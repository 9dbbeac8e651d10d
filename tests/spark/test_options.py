"""The options of the source and their values. Spark hands them over as strings, under names in small letters."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from jlog.spark.reading.options import parse

PAGE = Path(__file__).parent.parent.parent / "docs" / "spark.md"


def parsed(**given: str) -> Any:
    return parse({"path": "/orders", **given})


def test_names_may_be_written_in_any_case() -> None:
    assert parsed(STARTINGSEQUENCE="5").start == 5


def test_a_place_is_for_all_journals_or_for_each() -> None:
    assert parsed().start is None
    assert parsed(startingsequence=" Latest ").start == "latest"
    assert parsed(endingsequence='{"a": 5, "b": "earliest"}').end == {"a": 5, "b": "earliest"}


def test_a_time_is_in_iso_8601_or_milliseconds() -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
    for text in ("2026-11-20T12:00:00Z", "2026-11-20 14:00+02:00", str(int(noon.timestamp() * 1000))):
        assert parsed(startingtimestamp=text).start == noon
        assert parsed(endingtimestamp=f'{{"a": "{text}"}}').end == {"a": noon}


def test_sizes_may_have_units() -> None:
    sizes = {"4096": 4096, "64k": 64 << 10, "128M": 128 << 20, "1GiB": 1 << 30}
    assert {text: parsed(maxbytespertrigger=text).max_bytes_per_trigger for text in sizes} == sizes


def test_delays_are_written_as_in_spark() -> None:
    delays = {"500": 0.5, "500ms": 0.5, "30s": 30, " 15M ": 900, "2min": 120, "1h": 3600, "1d": 86400}
    assert {text: parsed(maxtriggerdelay=text).max_trigger_delay for text in delays} == delays
    assert parsed().max_trigger_delay == 900
    with pytest.raises(ValueError, match="minRecordsPerTrigger, 5, is above maxRecordsPerTrigger, 4"):
        parsed(minrecordspertrigger="5", maxrecordspertrigger="4")


def test_one_path_or_several_are_given() -> None:
    assert parse({"paths": '["/a", "/b"]'}).paths == ("/a", "/b")
    with pytest.raises(ValueError, match="no path is given"):
        parse({})


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        (
            "startingsequence",
            "first",
            "option startingSequence: 'first' is neither earliest, latest, a sequence, nor JSON",
        ),
        ("endingsequence", '{"a": 1', "is not valid JSON of the form"),
        ("startingsequence", "-1", "is neither earliest"),
        ("startingtimestamp", "2026-11-20 12:00", "is not a time with a UTC offset"),
        ("endingtimestamp", "yesterday", "is not a time with a UTC offset"),
        ("failondataloss", "no", "option failOnDataLoss: 'no' is neither true nor false"),
        ("mode", "dropmalformed", "'dropmalformed' is neither failfast nor permissive"),
        ("minpartitions", "0", "'0' is not a whole number above 0"),
        ("maxrecordspertrigger", "1e6", "'1e6' is not a whole number above 0"),
        ("maxbytesperpartition", "many", "'many' is not a number of bytes; write 131072, 128K or 64MiB"),
        ("maxtriggerdelay", "soon", "option maxTriggerDelay: 'soon' is not a duration; write it in w, d, h, m, s and ms"),
        ("archive", "yes", "neither true, false, nor a URL"),
        ("journals", " , ", "name one or more journals"),
        ("journalpattern", "(", "is not a regular expression"),
        ("subscriber", "a/b", "cannot name a subscriber"),
        ("startingsequnce", "1", "no option startingsequnce; it has archive, checkpointLocation, damagePath"),
    ],
)
def test_a_wrong_value_is_told_with_what_would_be_right(option: str, value: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parsed(**{option: value})


def test_two_options_for_the_same_thing_are_refused() -> None:
    with pytest.raises(ValueError, match="startingSequence and startingTimestamp both"):
        parsed(startingsequence="1", startingtimestamp="1")
    with pytest.raises(ValueError, match="journals and journalPattern both"):
        parsed(journals="a", journalpattern="b")


def test_the_page_names_every_option() -> None:
    told = set(re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    with pytest.raises(ValueError, match="it has ") as raised:
        parsed(unknown="1")
    known = set(str(raised.value).rpartition("it has ")[2].split(", ")) - {"path", "paths"}
    assert known <= {name for names in told for name in names}

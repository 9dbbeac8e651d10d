"""The rights that docs/kafka-reference.md lists suffice, each of them is needed, and an error names the one that is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import exhaustive
import jlog
from jlog.kafka import Capture, Mirror, Standby, positions, promote, status, verify
from kafka.processes import captured, fill, position
from kafka.secured import Right, Secured
from kafka.test_command import run
from kafka.witness import numbered
from patience import wait_until

TABLE = "jlog.mirror.{topic}.{uuid}"


class Place(NamedTuple):
    """Where a scenario takes place; `config` is that of the user whose rights are tested."""

    broker: Secured
    folder: Path
    topic: str
    config: dict[str, str]
    prefix: str

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def url(self) -> str:
        return self.broker.secured_url(self.topic)

    @property
    def free_url(self) -> str:
        """For one who may do all."""
        return self.broker.url(self.topic)

    @property
    def free(self) -> dict[str, str]:
        return {"prefix": self.prefix}

    def names(self) -> dict[str, str]:
        return {"topic": self.topic, "uuid": jlog.Journal(self.journal).uuid}


def right(text: str) -> Right:
    """Parses `write topic NAME`."""
    operation, rest = text.split(" ", 1)
    kind = next(kind for kind in ("topic", "group", "transactional id") if rest.startswith(kind))
    return Right(operation, kind, rest[len(kind) + 1 :])


# --- What users do --------------------------------------------------------------------------------------------------


def mirror(at: Place, **how: Any) -> None:
    Mirror(at.journal, at.url, until_end=True, config=at.config, **how).run()


def mirrored(at: Place, **how: Any) -> None:
    Mirror(at.journal, at.free_url, until_end=True, config=at.free, **how).run()


def made(at: Place) -> None:
    at.broker.make(at.topic)
    at.broker.produce(at.topic, numbered(10))


def capture(at: Place, **how: Any) -> None:
    for _ in range(2):  # the second time there is a journal, and its mirrors are looked for
        Capture(at.url, at.folder / "copy", until_end=True, config=at.config, **how).run()
    assert len(jlog.Journal(at.folder / "copy")) == 10


def capture_with_rights_of_its_own(at: Place) -> None:
    capture(at)
    assert status(at.folder / "copy", at.url, config=at.config).lag.records == 0
    assert verify(at.folder / "copy", at.url, config=at.config).compared == 10


def look_at_a_mirror(at: Place) -> None:
    assert status(at.journal, at.url, config=at.config).sequence == 10
    assert positions(at.journal, at.url, config=at.config)


def compare(at: Place) -> None:
    assert verify(at.journal, at.url, config=at.config).compared == 10


def keep_standby(at: Place) -> None:
    Standby(at.url, at.folder / "standby", until_end=True, config=at.config).run()


def with_standby(at: Place) -> None:
    mirrored(at, standby=True)
    Standby(at.free_url, at.folder / "standby", until_end=True, config=at.free).run()
    fill(at.journal, 10, 10)
    mirrored(at, standby=True)  # so that something is left to read


def take_over(at: Place) -> None:
    promote(at.url, at.folder / "standby", config=at.config)


def change(at: Place) -> None:
    jlog.transform(at.url, f"{at.url}.clean", lambda record: record, name="clean", config=at.config)


def write(at: Place, **how: Any) -> None:
    with jlog.open_writer(at.url, config=at.config, **how) as writer:
        writer.extend(numbered(10))


def read(at: Place) -> None:
    with jlog.open_reader(at.url, config=at.config) as reader:
        assert list(reader.values()) == numbered(10)


def subscribe(at: Place) -> None:
    with jlog.open_reader(at.url, f"{at.prefix}billing", config=at.config) as reader:
        assert list(reader.values()) == numbered(10)
        reader.commit()
        reader.checkpoint("here")
        reader.rewind("here")


class Scenario(NamedTuple):
    name: str
    prepare: Callable[[Place], Any]
    act: Callable[[Place], Any]
    rights: Sequence[str]


OF_TABLE = f"read topic {TABLE}", f"write topic {TABLE}", f"create topic {TABLE}", f"write transactional id {TABLE}"
OF_CLEAN = [text.format(topic="{topic}.clean", uuid="clean") for text in OF_TABLE]
OF_STANDBY = [text.replace("{uuid}", "{standby}") for text in OF_TABLE]
SCENARIOS = [
    Scenario("mirror", lambda _: None, mirror, ["write topic {topic}", "create topic {topic}", *OF_TABLE]),
    Scenario("capture", made, capture_with_rights_of_its_own, ["read topic {topic}"]),
    Scenario("group", made, partial(capture, group="burrow"), ["read topic {topic}", "read group burrow"]),
    Scenario("status", mirrored, look_at_a_mirror, [f"read topic {TABLE}"]),
    Scenario("verify", mirrored, compare, ["read topic {topic}", f"read topic {TABLE}"]),
    Scenario("standby", partial(mirrored, standby=True), keep_standby, ["read topic {topic}", f"read topic {TABLE}"]),
    Scenario(
        "promote",
        with_standby,
        take_over,
        [
            "read topic {topic}",
            *(text for text in OF_TABLE if not text.startswith("create")),
            *OF_STANDBY,
        ],
    ),
    Scenario(
        "transform", made, change, ["read topic {topic}", "write topic {topic}.clean", "create topic {topic}.clean", *OF_CLEAN]
    ),
    Scenario("writer", lambda _: None, write, ["write topic {topic}", "create topic {topic}"]),
    Scenario("reader", made, read, ["read topic {topic}"]),
    Scenario(
        "subscriber",
        made,
        subscribe,
        [
            *("read topic {topic}", "read group billing", "read group jlog.reader.{topic}.0.billing"),
            *("read topic jlog.checkpoints", "write topic jlog.checkpoints"),
        ],
    ),
]
by_name = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def place(secured, folder, prefix=""):
    folder.mkdir(exist_ok=True)
    topic = prefix + secured.unique("rights")
    at = Place(secured, folder, topic, {}, prefix)
    fill(at.journal, 10)
    return at


def rights_of(scenario: Scenario, at: Place) -> list[Right]:
    names = at.names()
    if (at.folder / "standby").exists():
        names["standby"] = jlog.Journal(at.folder / "standby").uuid
    return [right(text.format(**names)) for text in scenario.rights]


@pytest.fixture(scope="module")
def with_checkpoints(secured):
    """The topic for checkpoints exists, as in a cluster that was used before."""
    url = secured.make(secured.unique("any"))
    with jlog.open_reader(url, "any") as reader:
        reader.checkpoint("any")


@by_name
def test_the_rights_of_the_manual_suffice(secured, with_checkpoints, tmp_path, scenario):
    at = place(secured, tmp_path)
    scenario.prepare(at)
    scenario.act(at._replace(config=secured.user(rights_of(scenario, at))))


OFTEN = "mirror", "subscriber"


@pytest.mark.parametrize(
    "scenario",
    [scenario if scenario.name in OFTEN else exhaustive.only(scenario) for scenario in SCENARIOS if scenario.name != "group"],
    ids=lambda scenario: scenario.name,
)
def test_the_rights_of_one_prefix_suffice(secured, tmp_path, scenario):
    at = place(secured, tmp_path, "acme.")
    scenario.prepare(at)
    rights = {(operation, kind, "acme.") for operation, kind, _ in rights_of(scenario, at)}
    rights.add(("create", "topic", "acme."))  # of the topic for checkpoints, which is made once
    config = secured.user([Right(*one) for one in rights], prefixed=True)
    scenario.act(at._replace(config={**config, "prefix": "acme."}))


@pytest.mark.exhaustive
@by_name
def test_each_right_of_the_manual_is_needed_and_named(secured, with_checkpoints, tmp_path, scenario):
    for number in range(len(scenario.rights)):
        at = place(secured, tmp_path / str(number))
        scenario.prepare(at)
        rights = rights_of(scenario, at)
        missing = rights.pop(number)
        user = at._replace(config=secured.user(rights))
        with pytest.raises(jlog.JournalError) as raised:  # which right is needless, `missing` says
            scenario.act(user)
        found = re.search("the cluster's ACLs do not allow it to this user, who needs (.*) on (.*)", str(raised.value))
        assert found, (missing, str(raised.value))
        # Without its right to read or to write, a user may not even describe the topic.
        assert found[1].lower() in (missing.operation, "describe"), (missing, str(raised.value))
        named = any(fnmatchcase(f"{missing.kind} {missing.name}", one) for one in found[2].split(" and on "))
        assert named, (missing, str(raised.value))


def test_a_command_without_a_right_ends_with_1_and_names_it(secured, tmp_path):
    at = place(secured, tmp_path)
    secured.make(at.topic)
    table = TABLE.format(**at.names())
    config = secured.user([right(f"write topic {at.topic}"), right(f"create topic {table}"), right(f"read topic {table}")])
    settings = tmp_path / "settings"
    settings.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    code, _, said = run("mirror", "to-kafka", "--until-end", "--config", settings, at.journal, at.url)
    assert code == 1
    assert f"the cluster's ACLs do not allow it to this user, who needs Write on topic {table}" in said


# --- Rights that are taken away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["topic", "table", "transactional id"])
def test_a_mirror_whose_right_is_taken_away_ends(secured, processes, tmp_path, what):
    at = place(secured, tmp_path)
    rights = rights_of(SCENARIOS[0], at)
    settings = tmp_path / "settings"
    config = secured.user(rights)
    settings.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    running = processes("to-kafka", "--config", settings, at.journal, at.url)
    wait_until(lambda: position(at.journal) == 10)
    kind, name = ("topic", at.topic) if what == "topic" else (what.replace("table", "topic"), TABLE.format(**at.names()))
    secured.deny(config["sasl.username"], Right("write", kind, name))
    fill(at.journal, 10, 10)
    code, said = running.wait()
    assert code == 1
    needed = said.partition("the cluster's ACLs do not allow it to this user, who needs Write on ")[2]
    assert f"{kind} {name}" in needed.strip().split(" and on ")


def test_a_capture_whose_right_is_taken_away_ends(secured, processes, tmp_path):
    at = place(secured, tmp_path)
    made(at)
    settings = tmp_path / "settings"
    config = secured.user([right(f"read topic {at.topic}")])
    settings.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    running = processes("from-kafka", "--config", settings, at.url, tmp_path / "copy")
    wait_until(lambda: captured(tmp_path / "copy") == 10)
    secured.deny(config["sasl.username"], Right("read", "topic", at.topic))
    code, said = running.wait()
    assert code == 1
    assert "the cluster's ACLs do not allow it to this user, who needs" in said
    assert f"topic {at.topic}" in said

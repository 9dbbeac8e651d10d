"""jlog.metrics: what Prometheus reads of journals, over HTTP as it does."""

import logging
import os
import shutil
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

import jlog
from behaviour.journals import SMALL, fill, read_away
from jlog.metrics import (
    COUNTERS,
    JOURNAL_GAUGES,
    SUBSCRIBER_GAUGES,
    WORK_COUNTERS,
    WORK_GAUGES,
    Collector,
    exposition,
    serve,
)
from patience import HUNG_SECONDS


def parsed(text):
    """{(sample's name, labels): value}, of text that Prometheus can read."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Scraped:
    def __init__(self, text):
        self.text = text
        self.samples = parsed(text)

    def __call__(self, name, path, **labels):
        return self.samples[name, frozenset({"journal": str(path), **labels}.items())]

    def has(self, name, path, **labels):
        return (name, frozenset({"journal": str(path), **labels}.items())) in self.samples


def scrape(server):
    with urllib.request.urlopen(server.url, timeout=HUNG_SECONDS) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return Scraped(answer.read().decode())


@pytest.fixture
def server(path):
    with serve([path], "127.0.0.1:0") as server:
        yield server


def test_a_scrape_says_what_the_journal_says(path, server):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
        writer.sync()
        jlog.Journal(path).add_subscriber("billing", start=30)
        found, stats = scrape(server), jlog.Journal(path).stats()
        assert found("jlog_up", path) == 1
        assert found("jlog_next_sequence", path) == 100
        assert found("jlog_durable_sequence", path) == 100
        assert found("jlog_records_appended_total", path) == 100
        assert found("jlog_appended_bytes_total", path) == 100 * (100 + 8)
        assert found("jlog_records", path) == 100
        assert found("jlog_size_bytes", path) == stats.size_bytes
        assert found("jlog_segments", path) == stats.segments > 1
        assert found("jlog_writers", path) == 1
        assert found("jlog_rolls_total", path) == stats.rolls > 0
        assert found("jlog_syncs_total", path) == 1
        assert found("jlog_subscriber_lag_records", path, subscriber="billing") == 70
        assert found("jlog_subscriber_committed_sequence", path, subscriber="billing") == 30


def test_a_scrape_says_what_workers_do(path, server):
    with jlog.Writer(path) as writer:
        writer.extend([b"%d" % number for number in range(10)])
    options = {"max_attempts": 3, "dead_letters": f"{path}.dead", "backoff": (3600, 3600)}
    with jlog.Worker(path, "resize", window=5, **options) as worker, jlog.Worker(path, "resize") as other:
        tasks = worker.take(4)
        tasks[0].ack()
        tasks[1].nack()
        tasks[2].reject("for good")
        held = other.take(3)
        assert worker.take(5, timeout=0) == []
        found = scrape(server)
        at = {"subscriber": "resize"}
        figures = {"workers": 2, "taken": 4, "delayed": 1, "unfinished": 8, "window_full": 1}
        totals = {"takes": 7, "finished": 2, "failures": 1, "rejected": 1, "deaths": 0}
        assert {name: found(f"jlog_work_{name}", path, **at) for name in figures} == figures
        assert {name: found(f"jlog_work_{name}_total", path, **at) for name in totals} == totals
        assert found("jlog_worker_taken", path, **at, pid=str(os.getpid())) == 4
        options = {"order": "any", "max_attempts": "3", "dead_letters": f"{path}.dead"}
        assert found("jlog_work_info", path, **at, **options) == 1
        assert jlog.Journal(path).stats().subscribers["resize"].work.full
        other.ack(held)


def test_each_scrape_looks_anew(path, server):
    with jlog.Writer(path) as writer:
        jlog.Journal(path).add_subscriber("billing")
        for records in (1, 2, 3):
            fill(writer, 1)
            found = scrape(server)
            assert found("jlog_records", path) == records
            assert found("jlog_subscriber_lag_records", path, subscriber="billing") == 1
            read_away(path, "billing")


def test_every_counter_of_the_control_page_is_there(path, server):
    jlog.Journal.create(path)
    found = scrape(server)
    for counter in jlog.Journal(path).stats().counters:
        name = COUNTERS[counter][0] if counter in COUNTERS else f"jlog_{counter}"
        assert found(f"{name}_total", path) == 0


def test_a_dead_subscriber_is_seen_with_what_it_holds_back(path, server):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 200)
        for name in ("gone", "alive"):
            jlog.Journal(path).add_subscriber(name)
        with jlog.Reader(path, "alive") as reader:
            list(reader.values())
            reader.commit()
            found = scrape(server)
            gone, alive = {"subscriber": "gone"}, {"subscriber": "alive"}
            sealed = [segment for segment in jlog.Journal(path).segments() if segment.sealed]
            held = sum(segment.size_bytes for segment in sealed)
            assert found("jlog_subscriber_held_bytes", path, **gone) == held > 0
            assert found("jlog_subscriber_held_bytes", path, **alive) == 0
            assert (
                found("jlog_subscriber_busy", path, **gone),
                found("jlog_subscriber_busy", path, **alive),
            ) == (0, 1)
            assert found("jlog_subscriber_lag_records", path, **gone) == 200
            oldest = found("jlog_subscriber_oldest_unread_seconds", path, **gone)
            assert oldest > found("jlog_subscriber_idle_seconds", path, **gone) > 0
            assert found("jlog_subscriber_oldest_unread_seconds", path, **alive) == 0


def test_an_unreadable_journal_is_down_and_the_rest_goes_on(tmp_path):
    whole, missing, broken = (tmp_path / name for name in ("whole", "missing", "broken"))
    for path in (whole, broken):
        jlog.Journal.create(path)
    (broken / "journal.meta").write_bytes(b"no journal")
    with serve([missing, broken, whole], "127.0.0.1:0") as server:
        found = scrape(server)
        assert [found("jlog_up", path) for path in (missing, broken, whole)] == [0, 0, 1]
        assert found("jlog_records", whole) == 0
        assert not found.has("jlog_records", missing)
        jlog.Journal.create(missing)
        assert scrape(server)("jlog_up", missing) == 1
        jlog.Journal.delete(missing)
        found = scrape(server)
        assert (found("jlog_up", missing), found("jlog_up", whole)) == (0, 1)
    shutil.rmtree(broken)


def test_why_a_journal_is_down_is_logged_once_until_it_changes(path, caplog):
    collector = Collector([path])
    with caplog.at_level(logging.WARNING, "jlog.metrics"):
        for _ in range(3):
            list(collector.collect())
        assert [str(path) in record.message for record in caplog.records] == [True]
        jlog.Journal.create(path)
        list(collector.collect())
        jlog.Journal.delete(path)
        list(collector.collect())
    assert len(caplog.records) == 2


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "ünïcode", "new line"])
def test_names_of_any_kind_are_labels(tmp_path, name):
    path = tmp_path / f"{name}\n"
    jlog.Journal.create(path).add_subscriber(name)
    assert Scraped(exposition([path]))("jlog_subscriber_lag_records", path, subscriber=name) == 0


def test_a_path_that_is_not_unicode_is_escaped(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    jlog.Journal.create(path)
    assert Scraped(exposition([path]))("jlog_up", f"{tmp_path}/\\udcff") == 1


def test_a_journal_that_is_given_twice_is_told_once(path):
    jlog.Journal.create(path)
    text = exposition([path, str(path)])
    assert text.count("\njlog_up{") == 1


def test_units_and_kinds_are_told_by_the_names(path):
    jlog.Journal.create(path).add_subscriber("billing")
    for family in text_string_to_metric_families(exposition([path])):
        assert family.name.startswith("jlog_")
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
    names = [*(name for name, _ in COUNTERS.values()), *JOURNAL_GAUGES, *SUBSCRIBER_GAUGES, *WORK_GAUGES, *WORK_COUNTERS]
    assert len(set(names)) == len(names)


def test_it_joins_a_registry_of_the_applications(path):
    jlog.Journal.create(path)
    registry = CollectorRegistry()
    Gauge("answer", "Of the application.", registry=registry).set(42)
    with serve([path], "127.0.0.1:0", registry=registry) as server:
        found = scrape(server)
    assert found.samples["answer", frozenset()] == 42
    assert found("jlog_up", path) == 1
    assert [metric.name for metric in registry.collect()] == ["answer"]


def test_scrapes_that_come_at_once_are_all_answered(path, server):
    with jlog.Writer(path, **SMALL) as writer:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(scrape(server))) for _ in range(8)]
        for thread in threads:
            thread.start()
        fill(writer, 300)
        for thread in threads:
            thread.join()
    assert [answer("jlog_up", path) for answer in answers] == [1] * 8


def test_closed_it_answers_no_more_and_the_port_is_free_again(path):
    server = serve([path], "127.0.0.1:0")
    server.close()
    with pytest.raises(urllib.error.URLError):
        scrape(server)
    with serve([path], f"127.0.0.1:{server.port}"):
        pass


def test_a_port_that_is_taken_is_an_error_that_names_it(path, server):
    with pytest.raises(OSError, match=f"in use: '127.0.0.1:{server.port}'"):
        serve([path], f"127.0.0.1:{server.port}")


@pytest.mark.parametrize("listen", ["9464", "::1:9464", "[::1:9464", "localhost:http", "localhost:70000", ""])
def test_a_bad_address_to_listen_on_is_refused(path, listen):
    with pytest.raises(ValueError, match="not an ADDRESS:PORT"):
        serve([path], listen)

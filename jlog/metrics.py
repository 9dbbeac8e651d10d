"""Statistics of journals for Prometheus. Needs the extra pyjlog[metrics]."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIServer

from jlog import Journal, Stats, SubscriberStats
from jlog.errors import JournalError
from jlog.positions.log_place import PLACE
from jlog.positions.position_files import SharedWork
from jlog.system.filesystem import EMPTY

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector as _Collector
except ImportError as error:
    raise ImportError("jlog.metrics needs prometheus-client, which is not installed: pip install 'pyjlog[metrics]'") from error

__all__ = ["Collector", "Server", "exposition", "serve"]

Family = CounterMetricFamily | GaugeMetricFamily

LISTEN = "127.0.0.1:9464"
_LISTEN = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<address>[^:\[\]]*)):(?P<port>[0-9]{1,5})")

# Counters of Stats.counters. One that is not listed is exported as jlog_NAME_total.
COUNTERS: dict[str, tuple[str, str]] = {
    "records": ("jlog_records_appended", "Records appended, by all processes."),
    "raw_bytes": ("jlog_appended_bytes", "Bytes of records appended, before compression."),
    "stored_bytes": ("jlog_written_bytes", "Bytes of blocks written to segments, after compression."),
    "blocks": ("jlog_blocks", "Blocks that went from the pre-commit buffer to a segment."),
    "direct_blocks": ("jlog_direct_blocks", "Blocks that were written past the pre-commit buffer."),
    "flushes": ("jlog_flushes", "Flushes that were asked for."),
    "syncs": ("jlog_syncs", "Syncs to the disk, however many callers shared one."),
    "rolls": ("jlog_rolls", "Segments begun."),
    "waits": ("jlog_append_waits", "Times a writer waited for another one's append."),
    "takeovers": ("jlog_takeovers", "Times a writer took over from one that died within an append."),
    "wakes": ("jlog_reader_wakes", "Times waiting readers were woken."),
}
JOURNAL_GAUGES: dict[str, tuple[str, Callable[[Stats], float]]] = {
    "jlog_first_sequence": ("Sequence of the first record kept.", lambda at: at.first_sequence),
    "jlog_next_sequence": ("Sequence of the next record.", lambda at: at.next_sequence),
    "jlog_durable_sequence": ("The records before it survive a power loss.", lambda at: at.durable_end),
    "jlog_records": ("Records kept.", lambda at: at.records),
    "jlog_size_bytes": ("Content of the segment files, once the pre-commit buffer is written there.", lambda at: at.size_bytes),
    "jlog_open_block_bytes": ("Records in the pre-commit buffer alone.", lambda at: at.open_bytes),
    "jlog_segments": ("Segment files.", lambda at: at.segments),
    "jlog_writers": ("Living processes that have it open for writing.", lambda at: at.writers),
}
SUBSCRIBER_GAUGES: dict[str, tuple[str, Callable[[SubscriberStats], float | None]]] = {
    "jlog_subscriber_committed_sequence": ("Where reading resumes after a crash.", lambda at: at.sequence),
    "jlog_subscriber_lag_records": ("Records it has not committed.", lambda at: at.lag),
    "jlog_subscriber_oldest_unread_seconds": (
        "Age of its next record, 0 without one; no sample where that record cannot be read.",
        lambda at: at.oldest_unread_seconds if at.lag else 0,
    ),
    "jlog_subscriber_idle_seconds": ("Since it last committed.", lambda at: at.idle_seconds),
    "jlog_subscriber_held_bytes": ("Sealed segments that it keeps from going.", lambda at: at.held_bytes),
    "jlog_subscriber_busy": ("1 while a reader has its name.", lambda at: at.busy),
    "jlog_subscriber_dead": ("1 with a lag and nobody there for a day.", lambda at: at.dead),
    "jlog_subscriber_expired": ("1 when it holds nothing back any more.", lambda at: at.expired),
    "jlog_subscriber_damaged": ("1 when its position cannot be read.", lambda at: at.damaged),
}
# Of a subscriber that workers share.
WORK_GAUGES: dict[str, tuple[str, Callable[[SharedWork], float]]] = {
    "jlog_work_taken": ("Records that its workers have taken and not finished.", lambda at: at.taken),
    "jlog_work_delayed": ("Records that wait for their next attempt.", lambda at: at.delayed),
    "jlog_work_unfinished": ("Records that are still to be done.", lambda at: at.unfinished),
    "jlog_work_workers": ("Living workers.", lambda at: len(at.workers)),
    "jlog_work_window_full": ("1 when new records wait until unfinished ones are done.", lambda at: at.full),
}
WORK_COUNTERS: dict[str, tuple[str, Callable[[SharedWork], float]]] = {
    "jlog_work_takes": ("Times a record was taken.", lambda at: at.takes),
    "jlog_work_finished": ("Records finished.", lambda at: at.finishes),
    "jlog_work_failures": ("Failures of a record, without deaths.", lambda at: at.failures),
    "jlog_work_rejected": ("Records given up.", lambda at: at.rejections),
    "jlog_work_deaths": ("Failures that were the death of a worker.", lambda at: at.deaths),
}

LOG_FILE_COUNTERS = {
    "files_left_out": ("jlog_follow_files_left_out", "Files beside a followed log that were left out."),
    "lines_cut": ("jlog_follow_lines_cut", "Lines of a followed log that were too long."),
}


class Collector(_Collector):
    """Looks at journals when Prometheus asks, and keeps nothing open in between. A journal that cannot be read has jlog_up 0,
    and the reason is logged to `jlog.metrics` when it changes; the others go on.

    journals: paths, which become the label `journal` unchanged.
    registry: where it registers itself; None: nowhere.
    """

    def __init__(self, journals: Iterable[str | os.PathLike[str]], *, registry: CollectorRegistry | None = None) -> None:
        self._paths = list(dict.fromkeys(os.fspath(path) for path in journals))
        if "" in self._paths:
            raise ValueError(EMPTY)
        self._journals: dict[str, Journal] = {}
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()  # several scrapes may come at the same time
        if registry is not None:
            registry.register(self)

    def describe(self) -> list[Family]:
        """Returns nothing, so that a registry does not look at the journals to learn the names."""
        return []

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        with self._lock:
            for path in self._paths:
                found = self._look(path)
                name = _label(path)
                _add(families, GaugeMetricFamily, "jlog_up", "1 when it can be read.", found is not None, journal=name)
                if found is not None:
                    _add_journal(families, name, found)
                    _add_log_files(families, self._journals[path], name)
        yield from families.values()

    def _look(self, path: str) -> Stats | None:
        try:
            if path not in self._journals:
                self._journals[path] = Journal(path)
            found = self._journals[path].stats()
        except (JournalError, OSError) as error:
            if self._reasons.get(path) != str(error):
                logging.getLogger("jlog.metrics").warning("%s", error)
            self._reasons[path] = str(error)
            return None
        self._reasons.pop(path, None)
        return found


def _add_journal(families: dict[str, Family], journal: str, found: Stats) -> None:
    counters = {**found.counters, "records": found.appends, "raw_bytes": found.bytes}  # with those of the open block
    for counter, value in counters.items():
        name, text = COUNTERS.get(counter, (f"jlog_{counter}", f"Counter {counter} of the control page."))
        _add(families, CounterMetricFamily, name, text, value, journal=journal)
    for name, (text, value_of) in JOURNAL_GAUGES.items():
        _add(families, GaugeMetricFamily, name, text, value_of(found), journal=journal)
    for subscriber, at in found.subscribers.items():
        for name, (text, value_of_subscriber) in SUBSCRIBER_GAUGES.items():
            gauge = value_of_subscriber(at)
            if gauge is not None:
                _add(families, GaugeMetricFamily, name, text, gauge, journal=journal, subscriber=subscriber)
        if at.work is not None:
            _add_work(families, at.work, journal=journal, subscriber=subscriber)


def _add_log_files(families: dict[str, Family], journal: Journal, name: str) -> None:
    try:
        state = journal.state()
    except (JournalError, OSError):
        return  # the rest was read
    for key, place in state.items():
        if key.startswith(PLACE):
            labels = {"journal": name, "file": _label(os.fsdecode(key.removeprefix(PLACE)))}
            for counter, (metric, text) in LOG_FILE_COUNTERS.items():
                _add(families, CounterMetricFamily, metric, text, json.loads(place).get(counter, 0), **labels)


def _add_work(families: dict[str, Family], work: SharedWork, **labels: str) -> None:
    for name, (text, value_of) in WORK_GAUGES.items():
        _add(families, GaugeMetricFamily, name, text, value_of(work), **labels)
    for name, (text, value_of) in WORK_COUNTERS.items():
        _add(families, CounterMetricFamily, name, text, value_of(work), **labels)
    options = {name: getattr(work.options, name) for name in ("order", "max_attempts", "dead_letters")}
    stated = {name: "" if value is None else _label(str(value)) for name, value in options.items()}
    _add(families, GaugeMetricFamily, "jlog_work_info", "1, with the options of its workers.", 1, **labels, **stated)
    by_pid: dict[int, int] = {}  # a process may have several workers
    for worker in work.workers:
        by_pid[worker["pid"]] = by_pid.get(worker["pid"], 0) + worker["taken"]
    for pid, taken in by_pid.items():
        text = "Records that the workers of this process have taken and not finished."
        _add(families, GaugeMetricFamily, "jlog_worker_taken", text, taken, **labels, pid=str(pid))


def _label(path: str) -> str:
    """Returns what stands for the path in a label, which must be Unicode, as a path need not be."""
    return path.encode(errors="backslashreplace").decode()


def _add(families: dict[str, Family], kind: type[Family], name: str, text: str, value: float, **labels: str) -> None:
    family = families.setdefault(name, kind(name, text, labels=list(labels)))
    family.add_metric(list(labels.values()), float(value))


def exposition(journals: Iterable[str | os.PathLike[str]]) -> str:
    """Returns the metrics as they are now, in Prometheus' text format."""
    registry = CollectorRegistry()
    Collector(journals, registry=registry)
    return generate_latest(registry).decode()


class Server:
    """Serves metrics over HTTP, in threads that do not keep the process alive, until close(). Also a context manager."""

    def __init__(self, httpd: WSGIServer, thread: threading.Thread, registry: CollectorRegistry, collector: Collector) -> None:
        self._httpd = httpd
        self._thread = thread
        self._registry = registry
        self._collector = collector
        self.port: int
        address, self.port = httpd.server_address[:2]
        host = address.decode() if isinstance(address, bytes) else str(address)
        self.url: str = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def close(self) -> None:
        """Frees the port, and takes the journals out of the registry."""
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()
        self._registry.unregister(self._collector)

    def __enter__(self) -> Server:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_health(metrics: Any, not_ready: Callable[[], list[str]] | None) -> Any:
    """Returns the WSGI application of the metrics with /healthz and /readyz."""

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO")
        if path != "/healthz" and (path != "/readyz" or not_ready is None):
            return metrics(environ, start_response)
        missing = not_ready() if path == "/readyz" and not_ready is not None else []
        start_response("503 Service Unavailable" if missing else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return ["".join(f"{line}\n" for line in missing or ["ok"]).encode()]

    return answer


def serve(
    journals: Iterable[str | os.PathLike[str]],
    listen: str = LISTEN,
    *,
    registry: CollectorRegistry | None = None,
    not_ready: Callable[[], list[str]] | None = None,
) -> Server:
    """Serves the journals' metrics, and those of others in `registry`, at http://ADDRESS:PORT/metrics. At /healthz it answers
    200 while the process lives.

    not_ready: what is not ready now, a line for each; with it /readyz answers 200 where nothing is missing, and else 503 with
        these lines.
    listen: "ADDRESS:PORT"; port 0: any free one, see Server.port; ":9464": every IPv4 address; "[::1]:9464" for IPv6.
    Raises ValueError for a text that is not an address, OSError where the address is not free.
    """
    address, port = parse_listen(listen)
    registry = CollectorRegistry() if registry is None else registry
    collector = Collector(journals, registry=registry)
    try:
        httpd, thread = start_http_server(port, address, registry)
    except OSError as error:
        registry.unregister(collector)
        raise OSError(error.errno, error.strerror or str(error), listen) from error
    httpd.set_app(_with_health(httpd.get_app(), not_ready))
    return Server(httpd, thread, registry, collector)


def parse_listen(listen: str) -> tuple[str, int]:
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"{listen!r} is not an ADDRESS:PORT to listen on; write {LISTEN}, :9464 or [::1]:9464")
    return found["ipv6"] or found["address"] or "0.0.0.0", int(found["port"])

"""Metrics of running flows for Prometheus. Needs the extra pyjlog[metrics]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jlog.flow.stats import Lags, Watched

COUNTERS = {
    "records": "Records moved, in committed transactions.",
    "bytes": "Bytes of their values.",
    "transactions": "Transactions committed.",
    "aborted": "Transactions given up, since a record was refused.",
    "refused": "Records left out, or put with the dead letters.",
    "missing": "Records that retention removed before they were read.",
    "retries": "Times that the other end could not be reached, or did not answer.",
}


class FlowCollector(Collector):
    """Collects the counts of the flows for Prometheus. The name of a flow becomes the label `mirror`.

    A lag that could not be found out has no sample.
    """

    def __init__(self, flows: Mapping[str, Watched]) -> None:
        self._flows = flows
        self._lags = Lags(flows)

    def close(self) -> None:
        """Looks at the lags no more."""
        self._lags.close()

    def describe(self) -> list[Metric]:
        """Returns nothing, so that a registry does not look at the flows to learn the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        for counter, text in COUNTERS.items():
            family = CounterMetricFamily(f"jlog_mirror_{counter}", text, labels=["mirror"])
            for name, flow in [*self._flows.items()]:
                family.add_metric([name], getattr(flow.stats, counter))
            yield family
        up = GaugeMetricFamily("jlog_mirror_up", "1 while both ends can be reached.", labels=["mirror"])
        for name, flow in [*self._flows.items()]:
            up.add_metric([name], float(flow.is_open))
        yield up
        yield from self._lag_families()

    def _lag_families(self) -> Iterator[Metric]:
        records = GaugeMetricFamily("jlog_mirror_lag_records", "Records not moved yet.", labels=["mirror"])
        size = GaugeMetricFamily("jlog_mirror_lag_bytes", "The same in bytes, estimated.", labels=["mirror"])
        age = GaugeMetricFamily("jlog_mirror_lag_seconds", "Age of the oldest record not moved.", labels=["mirror"])
        labels = ["mirror", "topic", "partition"]
        parts = GaugeMetricFamily("jlog_mirror_partition_lag_records", "The same for each partition.", labels=labels)
        for name, lag in [*self._lags.known.items()]:
            for family, value in ((records, lag.records), (size, lag.bytes), (age, lag.seconds)):
                if value is not None:
                    family.add_metric([name], value)
            for part, records_left in lag.parts.items():
                topic, _, partition = part.rpartition("/")
                parts.add_metric([name, topic, partition], records_left)
        yield from (records, size, age, parts)

    def not_ready(self) -> list[str]:
        """Returns the flows of which one end, or a part of it, cannot be reached; everything where there is no flow yet."""
        flows = [*self._flows.items()]
        if not flows:
            return ["no mirror has begun"]
        problems = {
            name: flow.stats.problem if flow.is_open else flow.stats.last_error or "it has not begun" for name, flow in flows
        }
        return [f"{name}: {problem}" for name, problem in problems.items() if problem]

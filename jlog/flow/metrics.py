"""Metrics of running flows for Prometheus. Needs the extra pyjlog[metrics]."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jlog.errors import JournalError
from jlog.flow.engine import Flow

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
    """Looks at the flows when Prometheus asks. The name of a flow becomes the label `mirror`. A lag that cannot be found out
    has no sample."""

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        self._flows = flows

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
        yield from self._lags()

    def _lags(self) -> Iterator[Metric]:
        records = GaugeMetricFamily("jlog_mirror_lag_records", "Records behind the source's end.", labels=["mirror"])
        size = GaugeMetricFamily("jlog_mirror_lag_bytes", "The same in bytes, estimated.", labels=["mirror"])
        age = GaugeMetricFamily("jlog_mirror_lag_seconds", "Age of the oldest record not moved.", labels=["mirror"])
        for name, flow in [*self._flows.items()]:
            try:
                lag = flow.lag()
            except (JournalError, OSError) as error:
                logging.getLogger("jlog.metrics").warning("%s: %s", name, error)
                continue
            for family, value in ((records, lag.records), (size, lag.bytes), (age, lag.seconds)):
                if value is not None:
                    family.add_metric([name], value)
        yield from (records, size, age)

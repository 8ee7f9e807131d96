"""A gate's metrics for `prometheus_client`: `pip install callgate[prometheus]`.

    from prometheus_client import REGISTRY
    REGISTRY.register(CallgateCollector(gate))

`callgate.metrics` serves the same without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from callgate.gate import Gate
from callgate.metrics import Family, families_of


class CallgateCollector(Collector):
    """Collects the metrics of one or more gates. Where there are several, the label `gate` is their
    place among the arguments."""

    def __init__(self, *gates: Gate) -> None:
        if not gates:
            raise TypeError("CallgateCollector needs 1 or more gates")
        self._gates = gates

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        return map(_metric_of, families_of(*self._gates))

    def describe(self) -> Iterator[Metric]:
        """The metrics' names, for the registry to see that nobody else has them."""
        return map(_metric_of, families_of(*self._gates))


def _metric_of(family: Family) -> Metric:
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    names = list(family.samples[0][0]) if family.samples else []
    metric = make(family.name, f"{family.help}.", labels=names)
    for labels, value in family.samples:
        metric.add_metric(list(labels.values()), value)
    return metric

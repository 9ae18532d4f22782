"""The running gateway's figures for Prometheus; nothing here names a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.app.metrics import MetricsServer
from agent.app.version import VERSION
from agent.runtime.health import Health
from gateway.commands import Commands
from gateway.config import GatewayMetricsConfig
from gateway.quota import Quota
from gateway.readings import Uplink

_PREFIX: Final = "device_gateway"


@dataclass(eq=False, slots=True)
class GatewayCollector(Collector):
    """Reads the figures when they are asked for.

    Attributes:
        started_s: when the process began, seconds since the epoch.
        counts: part -> event -> how often it happened.
    """

    started_s: float
    quota: Quota
    uplink: Uplink
    commands: Commands
    health: Health
    counts: Mapping[str, Mapping[str, int]]

    def collect(self) -> Iterator[Metric]:
        """All figures."""
        quota = self.quota
        yield InfoMetricFamily(_PREFIX, "The program", {"version": VERSION})
        yield GaugeMetricFamily(f"{_PREFIX}_start_timestamp_seconds", "When this process began", self.started_s)
        yield GaugeMetricFamily(f"{_PREFIX}_waiting", "Readings and results without an answer", self.uplink.waiting)
        for name, value in self.commands.figures().items():
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", name.replace("_", " ").capitalize(), value)
        requests = CounterMetricFamily(f"{_PREFIX}_requests", "Requests to the service", labels=["kind"])
        for kind, count in dict(quota.requests).items():
            requests.add_metric([str(kind)], count)
        yield requests
        yield CounterMetricFamily(f"{_PREFIX}_requests_refused", "Answers 429", quota.refused)
        if quota.limit is not None:
            yield GaugeMetricFamily(f"{_PREFIX}_quota", "Requests in one window", quota.limit)
        left = quota.left
        if left is not None:
            yield GaugeMetricFamily(f"{_PREFIX}_quota_left", "Left in this window", left)
        healthy = GaugeMetricFamily(f"{_PREFIX}_part_ok", "1 while this part is well", labels=["part"])
        for name, part in self.health.parts().items():
            healthy.add_metric([name], float(part.state == "ok"))
        yield healthy
        events = CounterMetricFamily(f"{_PREFIX}_events", "What happened", labels=["part", "event"])
        for name, counts in dict(self.counts).items():
            for event, count in dict(counts).items():
                events.add_metric([name, event], count)
        yield events


def serve_metrics(config: GatewayMetricsConfig, collector: GatewayCollector) -> MetricsServer:
    """Start the server of the figures.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    return MetricsServer(registry, config.host, config.port)

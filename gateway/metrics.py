"""Figures of the running gateway for Prometheus (text format, ``GET /metrics``), read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.adapters.metrics_server import MetricsServer
from agent.app.version import VERSION
from agent.runtime.health import Health
from agent.wire.limits import ONLINE_WITHIN_S
from gateway.engine import Engine

_PREFIX = "device_gateway"


class GatewayCollector(Collector):
    """Metrics of the gateway.

    Args:
        engine: the gateway.
        health: how its parts are.
        started_s: when this process began, epoch seconds.
    """

    def __init__(self, engine: Engine, health: Health, started_s: float) -> None:
        self._engine = engine
        self._health = health
        self._started_s = started_s

    def collect(self) -> Iterator[Metric]:
        """All figures; nothing here names a device."""
        yield InfoMetricFamily(_PREFIX, "The program", {"version": VERSION})
        yield GaugeMetricFamily(f"{_PREFIX}_start_timestamp_seconds", "When this process began", self._started_s)
        yield from self._store()
        yield from self._devices()
        yield from self._quota()
        healthy = GaugeMetricFamily(f"{_PREFIX}_part_ok", "1 while this part is well", labels=["part"])
        for name, part in self._health.parts().items():
            healthy.add_metric([name], float(part.state == "ok"))
        yield healthy
        fronts = CounterMetricFamily(f"{_PREFIX}_front_events", "What happened at a front", labels=["front", "event"])
        for front in self._engine.fronts:
            for event, count in front.status().counts.items():
                fronts.add_metric([front.name, event], count)
        yield fronts

    def _store(self) -> Iterator[Metric]:
        stats = self._engine.stats
        yield GaugeMetricFamily(f"{_PREFIX}_readings_waiting", "Readings that wait for the service", stats.readings)
        yield GaugeMetricFamily(f"{_PREFIX}_results_waiting", "Results that wait for the service", stats.results)
        yield GaugeMetricFamily(f"{_PREFIX}_waiting_bytes", "Their size", stats.size_bytes)
        yield GaugeMetricFamily(f"{_PREFIX}_set_aside", "What the service refused for good, kept", stats.set_aside)
        if stats.oldest_wall_s is not None:
            yield GaugeMetricFamily(
                f"{_PREFIX}_oldest_reading_timestamp_seconds", "When it was taken", stats.oldest_wall_s
            )
        commands = GaugeMetricFamily(f"{_PREFIX}_commands", "Commands by state", labels=["state"])
        for state, count in stats.commands.items():
            commands.add_metric([state], count)
        yield commands
        events = CounterMetricFamily(f"{_PREFIX}_events", "What happened, ever", labels=["event"])
        for name, count in stats.counters.items():
            events.add_metric([name], count)
        yield events

    def _devices(self) -> Iterator[Metric]:
        engine = self._engine
        yield GaugeMetricFamily(f"{_PREFIX}_devices", "Devices with a valid token", len(engine.roster.devices()))
        online = engine.backend.online(ONLINE_WITHIN_S)
        yield GaugeMetricFamily(f"{_PREFIX}_devices_online", f"Seen within {ONLINE_WITHIN_S} s", online)
        open_commands, held = engine.command_cache.counts()
        yield GaugeMetricFamily(f"{_PREFIX}_open_commands", "Commands that devices have not concluded", open_commands)
        yield GaugeMetricFamily(f"{_PREFIX}_held_polls", "Polls that are held open", held)
        yield GaugeMetricFamily(f"{_PREFIX}_overdue_polls", "Devices to ask about, late", engine.commands.overdue())

    def _quota(self) -> Iterator[Metric]:
        state = self._engine.budget()
        granted = CounterMetricFamily(f"{_PREFIX}_requests", "Requests to the service", labels=["kind"])
        for kind, count in state.granted.items():
            granted.add_metric([str(kind)], count)
        yield granted
        yield CounterMetricFamily(f"{_PREFIX}_requests_refused", "Answers 429", state.refused)
        if state.quota is not None:
            yield GaugeMetricFamily(f"{_PREFIX}_quota", "Requests in one window", state.quota)
            yield GaugeMetricFamily(f"{_PREFIX}_quota_left", "Left in this window", state.left or 0)


def serve_metrics(host: str, port: int, collector: Collector) -> MetricsServer:
    """Start the server of the gateway's metrics.

    Args:
        host: where.
        port: 0 takes a free one.
        collector: the figures.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    return MetricsServer(registry, host, port)

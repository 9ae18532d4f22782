"""The agent's metrics for Prometheus, read at each scrape; imported only with the section ``metrics``."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from agent.app.figures import DURATIONS_S, Figures
from agent.app.version import VERSION
from agent.core.timekeeping import ServiceTime
from agent.core.values import Moment, OutboxStats
from agent.errors import ConfigurationError, StorageError
from agent.runtime.health import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.ports import Clock

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError as _missing:
    _fault = (
        f"metrics: {_missing.name} is not installed: pip install '.[device]' in a clone of device-agent, or remove "
        "the section metrics"
    )
    raise ConfigurationError([_fault], "metrics") from None

_PREFIX: Final = "device_agent"


class MetricSources:
    """Functions that the metrics are read from. Each is called in the server's thread, for each page.

    Args:
        clock: both clocks.
        started: when this process began.
        starts: how many there were with this store.
        figures: what was counted at the ports.
        parts: how the agent's parts are, by name.
        outbox: what waits; may raise :class:`~agent.errors.StorageError`.
        commands: state -> how many are in the journal; likewise.
        service_time: what is known of the service's clock.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        started: Moment,
        starts: int,
        figures: Figures,
        parts: Callable[[], Mapping[str, Part]],
        outbox: Callable[[], OutboxStats],
        commands: Callable[[], Mapping[str, int]],
        service_time: Callable[[], ServiceTime],
    ) -> None:
        self.clock = clock
        self.started = started
        self.starts = starts
        self.figures = figures
        self.parts = parts
        self.outbox = outbox
        self.commands = commands
        self.service_time = service_time


class AgentCollector(Collector):
    """Prometheus collector of the agent's metrics. None names a device or holds anything that came from outside."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """All metrics, each read now."""
        sources, now = self._sources, self._sources.clock.now()
        yield InfoMetricFamily(_PREFIX, "The program", {"version": VERSION, "python": platform.python_version()})
        uptime_s = now.monotonic_s - sources.started.monotonic_s
        yield GaugeMetricFamily(f"{_PREFIX}_uptime_seconds", "Since the start of this process", uptime_s)
        yield CounterMetricFamily(f"{_PREFIX}_starts", "Starts with this store", sources.starts)
        threads = threading.active_count()
        yield GaugeMetricFamily(f"{_PREFIX}_threads", "Threads of this process", threads)
        part_ok = GaugeMetricFamily(f"{_PREFIX}_part_ok", "1 while this part is well", labels=["part"])
        for name, part in sources.parts().items():
            part_ok.add_metric([name], float(part.state == "ok"))
        yield part_ok
        yield from self._traffic(now)
        yield from self._clock(now)
        yield from self._outbox()

    def _traffic(self, now: Moment) -> Iterator[Metric]:
        figures = self._sources.figures
        commands, requests, durations, duration_sum_s = figures.copy()
        ended = CounterMetricFamily(
            f"{_PREFIX}_commands", "Commands that ended, by handler and outcome", labels=["handler", "outcome"]
        )
        for labels, count in sorted(commands.items()):
            ended.add_metric(labels, count)
        yield ended
        bounds = [*map(str, DURATIONS_S), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(durations)), strict=True))
        yield HistogramMetricFamily(
            f"{_PREFIX}_command_duration_seconds", "How long commands ran", buckets=buckets, sum_value=duration_sum_s
        )
        asked = CounterMetricFamily(
            f"{_PREFIX}_requests", "Polls, sent readings and reports, by result", labels=["kind", "result"]
        )
        for labels, count in sorted(requests.items()):
            asked.add_metric(labels, count)
        yield asked
        yield CounterMetricFamily(f"{_PREFIX}_rate_limited", "Answers 429", figures.rate_limited)
        last = figures.last_contact
        if last is not None:
            wall_s = now.wall_s - (now.monotonic_s - last.monotonic_s)
            yield GaugeMetricFamily(
                f"{_PREFIX}_last_contact_timestamp_seconds", "When the other side answered last", wall_s
            )

    def _clock(self, now: Moment) -> Iterator[Metric]:
        time = self._sources.service_time()
        service_s = time.at(now) if time.known else None
        if service_s is not None:
            name = f"{_PREFIX}_service_clock_offset_seconds"
            yield GaugeMetricFamily(name, "The service's clock minus this device's", service_s - now.wall_s)

    def _outbox(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(f"{_PREFIX}_store_up", "1 while the store answers")
        try:
            stats = self._sources.outbox()
            undeliverable = self._sources.commands().get("undeliverable", 0)
        except StorageError:
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield GaugeMetricFamily(f"{_PREFIX}_outbox_readings", "Readings that wait", stats.rows)
        yield GaugeMetricFamily(f"{_PREFIX}_outbox_bytes", "Their size", stats.size_bytes)
        if stats.oldest_wall_s is not None:
            name = f"{_PREFIX}_outbox_oldest_timestamp_seconds"
            yield GaugeMetricFamily(name, "When the oldest of them was read", stats.oldest_wall_s)
        yield GaugeMetricFamily(f"{_PREFIX}_readings_refused", "Readings refused for good, kept", stats.refused)
        yield CounterMetricFamily(f"{_PREFIX}_readings_accepted", "Readings taken in, ever", stats.accepted)
        yield CounterMetricFamily(f"{_PREFIX}_readings_delivered", "Readings handed over, ever", stats.delivered)
        yield CounterMetricFamily(f"{_PREFIX}_readings_dropped", "Readings dropped at a bound, ever", stats.dropped)
        text = "Results of commands that the service does not take, kept"
        yield GaugeMetricFamily(f"{_PREFIX}_results_undeliverable", text, undeliverable)


def make_registry(sources: MetricSources) -> CollectorRegistry:
    """A registry of the agent's own: the library's global one comes with collectors of the interpreter."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(sources))
    ProcessCollector(namespace=_PREFIX, registry=registry)
    return registry

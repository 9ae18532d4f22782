"""The agent's figures for Prometheus; imported only with the section ``metrics``."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.app.version import VERSION
from agent.core.timekeeping import ServiceTime
from agent.core.values import JournalEntry, Moment, OutboxStats
from agent.errors import ConfigurationError, StorageError
from agent.runtime.health import Health

if TYPE_CHECKING:
    from agent.ports import Clock

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        Info,
        ProcessCollector,
        disable_created_metrics,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as _missing:
    _fault = (
        f"metrics: {_missing.name} is not installed: pip install '.[device]' in a clone of device-agent, or remove "
        "the section metrics"
    )
    raise ConfigurationError([_fault], "metrics") from None

OTHER: Final = "other"
"""Stands for every handler that this agent does not have: names come from outside and would grow without end."""
_PREFIX: Final = "device_agent"
_DURATIONS_S: Final = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
_REQUESTS: Final = frozenset({"commands", "readings", "results"})
"""The parts whose every state is the end of a request."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is read at each scrape, in the server's thread.

    Attributes:
        clock: both clocks.
        started: when this process began.
        starts: how many there were with this store.
        handlers: those with a label of their own.
        health: how the agent's parts are, and were.
        outbox: what waits; may raise :class:`~agent.errors.StorageError`.
        commands: state -> how many are in the journal; likewise.
        service_time: what is known of the service's clock.
    """

    clock: Clock
    started: Moment
    starts: int
    handlers: frozenset[str]
    health: Health
    outbox: Callable[[], OutboxStats]
    commands: Callable[[], Mapping[str, int]]
    service_time: Callable[[], ServiceTime]


class AgentMetrics(Collector):
    """All figures of one agent. None names a device or holds anything that came from outside."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # The library's global registry comes with collectors of the interpreter.
        registry = self.registry = CollectorRegistry()
        disable_created_metrics()  # type: ignore[no-untyped-call]  # each family would be two
        Info(_PREFIX, "The program", registry=registry).info({"version": VERSION, "python": platform.python_version()})
        Gauge(f"{_PREFIX}_threads", "Threads of this process", registry=registry).set_function(threading.active_count)
        self._commands = Counter(
            f"{_PREFIX}_commands", "Commands that ended", labelnames=("handler", "outcome"), registry=registry
        )
        self._durations = Histogram(
            f"{_PREFIX}_command_duration_seconds", "How long commands ran", buckets=_DURATIONS_S, registry=registry
        )
        ProcessCollector(namespace=_PREFIX, registry=registry)
        registry.register(self)

    def ended(self, entry: JournalEntry) -> None:
        """A command ended, or was refused before it began."""
        if entry.outcome is None:
            return
        handler = entry.handler if entry.handler in self._sources.handlers else OTHER
        self._commands.labels(handler, str(entry.outcome.status)).inc()
        begun, finished = entry.started, entry.finished
        # Over a reboot it is not known how long it ran.
        if begun is not None and finished is not None and begun.boot_id == finished.boot_id:
            self._durations.observe(max(0.0, finished.monotonic_s - begun.monotonic_s))

    def collect(self) -> Iterator[Metric]:
        """What the agent's parts know, read now."""
        sources, now = self._sources, self._sources.clock.now()
        uptime_s = now.monotonic_s - sources.started.monotonic_s
        yield GaugeMetricFamily(f"{_PREFIX}_uptime_seconds", "Since the start of this process", uptime_s)
        yield CounterMetricFamily(f"{_PREFIX}_starts", "Starts with this store", sources.starts)
        part_ok = GaugeMetricFamily(f"{_PREFIX}_part_ok", "1 while this part is well", labels=["part"])
        for name, part in sources.health.parts().items():
            part_ok.add_metric([name], float(part.state == "ok"))
        yield part_ok
        requests = CounterMetricFamily(f"{_PREFIX}_requests", "Requests by their end", labels=["part", "state"])
        for (name, state), count in sources.health.counts().items():
            if name in _REQUESTS:
                requests.add_metric([name, state], count)
        yield requests
        last = max((sources.health.last_ok_wall_s(name) for name in _REQUESTS), default=0.0)
        if last:
            text = "When the other side answered last"
            yield GaugeMetricFamily(f"{_PREFIX}_last_contact_timestamp_seconds", text, last)
        time = sources.service_time()
        service_s = time.at(now) if time.known else None
        if service_s is not None:
            text = "The service's clock minus this device's"
            yield GaugeMetricFamily(f"{_PREFIX}_service_clock_offset_seconds", text, service_s - now.wall_s)
        yield from self._store()

    def _store(self) -> Iterator[Metric]:
        try:
            stats, commands = self._sources.outbox(), self._sources.commands()
        except StorageError:
            yield GaugeMetricFamily(f"{_PREFIX}_store_up", "1 while the store answers", 0.0)
            return
        yield GaugeMetricFamily(f"{_PREFIX}_store_up", "1 while the store answers", 1.0)
        yield GaugeMetricFamily(f"{_PREFIX}_outbox_readings", "Readings that wait", stats.rows)
        yield GaugeMetricFamily(f"{_PREFIX}_outbox_bytes", "Their size", stats.size_bytes)
        if stats.oldest_wall_s is not None:
            text = "When the oldest of them was read"
            yield GaugeMetricFamily(f"{_PREFIX}_outbox_oldest_timestamp_seconds", text, stats.oldest_wall_s)
        yield GaugeMetricFamily(f"{_PREFIX}_readings_refused", "Readings refused for good, kept", stats.refused)
        for name, text, count in (
            ("accepted", "taken in", stats.accepted),
            ("delivered", "handed over", stats.delivered),
            ("dropped", "dropped at a bound", stats.dropped),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_readings_{name}", f"Readings {text}, ever", count)
        text = "Results of commands that the service does not take, kept"
        yield GaugeMetricFamily(f"{_PREFIX}_results_undeliverable", text, commands.get("undeliverable", 0))

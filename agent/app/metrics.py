"""The agent's figures for Prometheus and their server, also the gateway's; needs the section ``metrics``."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from agent.app.version import VERSION
from agent.core.values import JournalEntry
from agent.errors import ConfigurationError, StorageError
from agent.wire.network import authority

if TYPE_CHECKING:
    from agent.app.agent import Agent

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Histogram,
        ProcessCollector,
        disable_created_metrics,
        start_http_server,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
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

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves the figures of a registry at ``GET /metrics``, from now on until :meth:`stop`.

    Args:
        registry: read at each request.
        host: to listen on.
        port: of TCP; 0 takes a free one.

    Raises:
        ConfigurationError: the address cannot be bound.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            text = f"metrics.port: {authority(host, port)} cannot be listened on: {error.strerror or error}"
            fault = f"{text}; choose another one, or remove the section metrics"
            raise ConfigurationError([fault], "metrics") from None
        _log.info("metrics=http://%s/metrics", authority(host, self._server.server_port))

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


class AgentMetrics(Collector):
    """All figures of one agent, read at each request. None names a device or holds anything that came from outside."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        # The library's global registry comes with collectors of the interpreter.
        registry = self.registry = CollectorRegistry()
        disable_created_metrics()  # type: ignore[no-untyped-call]  # each family would be two
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
        handler = entry.handler if entry.handler in self._agent.handlers.ready else OTHER
        self._commands.labels(handler, str(entry.outcome.status)).inc()
        begun, finished = entry.started, entry.finished
        # Over a reboot it is not known how long it ran.
        if begun is not None and finished is not None and begun.boot_id == finished.boot_id:
            self._durations.observe(max(0.0, finished.monotonic_s - begun.monotonic_s))

    def collect(self) -> Iterator[Metric]:
        """What the agent's parts know, read now."""
        process = self._agent.process
        now, health = process.clock.now(), process.health
        yield InfoMetricFamily(_PREFIX, "The program", {"version": VERSION, "python": platform.python_version()})
        yield _gauge("threads", "Threads of this process", threading.active_count())
        yield _gauge("uptime_seconds", "Since the start of this process", now.monotonic_s - process.started.monotonic_s)
        yield _counter("starts", "Starts with this store", self._agent.instance.instance.starts)
        part_ok = GaugeMetricFamily(f"{_PREFIX}_part_ok", "1 while this part is well", labels=["part"])
        for name, part in health.parts().items():
            part_ok.add_metric([name], float(part.state == "ok"))
        yield part_ok
        requests = CounterMetricFamily(f"{_PREFIX}_requests", "Requests by their end", labels=["part", "state"])
        for (name, state), count in health.counts().items():
            if name in _REQUESTS:
                requests.add_metric([name, state], count)
        yield requests
        if last := max(health.last_ok_wall_s(name) for name in _REQUESTS):
            yield _gauge("last_contact_timestamp_seconds", "When the other side answered last", last)
        time = self._agent.service_clock.estimate
        service_s = time.at(now) if time.boot_time is not None else None
        if service_s is not None:
            text = "The service's clock minus this device's"
            yield _gauge("service_clock_offset_seconds", text, service_s - now.wall_s)
        yield from self._store()

    def _store(self) -> Iterator[Metric]:
        store, text = self._agent.process.store, "1 while the store answers"
        try:
            outbox, commands = store.outbox.stats(), store.journal.counts()
        except StorageError:
            yield _gauge("store_up", text, 0)
            return
        yield _gauge("store_up", text, 1)
        yield _gauge("outbox_readings", "Readings that wait", outbox.rows)
        yield _gauge("outbox_bytes", "Their size", outbox.size_bytes)
        if outbox.oldest_wall_s is not None:
            yield _gauge("outbox_oldest_timestamp_seconds", "When the oldest of them was read", outbox.oldest_wall_s)
        yield _gauge("readings_refused", "Readings refused for good, kept", outbox.refused)
        yield _counter("readings_accepted", "Readings taken in, ever", outbox.accepted)
        yield _counter("readings_delivered", "Readings handed over, ever", outbox.delivered)
        yield _counter("readings_dropped", "Readings dropped at a bound, ever", outbox.dropped)
        text = "Results of commands that the service does not take, kept"
        yield _gauge("results_undeliverable", text, commands.get("undeliverable", 0))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", text, value)

"""Figures of a run that goes on: an address that Prometheus reads, and the view that keeps it up to date."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.errors import ConfigurationError
from simulator.fleet.record import RunRecord, Second, Span
from simulator.fleet.report.live import RunView
from simulator.fleet.report.prometheus.counting import Counting, period_of, planned_periods
from simulator.fleet.report.prometheus.families import counter, counting_health, gauge, info, measured
from simulator.fleet.report.run_status import RunHead, RunStatus, WorkerState
from simulator.report_parts.values import Tone


class MetricsAddress(Collector):
    """The figures so far on ``http://127.0.0.1:port/metrics``, made at each request.

    Args:
        port: 0 takes a free one.
        head: what is known of the run before it begins.

    Raises:
        ConfigurationError: the port is taken.
    """

    def __init__(self, port: int, head: RunHead) -> None:
        self._head = head
        self._lock = threading.Lock()
        self._counting = Counting(planned_periods(head.phases, head.faults))
        self._standing = RunStatus()
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, "127.0.0.1", registry)
        except OSError as error:
            raise ConfigurationError([f"--metrics-port {port}: {error.strerror}; choose another one, or 0"]) from None

    @property
    def url(self) -> str:
        """The address for Prometheus to scrape."""
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, second: Second, standing: RunStatus) -> None:
        """Add a second, and how the run stood in it."""
        with self._lock:
            self._counting.take(second, period_of(standing.phase, standing.faults))
            self._standing = standing

    def collect(self) -> Iterator[Metric]:
        """The figures so far; the library's server asks."""
        with self._lock:
            counting, standing = self._counting.copy(), self._standing
        return _families(self._head, counting, standing)


def _families(head: RunHead, counting: Counting, standing: RunStatus) -> Iterator[Metric]:
    """A run that goes on. What has no second yet is missing: 0 would be a measurement."""
    name = head.name
    about = {"scenario": name, "level": head.level, "transport": head.transport, "target": head.target}
    yield info("fleet_run_info", "What is run", about)
    yield from _spans("phase", head.phases, (standing.phase,) if standing.phase else (), name)
    yield from _spans("fault", head.faults, standing.faults, name)
    yield from measured(counting, name)
    if counting.second < 0:
        return
    yield gauge(
        "fleet_run_seconds", "How long the run has been going on", ["scenario"], [([name], counting.second + 1)]
    )
    yield from counting_health(counting, name)
    gauges = {"planned": float(head.devices), **counting.gauges}
    values = (([name, what], value) for what, value in sorted(gauges.items()))
    yield gauge("fleet_devices", "How the fleet stands", ["scenario", "what"], values)
    values = (([name, what], value) for what, value in sorted(counting.ledgers.items()))
    yield counter("fleet_ledger_entries", "What the devices' ledgers have", ["scenario", "what"], values)
    missing = sum(gap.to_s - gap.from_s for gap in standing.gaps)
    text = "Seconds of single workers that are in no figure, since the worker did not report them"
    yield counter("fleet_worker_seconds_missing", text, ["scenario"], [([name], missing)])
    states = Counter(worker.state for worker in standing.workers)
    values = (([name, state.value], float(states[state])) for state in WorkerState)
    yield gauge("fleet_workers", "Worker processes by what they do", ["scenario", "state"], values)


def _spans(what: str, planned: tuple[Span, ...], now: tuple[Span, ...], scenario: str) -> Iterator[Metric]:
    """Phases, or faults: which of them are under way."""
    kinds = {span.name: span.kind for span in (*planned, *now)}
    devices = {span.name: float(span.devices) for span in now}
    active = ((([scenario, name, kind]), float(name in devices)) for name, kind in kinds.items())
    yield gauge(f"fleet_{what}_active", f"1 while the {what} is under way", ["scenario", what, "kind"], active)
    if what == "fault":
        values = (([scenario, name, kind], devices.get(name, 0.0)) for name, kind in kinds.items())
        yield gauge("fleet_fault_devices", "Devices that the fault concerns now", ["scenario", what, "kind"], values)


class MeteredView(RunView):
    """A view that passes everything on and keeps the figures at an address up to date.

    Args:
        view: gets everything.
        address: served for as long as the view is open.
    """

    def __init__(self, view: RunView, address: MetricsAddress) -> None:
        self._view = view
        self._address = address

    def __enter__(self) -> Self:
        self._view.__enter__()
        self._view.note(f"figures for Prometheus: {self._address.url}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.__exit__(kind, error, trace)
        self._address.close()

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, such as ``making devices``; an empty text ends it."""
        self._view.stage(text, done, whole)

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event. See :class:`~simulator.fleet.report.live.RunView`."""
        self._view.note(text, tone)

    def show(self, second: Second, standing: RunStatus) -> None:
        """Show the latest second and how the run stands; what begins or ends by it is noted by itself."""
        self._address.take(second, standing)
        self._view.show(second, standing)

    def end(self, record: RunRecord) -> None:
        """Print the verdict and the figures of the run; the picture is gone then."""
        self._view.end(record)

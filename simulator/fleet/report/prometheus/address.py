"""Figures of a run that goes on: an address that Prometheus reads, and the view that keeps it up to date."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from agent.errors import ConfigurationError
from simulator.fleet.record import RunRecord, Second, Span
from simulator.fleet.report.live import RunView
from simulator.fleet.report.prometheus.counting import Counting, period_of, planned_periods
from simulator.fleet.report.prometheus.families import counter, counting_health, gauge, info, measured, text_of
from simulator.fleet.report.run_status import RunHead, RunStatus, WorkerState
from simulator.report_parts.values import Tone
from simulator.watched import PartEnded, make_thread

_PATH: Final = "/metrics"


class MetricsAddress:
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
        try:
            self._server = _Server(("127.0.0.1", port), self.text)
        except OSError as error:
            raise ConfigurationError([f"--metrics-port {port}: {error.strerror}; choose another one, or 0"]) from None
        self._ended: list[PartEnded] = []
        self._restarts = 0
        self._thread = self._make_thread()

    def _make_thread(self) -> threading.Thread:
        return make_thread(lambda: self._server.serve_forever(0.05), "metrics", self._note_end)

    def _note_end(self, name: str, error: BaseException) -> None:
        self._ended.append(PartEnded(name, error))

    @property
    def url(self) -> str:
        """The address for Prometheus to scrape."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{_PATH}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def go_on(self) -> str:
        """Serve again where an error has ended that; a sentence about it, empty when all is well."""
        if not self._ended:
            return ""
        ended = self._ended.pop()
        self._thread.join()
        with self._lock:
            self._restarts += 1
        self._thread = self._make_thread()
        self._thread.start()
        return f"the figures for Prometheus: {ended}; they are served again"

    def take(self, second: Second, standing: RunStatus) -> None:
        """Add a second, and how the run stood in it."""
        with self._lock:
            self._counting.take(second, period_of(standing.phase, standing.faults))
            self._standing = standing

    def text(self) -> str:
        """The figures so far."""
        with self._lock:
            counting, standing, restarts = self._counting.copy(), self._standing, self._restarts
        return text_of(_families(self._head, counting, standing, restarts))


def _families(head: RunHead, counting: Counting, standing: RunStatus, restarts: int) -> Iterator[Metric]:
    """A run that goes on. What has no second yet is missing: 0 would be a measurement."""
    name = head.name
    about = {"scenario": name, "level": head.level, "transport": head.transport, "target": head.target}
    yield info("fleet_run_info", "What is run", about)
    yield from _spans("phase", head.phases, (standing.phase,) if standing.phase else (), name)
    yield from _spans("fault", head.faults, standing.faults, name)
    text = "How often the serving of these figures was ended by an error and begun again"
    yield counter("fleet_metrics_restarts", text, ["scenario"], [([name], restarts)])
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
        self._address.__enter__()
        self._view.__enter__()
        self._view.note(f"figures for Prometheus: {self._address.url}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.__exit__(kind, error, trace)
        self._address.__exit__(kind, error, trace)

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, such as ``making devices``; an empty text ends it."""
        self._view.stage(text, done, whole)

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event. See :class:`~simulator.fleet.report.live.RunView`."""
        self._view.note(text, tone)

    def show(self, second: Second, standing: RunStatus) -> None:
        """Show the latest second and how the run stands; what begins or ends by it is noted by itself."""
        self._address.take(second, standing)
        if sentence := self._address.go_on():
            self._view.note(sentence, Tone.BAD)
        self._view.show(second, standing)

    def end(self, record: RunRecord) -> None:
        """Print the verdict and the figures of the run; the picture is gone then."""
        self._view.end(record)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], text: Callable[[], str]) -> None:
        self.text = text
        super().__init__(address, _Page)


class _Page(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        found = self.path.partition("?")[0] == _PATH
        body = self.server.text().encode() if found else f"the figures are at {_PATH}\n".encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST if found else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal belongs to the live view."""

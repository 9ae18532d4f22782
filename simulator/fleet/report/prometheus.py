"""Figures of a run for Prometheus: a file at the end, an address during the run.

Times are histograms with fixed bounds, which add up over runs and machines; quantiles would not. They are cumulative
counts of our own histograms, whose buckets are a thousandth wide.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import READING_AGE, ages_of, command_of
from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import Attempt
from simulator.fleet.record import Gap, GeneratorHealth, Operations, RunRecord, Second
from simulator.fleet.report.figures import resends_of, waited
from simulator.fleet.report.live import RunView
from simulator.fleet.report.standing import Standing
from simulator.fleet.report.summary import WRONGS, streams_of
from simulator.fleet.report.timeline import Totals
from simulator.report.values import Tone
from simulator.watched import PartEnded, make_thread

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
AGE_BOUNDS_S: Final = (*BOUNDS_S, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_HEALTH: Final = {
    "send_lag_p99_s": ("send_lag_p99_seconds", "99th percentile from intended to sent"),
    "send_lag_max_s": ("send_lag_max_seconds", "Longest time from intended to sent"),
    "loop_lag_max_s": ("loop_lag_max_seconds", "How late the loop woke up at most"),
    "gc_pause_max_s": ("gc_pause_max_seconds", "Longest pause of the garbage collector"),
    "steal_percent": ("steal_percent", "CPU time that the host took"),
    "cpu_percent": ("cpu_percent", "CPU of the busiest worker, percent of a core"),
}
_PATH: Final = "/metrics"


def record_metrics(record: RunRecord) -> str:
    """The file of a run that ended, in the text format 0.0.4."""
    verdict = GaugeMetricFamily("fleet_run_exit_code", "Exit code of the run", labels=["scenario", "verdict"])
    verdict.add_metric([record.name, record.verdict.word], record.verdict.exit_code)
    held = GaugeMetricFamily("fleet_threshold_held", "1 where the threshold held", labels=["threshold"])
    for result in (result for result in record.thresholds if result.judged):
        held.add_metric([result.expression], float(result.held))
    audit = GaugeMetricFamily("fleet_audit", "What the audit counted", labels=["stream", "what"])
    for name, stream in streams_of(record.audit) if record.audit else ():
        for what in ("sent", "accepted", "stored", *WRONGS, "ambiguous", "resent", "resent_ambiguous"):
            audit.add_metric([name, what], getattr(stream, what))
    return _text([*_operations(record.operations), *_ages(record.ages), *_health(record.health), verdict, held, audit])


def _operations(operations: Operations) -> Iterator[Metric]:
    counts = CounterMetricFamily("fleet_exchanges", "Exchanges that ended", labels=["operation", "outcome"])
    text = "Exchanges that were no first attempt: all earlier ones were refused, or one of them may have been stored"
    resends = CounterMetricFamily("fleet_resends", text, labels=["operation", "outcome", "attempt"])
    times = {
        measure: HistogramMetricFamily(f"fleet_{measure}_seconds", text, labels=["operation"])
        for measure, text in (
            ("response", "From the intended time to a good answer, or until none came"),
            ("service", "From the sent time to a good answer, or until none came"),
        )
    }
    for name, classes in sorted(operations.items()):
        for outcome, tally in sorted(classes.items()):
            counts.add_metric([name, outcome.value], tally.count)
            again = resends_of((tally,))
            resends.add_metric([name, outcome.value, Attempt.AFTER_REFUSAL.value], again.after_refusal)
            resends.add_metric([name, outcome.value, Attempt.AMBIGUOUS.value], again.ambiguous)
        for measure, family in times.items():
            if texts := waited(classes, measure):
                buckets, whole = _buckets(merged(texts), BOUNDS_S)
                family.add_metric([name], buckets, sum_value=whole)
    yield counts
    yield resends
    yield from times.values()


def _ages(operations: Operations) -> Iterator[Metric]:
    counts = CounterMetricFamily("fleet_readings", "Readings by what became of them", labels=["outcome"])
    text = "From the moment a reading was taken until it was accepted, or the run was over"
    times = HistogramMetricFamily("fleet_reading_age_seconds", text)
    for outcome, tally in sorted(operations.get(READING_AGE, {}).items()):
        counts.add_metric([outcome.value], tally.count)
    if texts := waited(operations.get(READING_AGE, {})):
        buckets, whole = _buckets(merged(texts), AGE_BOUNDS_S)
        times.add_metric([], buckets, sum_value=whole)
    yield from (counts, times, *_command_ages(operations))


def _command_ages(operations: Operations) -> Iterator[Metric]:
    labels = ["command", "state"]
    counts = CounterMetricFamily("fleet_commands", "Commands by name and end state; open: not ended", labels=labels)
    text = "From the order of a command until its end was known, or the run was over"
    times = HistogramMetricFamily("fleet_command_age_seconds", text, labels=labels)
    for operation, classes in sorted(ages_of(operations).items()):
        if (found := command_of(operation)) is None:
            continue
        counts.add_metric(list(found), sum(tally.count for tally in classes.values()))
        if texts := waited(classes):
            buckets, whole = _buckets(merged(texts), AGE_BOUNDS_S)
            times.add_metric(list(found), buckets, sum_value=whole)
    yield from (counts, times)


def _buckets(histogram: Histogram, bounds_s: Sequence[float]) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts up to each bound, and the sum of all values."""
    buckets = [(f"{bound:g}", float(histogram.count_at_most(bound))) for bound in bounds_s]
    whole = histogram.mean() * histogram.count if histogram.count else 0.0
    return [*buckets, ("+Inf", float(histogram.count))], whole


def _health(health: GeneratorHealth) -> Iterator[Metric]:
    for member, (name, text) in _HEALTH.items():
        yield GaugeMetricFamily(f"fleet_generator_{name}", text, value=getattr(health, member))
    yield CounterMetricFamily("fleet_generator_intended", "Requests that the plan asked for", value=health.intended)
    yield CounterMetricFamily("fleet_generator_sent", "Requests that went out", value=health.sent)
    text = "Requests that fell due and never ended"
    yield CounterMetricFamily("fleet_generator_undelivered", text, value=health.undelivered)


def _gauges(gauges: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily("fleet_devices", "How the fleet stands", labels=["what"])
    for name, value in sorted(gauges.items()):
        family.add_metric([name], value)
    return family


class _Given:
    """A collector of what is there already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _text(families: Iterable[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Given(families))
    return generate_latest(registry).decode()


class MetricsAddress:
    """The figures so far on ``http://127.0.0.1:port/metrics``, made when somebody asks.

    Args:
        port: 0 takes a free one.

    Raises:
        ConfigurationError: the port is taken.
    """

    def __init__(self, port: int) -> None:
        self._lock = threading.Lock()
        self._totals = Totals()
        self._latest: Second | None = None
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
        """What Prometheus is told to scrape."""
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
        """Serve again where an error has ended that; what a person is told of it, empty when all is well."""
        if not self._ended:
            return ""
        ended = self._ended.pop()
        self._thread.join()
        with self._lock:
            self._restarts += 1
        self._thread = self._make_thread()
        self._thread.start()
        return f"the figures for Prometheus: {ended}; they are served again"

    def take(self, second: Second) -> None:
        """Add a second."""
        with self._lock:
            self._totals.take(second)
            self._latest = second

    def text(self) -> str:
        """The figures so far; the generator's health and the gauges are those of the last second."""
        with self._lock:
            totals, latest = self._totals.operations, self._latest
            intended, sent, undelivered = self._totals.requests
            text = "How often the serving of these figures was ended by an error and begun again"
            restarts = CounterMetricFamily("fleet_metrics_restarts", text, value=self._restarts)
        measured = [*_operations(without_stages(totals)), *_ages(totals)]
        if latest is None:
            return _text([*measured, restarts])
        health = GeneratorHealth(
            **{name: getattr(latest.health, name) for name in _HEALTH},
            intended=intended,
            sent=sent,
            undelivered=undelivered,
        )
        return _text([*measured, *_health(health), _gauges(latest.gauges), restarts])


class MeteredView:
    """A view that passes everything on and keeps the figures at an address up to date.

    Args:
        view: who is told.
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
        """See :class:`~simulator.fleet.report.live.RunView`."""
        self._view.stage(text, done, whole)

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """See :class:`~simulator.fleet.report.live.RunView`."""
        self._view.note(text, tone)

    def gap(self, gap: Gap) -> None:
        """See :class:`~simulator.fleet.report.live.RunView`."""
        self._view.gap(gap)

    def show(self, second: Second, standing: Standing) -> None:
        """See :class:`~simulator.fleet.report.live.RunView`."""
        self._address.take(second)
        if told := self._address.go_on():
            self._view.note(told, Tone.BAD)
        self._view.show(second, standing)

    def end(self, record: RunRecord) -> None:
        """See :class:`~simulator.fleet.report.live.RunView`."""
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

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing: the terminal belongs to the live view."""

"""Figures of a run that goes on for Prometheus, and the view that keeps them up to date; docs/monitoring.md has them.

No count ever falls: that would be read as a restart of the program, and everything counted before as new. So each
second adds to the counts of its own phase and faults, and those of earlier phases stay as they are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, start_http_server
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import READING_AGE, command_of
from simulator.fleet.metrics.histogram import Counts, placed
from simulator.fleet.metrics.merging import is_cumulative, merge_health
from simulator.fleet.metrics.stages import FAMILY, STAGE_OPERATIONS
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, RunRecord, Second, Span, Tally
from simulator.fleet.report.figures import resends_of, waited_histograms
from simulator.fleet.report.live import RunView
from simulator.fleet.report.run_status import RunHead, RunStatus, WorkerState, phase_under_way, spans_under_way
from simulator.report_parts.values import Tone

_HEALTH_S: Final = 15
"""The generator's health is the worst of so many seconds: read it at least as often to see each spike."""
_WHEN: Final = ("phase", "fault")
_HEALTH: Final = {
    "send_lag_p99_s": ("send_lag_p99_seconds", 1.0, "99th percentile from intended to sent"),
    "send_lag_max_s": ("send_lag_max_seconds", 1.0, "Longest time from intended to sent"),
    "loop_lag_max_s": ("loop_lag_max_seconds", 1.0, "How late the event loop woke up at most"),
    "gc_pause_max_s": ("gc_pause_max_seconds", 1.0, "Longest pause of the garbage collector"),
    "steal_percent": ("steal_ratio", 0.01, "Share of CPU time that the host took"),
    "cpu_percent": ("cpu_ratio", 0.01, "CPU time of the busiest worker, 1 for a whole core"),
}


def _steps(lowest_s: float, highest_s: float) -> tuple[float, ...]:
    steps = (1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8)  # the preferred numbers R10 of ISO 3
    found = (float(f"{step * 10**decade:g}") for decade in range(-4, 4) for step in steps)
    return tuple(bound for bound in found if lowest_s <= bound <= highest_s)


_TIME_BOUNDS_S: Final = _steps(0.0001, 100.0)
"""Of response and service times: each a quarter above the one before, so that no quantile is further off."""
_AGE_BOUNDS_S: Final = _steps(0.001, 3150.0)
"""Of everything that may wait through an outage."""


@dataclass(slots=True)
class _Buckets:
    """How many values each bucket has, not cumulative, and the sum of all values."""

    counts: Counts
    sum_s: float = 0.0


class _Times(Collector):
    """A histogram that takes encoded histograms, which the library's own does not.

    Args:
        name, text: of the metric.
        labels: of the metric.
        bounds_s: upper bounds of the buckets but the last.
        registry: what serves it.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds_s: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels, self._bounds_s = name, text, labels, bounds_s
        self._lock = threading.Lock()
        self._found: dict[tuple[str, ...], _Buckets] = {}
        registry.register(self)

    def add(self, labels: tuple[str, ...], texts: Sequence[str]) -> None:
        """Add encoded histograms."""
        with self._lock:
            for text in filter(None, texts):
                counts, sum_s = placed(text, self._bounds_s)
                if labels not in self._found:
                    self._found[labels] = _Buckets(np.zeros(len(self._bounds_s) + 1, np.int64))
                self._found[labels].counts += counts
                self._found[labels].sum_s += sum_s

    def collect(self) -> Iterator[Metric]:
        """The library asks."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        bounds = [*(f"{bound:g}" for bound in self._bounds_s), "+Inf"]
        with self._lock:
            for labels, found in self._found.items():
                counts = np.cumsum(found.counts).astype(float).tolist()
                family.add_metric(labels, list(zip(bounds, counts, strict=True)), sum_value=found.sum_s)
        yield family


class _Rising:
    """A counter that follows a value; it goes on from where it was when the value falls, as when a worker dies."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._latest: dict[tuple[str, ...], float] = {}

    def follow(self, labels: tuple[str, ...], value: float) -> None:
        self._counter.labels(*labels).inc(max(0.0, value - self._latest.get(labels, 0.0)))
        self._latest[labels] = value


def _when(phase: Span | None, faults: Sequence[Span]) -> tuple[str, str]:
    """Phase and faults of a second: faults that are made together are joined by ``+``, in the scenario's order."""
    return phase.name if phase else "none", "+".join(dict.fromkeys(fault.name for fault in faults)) or "none"


def _planned(head: RunHead) -> list[tuple[str, str]]:
    """What a run that goes as planned goes through, with a drain behind its phases."""
    edges = {int(edge) for span in (*head.phases, *head.faults) for edge in (span.begin_s, span.end_s)}
    seconds = sorted({edge + step for edge in edges for step in (-1, 0, 1) if 0 <= edge + step < head.duration_s})
    found = [_when(phase_under_way(head.phases, at), spans_under_way(head.faults, at)) for at in seconds]
    return list(dict.fromkeys([*found, ("drain", "none")]))


class MetricsAddress:
    """The figures so far on ``http://127.0.0.1:port/metrics``; what was not measured yet is missing.

    Args:
        port: 0 takes a free one.
        head: what is known of the run before it begins.

    Raises:
        ConfigurationError: the port is taken.
    """

    def __init__(self, port: int, head: RunHead) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's
        self._head = head
        self._registry = CollectorRegistry()
        self._planned = [(head.name, *when) for when in _planned(head)]
        self._known: set[str] = set()
        self._healths: deque[GeneratorHealth] = deque(maxlen=_HEALTH_S)
        about = {"level": head.level, "transport": head.transport, "target": head.target}
        self._gauge("run_info", "What is run", *about).labels(head.name, *about.values()).set(1)
        self._seconds = self._gauge("run_seconds", "How long the run has been going on")
        self._exchanges = self._counter(
            "exchanges", "Exchanges with the target that ended", *_WHEN, "operation", "outcome"
        )
        text = (
            "Exchanges that were no first attempt: all earlier ones were refused, or one of them may have been stored"
        )
        self._resends = self._counter("resends", text, *_WHEN, "operation", "outcome", "attempt")
        self._readings = self._counter("readings", "Readings by what became of them", *_WHEN, "outcome")
        self._commands = self._counter(
            "commands", "Commands by name and end state; open: not ended", *_WHEN, "command", "state"
        )
        text = "to a good answer, or until none came"
        self._response = self._times("response_seconds", f"From the intended time {text}", "operation")
        self._service = self._times("service_seconds", f"From the sent time {text}", "operation")
        self._lag = self._times("send_lag_seconds", "From the intended to the sent time: how late the generator was")
        text = "until it was accepted, or the run was over"
        self._age = self._times("reading_age_seconds", f"From when a reading was taken {text}", bounds_s=_AGE_BOUNDS_S)
        text = "From the order of a command until its end was known, or the run was over"
        self._command = self._times("command_age_seconds", text, "command", "state", bounds_s=_AGE_BOUNDS_S)
        text = "Time of a command from the stage before to this one; round_trip: from ordered to reported"
        self._stage = self._times("command_stage_seconds", text, "stage", bounds_s=_AGE_BOUNDS_S)
        self._devices = self._gauge("devices", "How the fleet stands", "what")
        self._ledgers = _Rising(self._counter("ledger_entries", "What the devices' ledgers have", "what"))
        text = "Seconds of single workers that are in no figure, since the worker did not report them"
        self._missing = _Rising(self._counter("worker_seconds_missing", text))
        self._workers = self._gauge("workers", "Worker processes by what they do", "state")
        self._active = {
            what: self._gauge(f"{what}_active", f"1 while the {what} is under way", what, "kind")
            for what in ("phase", "fault")
        }
        self._concerned = self._gauge("fault_devices", "Devices that the fault concerns now", "fault", "kind")
        last = f"worst of the last {_HEALTH_S} s"
        self._health = {
            member: (self._gauge(f"generator_{name}", f"{text}; {last}"), unit)
            for member, (name, unit, text) in _HEALTH.items()
        }
        texts = ("Requests that the plan asked for", "Requests that went out", "Requests that fell due and never ended")
        self._requests = {
            name: self._counter(f"generator_{name}", text)
            for name, text in zip(("intended", "sent", "undelivered"), texts, strict=True)
        }
        try:
            self._server, self._thread = start_http_server(port, "127.0.0.1", self._registry)
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
        when = (self._head.name, *_when(standing.phase, standing.faults))
        for operation, classes in second.operations.items():
            self._take(operation, classes, when)
        self._lag.add(when, (second.health.send_lag,))
        self._take_health(second.health)
        self._take_standing(second, standing)

    def _take(self, operation: str, classes: Any, when: tuple[str, ...]) -> None:
        tallies: dict[OutcomeClass, Tally] = classes
        waited = list(waited_histograms(tallies))
        if operation == READING_AGE:
            for outcome, tally in tallies.items():
                self._readings.labels(*when, outcome.value).inc(tally.count)
            self._age.add(when, waited)
        elif (command := command_of(operation)) is not None:
            self._commands.labels(*when, *command).inc(sum(tally.count for tally in tallies.values()))
            self._command.add((*when, *command), waited)
        elif operation in STAGE_OPERATIONS:
            self._stage.add((*when, operation.removeprefix(f"{FAMILY}.")), waited)
        else:
            self._expect(operation)
            for outcome, tally in tallies.items():
                labels = (*when, operation, outcome.value)
                self._exchanges.labels(*labels).inc(tally.count)
                again = resends_of((tally,))
                self._resends.labels(*labels, Attempt.AFTER_REFUSAL.value).inc(again.after_refusal)
                self._resends.labels(*labels, Attempt.AMBIGUOUS.value).inc(again.ambiguous)
            self._response.add((*when, operation), waited)
            self._service.add((*when, operation), list(waited_histograms(tallies, "service")))

    def _expect(self, operation: str) -> None:
        """Let an operation stand at 0 in all that is to come: what is there before it grows grows from 0."""
        if operation not in self._known:
            self._known.add(operation)
            for when in self._planned:
                for outcome in OutcomeClass:
                    self._exchanges.labels(*when, operation, outcome.value)

    def _take_health(self, health: GeneratorHealth) -> None:
        self._healths.append(health)
        worst = merge_health(list(self._healths))
        for member, (gauge, unit) in self._health.items():
            gauge.labels(self._head.name).set(getattr(worst, member) * unit)
        for name, counter in self._requests.items():
            counter.labels(self._head.name).inc(getattr(health, name))

    def _take_standing(self, second: Second, standing: RunStatus) -> None:
        name = self._head.name
        self._seconds.labels(name).set(second.second + 1)
        self._devices.labels(name, "planned").set(self._head.devices)
        for what, value in second.gauges.items():
            if is_cumulative(what) and what != "readings_unanswered":
                self._ledgers.follow((name, what), value)
            else:
                self._devices.labels(name, what).set(value)
        self._missing.follow((name,), sum(gap.to_s - gap.from_s for gap in standing.gaps))
        for state in WorkerState:
            self._workers.labels(name, state.value).set(sum(worker.state is state for worker in standing.workers))
        now = {"phase": (standing.phase,) if standing.phase else (), "fault": standing.faults}
        for what, planned in (("phase", self._head.phases), ("fault", self._head.faults)):
            names = {span.name: span.devices for span in now[what]}
            for span in (*planned, *now[what]):
                self._active[what].labels(name, span.name, span.kind).set(span.name in names)
                if what == "fault":
                    self._concerned.labels(name, span.name, span.kind).set(names.get(span.name, 0))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"fleet_{name}", text, ("scenario", *labels), registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"fleet_{name}", text, ("scenario", *labels), registry=self._registry)

    def _times(self, name: str, text: str, *labels: str, bounds_s: Sequence[float] = _TIME_BOUNDS_S) -> _Times:
        return _Times(f"fleet_{name}", text, ("scenario", *_WHEN, *labels), bounds_s, self._registry)


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

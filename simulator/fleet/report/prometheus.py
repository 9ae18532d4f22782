"""Figures of a run that goes on for Prometheus; docs/results.md has them.

No count ever falls: that would be read as a restart of the program, and everything counted before as new. So each
second adds to the counts of its own phase and faults, and those of earlier phases stay as they are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import TracebackType
from typing import Final
from wsgiref.simple_server import WSGIServer

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, start_http_server
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import FAMILY, READING_AGE, STAGE_OPERATIONS, command_of
from simulator.fleet.metrics.histogram import Counts, placed
from simulator.fleet.metrics.recorder import is_cumulative, merge_health
from simulator.fleet.outcomes import WAITED, Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, RunRecord, Second, Tally
from simulator.fleet.report.progress import Event, RunView

_HEALTH_S: Final = 15
"""The generator's health is the worst of so many seconds: read it at least as often to see each spike."""
_WHEN: Final = ("phase", "fault")
_ABOUT: Final = ("kind", "transport", "target")
_HEALTH: Final = {
    "send_lag_p99_s": ("send_lag_p99_seconds", 1.0, "99th percentile from intended to sent"),
    "send_lag_max_s": ("send_lag_max_seconds", 1.0, "Longest time from intended to sent"),
    "loop_lag_max_s": ("loop_lag_max_seconds", 1.0, "How late the event loop woke up at most"),
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
        self._found: dict[tuple[str, ...], tuple[Counts, float]] = {}  # by bucket, and the sum of all values
        registry.register(self)

    def add(self, labels: tuple[str, ...], texts: Sequence[str]) -> None:
        """Add encoded histograms."""
        with self._lock:
            for text in filter(None, texts):
                counts, sum_s = placed(text, self._bounds_s)
                before, sum_before_s = self._found.get(labels, (0, 0.0))
                self._found[labels] = before + counts, sum_before_s + sum_s

    def collect(self) -> Iterator[Metric]:
        """The library asks."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        bounds = [*(f"{bound:g}" for bound in self._bounds_s), "+Inf"]
        with self._lock:
            for labels, (counts, sum_s) in self._found.items():
                up_to = np.cumsum(counts).astype(float).tolist()
                family.add_metric(labels, list(zip(bounds, up_to, strict=True)), sum_value=sum_s)
        yield family


class _Rising:
    """A counter that follows a value; it goes on from where it was when the value falls, as when a worker dies."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._latest: dict[tuple[str, ...], float] = {}

    def follow(self, labels: tuple[str, ...], value: float) -> None:
        self._counter.labels(*labels).inc(max(0.0, value - self._latest.get(labels, 0.0)))
        self._latest[labels] = value


class MetricsView(RunView):
    """The figures so far on ``http://127.0.0.1:port/metrics``, served until the view is left.

    What was not measured yet is missing.

    Args:
        port: 0 takes a free one.
        tell: shows a person the address.
    """

    def __init__(self, port: int, tell: Callable[[str], object] = lambda _text: None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's
        self._port = port
        self._tell = tell
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._registry = CollectorRegistry()
        self._run: Event = {}
        self._known: set[str] = set()
        self._healths: deque[GeneratorHealth] = deque(maxlen=_HEALTH_S)
        self._info = self._gauge("run_info", "What is run", *_ABOUT)
        self._seconds = self._gauge("run_seconds", "How long the run has been going on")
        text = "Exchanges with the target that ended"
        self._exchanges = self._counter("exchanges", text, *_WHEN, "operation", "outcome")
        text = "Exchanges that were no first attempt: all earlier ones were refused, or one may have been stored"
        self._resends = self._counter("resends", text, *_WHEN, "operation", "outcome", "attempt")
        self._readings = self._counter("readings", "Readings by what became of them", *_WHEN, "outcome")
        text = "Commands by name and end state; open: not ended"
        self._commands = self._counter("commands", text, *_WHEN, "command", "state")
        text = "to a good answer, or until none came"
        self._response = self._times("response_seconds", f"From the intended time {text}", "operation")
        self._service = self._times("service_seconds", f"From the sent time {text}", "operation")
        self._lag = self._times("send_lag_seconds", "From the intended to the sent time: how late the generator was")
        text = "From when a reading was taken until it was accepted, or the run was over"
        self._age = self._times("reading_age_seconds", text, bounds_s=_AGE_BOUNDS_S)
        text = "From the order of a command until its end was known, or the run was over"
        self._command = self._times("command_age_seconds", text, "command", "state", bounds_s=_AGE_BOUNDS_S)
        text = "Time of a command from the stage before to this one; round_trip: from ordered to reported"
        self._stage = self._times("command_stage_seconds", text, "stage", bounds_s=_AGE_BOUNDS_S)
        self._devices = self._gauge("devices", "How many devices are online and so on", "what")
        self._ledgers = _Rising(self._counter("ledger_entries", "What the devices' ledgers have", "what"))
        text = "Seconds of single workers that are in no figure, since the worker did not report them"
        self._missing = _Rising(self._counter("worker_seconds_missing", text))
        self._workers = self._gauge("workers", "Worker processes by what they do", "state")
        self._active = {
            what: self._gauge(f"{what}_active", f"1 while the {what} is under way", what, "kind")
            for what in ("phase", "fault")
        }
        last = f"worst of the last {_HEALTH_S} s"
        self._health = {
            member: (self._gauge(f"generator_{name}", f"{text}; {last}"), unit)
            for member, (name, unit, text) in _HEALTH.items()
        }
        self._requests = {
            name: self._counter(f"generator_{name}", f"Requests that {text}")
            for name, text in (
                ("intended", "the plan asked for"), ("sent", "went out"), ("undelivered", "fell due and never ended")
            )
        }  # fmt: skip

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            thread.join()
            server.server_close()

    def show(self, event: Event, source: Second | RunRecord | None = None) -> None:
        """Serve from the first event on, and add each second to what is served."""
        if event["event"] == "run":
            self._run = event
            try:
                self._server = start_http_server(self._port, "127.0.0.1", self._registry)
            except OSError as error:
                fault = f"--metrics-port {self._port}: {error.strerror}; choose another one, or 0"
                raise ConfigurationError([fault]) from None
            self._info.labels(event["scenario"], *(event[name] for name in _ABOUT)).set(1)
            self._tell(f"figures for Prometheus: http://127.0.0.1:{self._server[0].server_port}/metrics")
        elif isinstance(source, Second):
            self._add(event, source)

    def _add(self, event: Event, second: Second) -> None:
        phase = event["phase"]["name"] if event["phase"] else "none"
        # Faults that are made together are joined, in the scenario's order.
        faults = "+".join(dict.fromkeys(fault["name"] for fault in event["faults"])) or "none"
        when = (self._run["scenario"], phase, faults)
        for operation, tallies in second.operations.items():
            self._add_operation(operation, tallies, when)
        self._lag.add(when, (second.health.send_lag,))
        self._add_health(second.health)
        self._set_status(event)

    def _add_operation(self, operation: str, tallies: Mapping[OutcomeClass, Tally], when: tuple[str, ...]) -> None:
        waited = [tallies[outcome] for outcome in sorted(WAITED) if outcome in tallies]
        response = [tally.response for tally in waited]
        if operation == READING_AGE:
            for outcome, tally in tallies.items():
                self._readings.labels(*when, outcome.value).inc(tally.count)
            self._age.add(when, response)
        elif (command := command_of(operation)) is not None:
            self._commands.labels(*when, *command).inc(sum(tally.count for tally in tallies.values()))
            self._command.add((*when, *command), response)
        elif operation in STAGE_OPERATIONS:
            self._stage.add((*when, operation.removeprefix(f"{FAMILY}.")), response)
        else:
            self._expect(operation)
            for outcome, tally in tallies.items():
                labels = (*when, operation, outcome.value)
                self._exchanges.labels(*labels).inc(tally.count)
                refused = tally.count - tally.first_attempts - tally.resends_ambiguous
                self._resends.labels(*labels, Attempt.AFTER_REFUSAL.value).inc(refused)
                self._resends.labels(*labels, Attempt.AMBIGUOUS.value).inc(tally.resends_ambiguous)
            self._response.add((*when, operation), response)
            self._service.add((*when, operation), [tally.service for tally in waited])

    def _expect(self, operation: str) -> None:
        """Let an operation stand at 0 in all that is to come: Prometheus sees no growth in a series that is new."""
        if operation not in self._known:
            self._known.add(operation)
            phases = [*(phase["name"] for phase in self._run["phases"]), "drain"]
            faults = ["none", *(fault["name"] for fault in self._run["faults"])]
            for when in product([self._run["scenario"]], phases, faults):
                for outcome in OutcomeClass:
                    self._exchanges.labels(*when, operation, outcome.value)

    def _add_health(self, health: GeneratorHealth) -> None:
        self._healths.append(health)
        worst = merge_health(list(self._healths))
        for member, (gauge, unit) in self._health.items():
            gauge.labels(self._run["scenario"]).set(getattr(worst, member) * unit)
        for name, counter in self._requests.items():
            counter.labels(self._run["scenario"]).inc(getattr(health, name))

    def _set_status(self, event: Event) -> None:
        name = self._run["scenario"]
        self._seconds.labels(name).set(event["second"] + 1)
        self._devices.labels(name, "planned").set(self._run["devices"])
        for what, value in event["gauges"].items():
            if is_cumulative(what) and what != "readings_unanswered":
                self._ledgers.follow((name, what), value)
            else:
                self._devices.labels(name, what).set(value)
        self._missing.follow((name,), sum(gap["to_s"] - gap["from_s"] for gap in event["gaps"]))
        for state in ("starting", "running", "draining", "done", "dead"):
            self._workers.labels(name, state).set(sum(each == state for each in event["workers"].values()))
        now = {"phase": [event["phase"]] if event["phase"] else [], "fault": event["faults"]}
        for what, spans in now.items():
            names = {span["name"] for span in spans}
            for span in (*self._run[f"{what}s"], *spans):
                self._active[what].labels(name, span["name"], span["kind"]).set(span["name"] in names)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"fleet_{name}", text, ("scenario", *labels), registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"fleet_{name}", text, ("scenario", *labels), registry=self._registry)

    def _times(self, name: str, text: str, *labels: str, bounds_s: Sequence[float] = _TIME_BOUNDS_S) -> _Times:
        return _Times(f"fleet_{name}", text, ("scenario", *_WHEN, *labels), bounds_s, self._registry)

"""Figures of a run that goes on for Prometheus; docs/results.md has them.

No count ever falls: that would be read as a restart of the program, and everything counted before as new. So each
second adds to the counts of its own phase and faults, and those of earlier phases stay as they are.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from types import TracebackType
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import FAMILY, READING_AGE, STAGE_OPERATIONS, command_of
from simulator.fleet.metrics.histogram import placed
from simulator.fleet.metrics.recorder import is_cumulative, merge_health
from simulator.fleet.outcomes import WAITED, Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, RunRecord, Second, Tally
from simulator.fleet.report.progress import Event, RunView

_HEALTH_S: Final = 15
"""The generator's health is the worst of so many seconds: read it at least as often to see each spike."""
_STATES: Final = ("starting", "running", "draining", "done", "dead")

Labels = tuple[str, ...]


# Ten buckets for each power of ten: no quantile is further off than a quarter.
_TIME_BOUNDS_S: Final = tuple(float(f"{bound:.3g}") for bound in np.geomspace(0.0001, 100.0, 61))
_AGE_BOUNDS_S: Final = tuple(float(f"{bound:.3g}") for bound in np.geomspace(0.001, 1000.0, 61))
"""Of everything that may wait through an outage."""
_WHEN: Final = ("phase", "fault")
_WORST: Final = f"; worst of the last {_HEALTH_S} s"
_NUMBERS: Final[Mapping[str, tuple[type[CounterMetricFamily | GaugeMetricFamily], Labels, str]]] = {
    "exchanges": (CounterMetricFamily, (*_WHEN, "operation", "outcome"), "Exchanges with the target that ended"),
    "resends": (CounterMetricFamily, (*_WHEN, "operation", "outcome", "attempt"),
                "Exchanges that were no first attempt: all earlier ones were refused, or one may have been stored"),
    "readings": (CounterMetricFamily, (*_WHEN, "outcome"), "Readings by what became of them"),
    "ledger_entries": (CounterMetricFamily, ("what",), "What the devices' ledgers have"),
    "worker_seconds_missing": (CounterMetricFamily, (), "Seconds of single workers that are in no figure"),
    "generator_intended": (CounterMetricFamily, (), "Requests that the plan asked for"),
    "generator_sent": (CounterMetricFamily, (), "Requests that went out"),
    "generator_undelivered": (CounterMetricFamily, (), "Requests that fell due and never ended"),
    "generator_loop_lag_max_seconds": (GaugeMetricFamily, (), f"How late the event loop woke up{_WORST}"),
    "generator_steal_ratio": (GaugeMetricFamily, (), f"Share of CPU time that the host took{_WORST}"),
    "generator_cpu_ratio": (GaugeMetricFamily, (), f"CPU time of the busiest worker in cores{_WORST}"),
    "run_info": (GaugeMetricFamily, ("kind", "transport", "target"), "What is run"),
    "run_seconds": (GaugeMetricFamily, (), "How long the run has been going on"),
    "devices": (GaugeMetricFamily, ("what",), "How many devices are online and so on"),
    "workers": (GaugeMetricFamily, ("state",), "Worker processes by what they do"),
    "phase_active": (GaugeMetricFamily, ("phase", "kind"), "1 while the phase is under way"),
    "fault_active": (GaugeMetricFamily, ("fault", "kind"), "1 while the fault is under way"),
}  # fmt: skip
_TIMES: Final[Mapping[str, tuple[Labels, str, tuple[float, ...]]]] = {
    "response_seconds": ((*_WHEN, "operation"), "From the intended time to a good answer, or until none came",
                         _TIME_BOUNDS_S),
    "service_seconds": ((*_WHEN, "operation"), "From the sent time to a good answer, or until none came",
                        _TIME_BOUNDS_S),
    "send_lag_seconds": (_WHEN, "From the intended to the sent time: how late the generator was", _TIME_BOUNDS_S),
    "reading_age_seconds": (_WHEN, "From when a reading was taken until it was accepted, or the run was over",
                            _AGE_BOUNDS_S),
    "command_age_seconds": ((*_WHEN, "command", "state"),
                            "From the order of a command until its end was known, or the run was over", _AGE_BOUNDS_S),
    "command_stage_seconds": ((*_WHEN, "stage"),
                              "From the stage before to this one", _AGE_BOUNDS_S),
}  # fmt: skip


class MetricsView(RunView, Collector):
    """The figures so far on ``http://127.0.0.1:port/metrics``, served until the view is left.

    What was not measured yet is missing.

    Args:
        port: 0 takes a free one.
        tell: shows a person the address.
    """

    def __init__(self, port: int, tell: Callable[[str], object] = lambda _text: None) -> None:
        self._port = port
        self._tell = tell
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._run: Event = {}
        self._healths: deque[GeneratorHealth] = deque(maxlen=_HEALTH_S)
        self._lock = threading.Lock()  # seconds are added in one thread and read in another
        self._values: dict[str, Counter[Labels]] = {name: Counter() for name in _NUMBERS}
        # How many by bucket, and the sum of all values as the last number.
        self._times: dict[str, dict[Labels, NDArray[np.float64]]] = {name: {} for name in _TIMES}

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
            self._values["run_info"][event["kind"], event["transport"], event["target"]] = 1
            registry = CollectorRegistry()
            registry.register(self)
            try:
                self._server = start_http_server(self._port, "127.0.0.1", registry)
            except OSError as error:
                fault = f"--metrics-port {self._port}: {error.strerror}; choose another one, or 0"
                raise ConfigurationError([fault]) from None
            self._tell(f"figures for Prometheus: http://127.0.0.1:{self._server[0].server_port}/metrics")
        elif isinstance(source, Second):
            with self._lock:
                self._add(event, source)

    def collect(self) -> Iterator[Metric]:
        """All metrics; the library asks."""
        scenario = self._run["scenario"]
        with self._lock:
            for name, (family, labels, text) in _NUMBERS.items():
                metric = family(f"fleet_{name}", text, labels=("scenario", *labels))
                for values, number in self._values[name].items():
                    metric.add_metric((scenario, *values), number)
                yield metric
            for name, (labels, text, bounds_s) in _TIMES.items():
                histogram = HistogramMetricFamily(f"fleet_{name}", text, labels=("scenario", *labels))
                bounds = [*(f"{bound:g}" for bound in bounds_s), "+Inf"]
                for values, (*counts, sum_s) in self._times[name].items():
                    up_to = np.cumsum(counts).tolist()
                    histogram.add_metric((scenario, *values), list(zip(bounds, up_to, strict=True)), sum_value=sum_s)
                yield histogram

    def _add(self, event: Event, second: Second) -> None:
        phase = event["phase"]["name"] if event["phase"] else "none"
        # Faults that are made together are joined, in the scenario's order.
        when = (phase, "+".join(dict.fromkeys(fault["name"] for fault in event["faults"])) or "none")
        for operation, tallies in second.operations.items():
            self._add_operation(operation, tallies, when)
        self._add_times("send_lag_seconds", when, (second.health.send_lag,))
        for name in ("intended", "sent", "undelivered"):
            self._values[f"generator_{name}"][()] += getattr(second.health, name)
        self._set_status(event, second)

    def _add_operation(self, operation: str, tallies: Mapping[OutcomeClass, Tally], when: Labels) -> None:
        waited = [tallies[outcome] for outcome in sorted(WAITED) if outcome in tallies]
        response = [tally.response for tally in waited]
        if operation == READING_AGE:
            for outcome, tally in tallies.items():
                self._values["readings"][*when, outcome.value] += tally.count
            self._add_times("reading_age_seconds", when, response)
        elif (command := command_of(operation)) is not None:
            self._add_times("command_age_seconds", (*when, *command), response)
        elif operation in STAGE_OPERATIONS:
            self._add_times("command_stage_seconds", (*when, operation.removeprefix(f"{FAMILY}.")), response)
        else:
            self._add_exchanges(operation, tallies, when)
            self._add_times("response_seconds", (*when, operation), response)
            self._add_times("service_seconds", (*when, operation), [tally.service for tally in waited])

    def _add_exchanges(self, operation: str, tallies: Mapping[OutcomeClass, Tally], when: Labels) -> None:
        exchanges, resends = self._values["exchanges"], self._values["resends"]
        if (*when, operation, OutcomeClass.OK.value) not in exchanges:
            # In all phases and faults to come it starts at 0: Prometheus sees no growth in a series that is new.
            phases = [*(phase["name"] for phase in self._run["phases"]), "drain"]
            faults = ["none", *(fault["name"] for fault in self._run["faults"])]
            for at in (when, *product(phases, faults)):
                exchanges.update({(*at, operation, outcome.value): 0 for outcome in OutcomeClass})
        for outcome, tally in tallies.items():
            labels = (*when, operation, outcome.value)
            exchanges[labels] += tally.count
            resends[*labels, Attempt.AMBIGUOUS.value] += tally.resends_ambiguous
            resends[*labels, Attempt.AFTER_REFUSAL.value] += (
                tally.count - tally.first_attempts - tally.resends_ambiguous
            )

    def _add_times(self, name: str, labels: Labels, texts: Iterable[str]) -> None:
        bounds_s = _TIMES[name][2]
        for text in filter(None, texts):
            counts, sum_s = placed(text, bounds_s)
            before = self._times[name].get(labels, 0)
            self._times[name][labels] = before + np.append(counts.astype(float), sum_s)

    def _set_status(self, event: Event, second: Second) -> None:
        """What is the case now, and what others have added up."""
        self._healths.append(second.health)
        worst = merge_health(list(self._healths))
        phases, faults = [event["phase"]] if event["phase"] else [], event["faults"]
        is_count = {what: is_cumulative(what) and what != "readings_unanswered" for what in second.gauges}
        states = Counter(event["workers"].values())
        found: dict[str, Mapping[Any, float]] = {
            "generator_loop_lag_max_seconds": {(): worst.loop_lag_max_s},
            "generator_steal_ratio": {(): worst.steal_percent / 100},
            "generator_cpu_ratio": {(): worst.cpu_percent / 100},
            "run_seconds": {(): second.second + 1},
            "ledger_entries": {(what,): value for what, value in second.gauges.items() if is_count[what]},
            "worker_seconds_missing": {(): sum(gap["to_s"] - gap["from_s"] for gap in event["gaps"])},
            "devices": {(what,): value for what, value in second.gauges.items() if not is_count[what]}
            | {("planned",): self._run["devices"]},
            "workers": {(state,): states[state] for state in _STATES},
            "phase_active": {_name(span): span in phases for span in (*self._run["phases"], *phases)},
            "fault_active": {_name(span): span in faults for span in (*self._run["faults"], *faults)},
        }
        self._values |= {name: Counter(values) for name, values in found.items()}


def _name(span: Mapping[str, Any]) -> Labels:
    return span["name"], span["kind"]

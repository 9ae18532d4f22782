"""Counts as metrics of Prometheus: names, labels, help texts. Every metric has the label ``scenario``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from simulator.fleet.record import GeneratorHealth
from simulator.fleet.report.prometheus.counting import HEALTH_S, Counting

_WHEN: Final = ("scenario", "phase", "fault")
_HEALTH: Final = {
    "send_lag_p99_s": ("send_lag_p99_seconds", 1.0, "99th percentile from intended to sent"),
    "send_lag_max_s": ("send_lag_max_seconds", 1.0, "Longest time from intended to sent"),
    "loop_lag_max_s": ("loop_lag_max_seconds", 1.0, "How late the event loop woke up at most"),
    "gc_pause_max_s": ("gc_pause_max_seconds", 1.0, "Longest pause of the garbage collector"),
    "steal_percent": ("steal_ratio", 0.01, "Share of CPU time that the host took"),
    "cpu_percent": ("cpu_ratio", 0.01, "CPU time of the busiest worker, 1 for a whole core"),
}
_TIMES: Final = {
    "response": (
        "fleet_response_seconds",
        ("operation",),
        "From the intended time to a good answer, or until none came",
    ),
    "service": ("fleet_service_seconds", ("operation",), "From the sent time to a good answer, or until none came"),
    "age": (
        "fleet_reading_age_seconds",
        (),
        "From the moment a reading was taken until it was accepted, or the run was over",
    ),
    "command": (
        "fleet_command_age_seconds",
        ("command", "state"),
        "From the order of a command until its end was known, or the run was over",
    ),
    "stage": (
        "fleet_command_stage_seconds",
        ("stage",),
        "Time of a command from the stage before to this one; round_trip: from ordered to reported",
    ),
    "lag": ("fleet_send_lag_seconds", (), "From the intended time to the sent time: the lateness of the generator"),
}
"""Kinds of times: name, labels of its own, help."""


def measured(counting: Counting, scenario: str) -> Iterator[Metric]:
    """Everything that was counted by phase and fault."""
    text = "Exchanges with the target that ended"
    exchanges = CounterMetricFamily("fleet_exchanges", text, labels=[*_WHEN, "operation", "outcome"])
    text = "Exchanges that were no first attempt: all earlier ones were refused, or one of them may have been stored"
    resends = CounterMetricFamily("fleet_resends", text, labels=[*_WHEN, "operation", "outcome", "attempt"])
    for (operation, outcome, period), each in sorted(counting.exchanges.items()):
        labels = [scenario, *period, operation, outcome.value]
        exchanges.add_metric(labels, each.count)
        for attempt, count in each.resends.items():
            resends.add_metric([*labels, attempt.value], count)
    readings = CounterMetricFamily("fleet_readings", "Readings by what became of them", labels=[*_WHEN, "outcome"])
    for (outcome, period), count in sorted(counting.readings.items()):
        readings.add_metric([scenario, *period, outcome.value], count)
    text = "Commands by name and end state; open: not ended"
    commands = CounterMetricFamily("fleet_commands", text, labels=[*_WHEN, "command", "state"])
    for (command, state, period), count in sorted(counting.commands.items()):
        commands.add_metric([scenario, *period, command, state], count)
    yield from (exchanges, resends, readings, commands)
    yield from _times(counting, scenario)


def _times(counting: Counting, scenario: str) -> Iterator[Metric]:
    families = {
        kind: HistogramMetricFamily(name, text, labels=[*_WHEN, *own]) for kind, (name, own, text) in _TIMES.items()
    }
    for key, times in sorted(counting.times.items()):
        families[key.kind].add_metric([scenario, *key.period, *key.names], times.buckets(), sum_value=times.sum_s)
    return iter(families.values())


def health_metrics(health: GeneratorHealth, requests: Sequence[int], scenario: str, span: str) -> Iterator[Metric]:
    """How far the generator can be trusted.

    Args:
        health: its worst figures.
        requests: intended, sent, undelivered.
        scenario: name.
        span: what the worst figures are of, for the help texts.
    """
    for member, (name, unit, text) in _HEALTH.items():
        family = GaugeMetricFamily(f"fleet_generator_{name}", f"{text}; {span}", labels=["scenario"])
        family.add_metric([scenario], getattr(health, member) * unit)
        yield family
    texts = ("Requests that the plan asked for", "Requests that went out", "Requests that fell due and never ended")
    for name, text, count in zip(("intended", "sent", "undelivered"), texts, requests, strict=True):
        counter = CounterMetricFamily(f"fleet_generator_{name}", text, labels=["scenario"])
        counter.add_metric([scenario], count)
        yield counter


def counting_health(counting: Counting, scenario: str) -> Iterator[Metric]:
    """:func:`health_metrics` while the run goes on."""
    yield from health_metrics(counting.health, counting.requests, scenario, f"worst of the last {HEALTH_S} s")


def gauge(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """A family of one gauge."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for each, value in values:
        family.add_metric(each, value)
    return family


def counter(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """A counter; its samples' name ends in ``_total``."""
    family = CounterMetricFamily(name, text, labels=labels)
    for each, value in values:
        family.add_metric(each, value)
    return family


def info(name: str, text: str, labels: Mapping[str, str]) -> Metric:
    """A gauge that is 1, with its content in its labels."""
    return gauge(name, text, list(labels), [(list(labels.values()), 1.0)])

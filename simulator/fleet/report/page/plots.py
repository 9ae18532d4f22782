"""What ``fleet.js`` draws, as JSON: columns over the slices' middles; null where nothing was reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import CUMULATIVE
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Span
from simulator.fleet.report.figures import ALL_OPERATIONS, RunFigures, percentile_label, percentile_times
from simulator.fleet.report.timeline import BAND, Percentiles, Slice

_DIGITS: Final = 4
_LINES: Final = ("sent", "ordered", "accepted", "reported", "unanswered")
"""What happens first stands first, and has the same colour in every plot."""
_CURVE_STEP: Final = 0.05
_CURVE_END: Final = 5.0
_HEALTH: Final = (
    "send_lag_p99_s",
    "send_lag_max_s",
    "loop_lag_max_s",
    "gc_pause_max_s",
    "cpu_percent",
    "steal_percent",
)


def plots_of(record: RunRecord, figures: RunFigures, slices: Sequence[Slice], width_s: int) -> dict[str, Any]:
    """The document; times of answers are in seconds."""
    whole = {ALL_OPERATIONS: figures.whole, **figures.operations, **{age.name: age.figures for age in figures.ages}}
    column = _columns(record, slices, width_s)
    return {
        "duration_s": _short(max(record.duration_s, (slices[-1].begin_s + width_s) if slices else 0.0)),
        "width_s": width_s,
        "x": _middles(record, slices, width_s),
        "phases": [_span(phase) for phase in spans_with_drain(record)],
        "faults": [_span(fault) for fault in record.faults],
        "gaps": [
            {"name": f"worker {gap.worker}", "kind": gap.reason, "begin_s": gap.from_s, "end_s": gap.to_s}
            for gap in record.gaps
        ],
        "operations": [
            {
                "name": name,
                "rates": {
                    outcome: column(_rate(name, outcome))
                    for outcome in OutcomeClass
                    if any(each.counts.get(name, {}).get(outcome) for each in slices)
                },
                "response": _band(column, name, "response"),
                "service": _band(column, name, "service"),
                "curve": {
                    "response": curve(whole[name].response),
                    "service": curve(whole[name].service),
                },
            }
            for name in operation_names(record)
        ],
        "gauges": [
            {
                "title": title,
                # These only ever grow: what they came to so far.
                "is_total": title in CUMULATIVE,
                "lines": [
                    {"name": label, "low": column(_gauge(name, 0)), "high": column(_gauge(name, 1))}
                    for label, name in lines
                ],
            }
            for title, lines in gauge_groups(slices)
        ],
        "health": {
            **{name: column(_member(name)) for name in _HEALTH},
            "sent_share": column(
                lambda each: each.health.sent / each.health.intended if each.health.intended else None
            ),
        },
    }


def operation_names(record: RunRecord) -> tuple[str, ...]:
    """All of them together first, then ages, then each, the busiest first."""
    counts = {name: sum(tally.count for tally in classes.values()) for name, classes in record.operations.items()}
    return (ALL_OPERATIONS, *shown_ages(record.ages), *sorted(counts, key=lambda name: (-counts[name], name)))


def gauge_groups(slices: Sequence[Slice]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Gauges by plot, each with its label; ``online`` first, then by title.

    ``readings_sent`` and ``readings_accepted`` share one that is called readings. What was 0 all the time has none.
    """
    names = sorted({name for each in slices for name, (_, high) in each.gauges.items() if high})
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        family, _, rest = name.partition("_")
        title = family if family in CUMULATIVE and rest else name.replace("_", " ")
        groups.setdefault(title, []).append((rest.replace("_", " ") if title == family and rest else title, name))
    for lines in groups.values():
        lines.sort(key=lambda line: _LINES.index(line[0]) if line[0] in _LINES else len(_LINES))
    return sorted(groups.items(), key=lambda group: (group[0] != "online", group[0]))


def spans_with_drain(record: RunRecord) -> list[Span]:
    """The phases, and behind them the drain where it took a second or longer."""
    begin_s = record.drained_from_s
    if begin_s is None or record.duration_s - begin_s < 1:
        return list(record.phases)
    return [*record.phases, Span("drain", "drain", begin_s, record.duration_s, record.devices)]


def curve(histogram: Histogram) -> list[list[float | None]]:
    """Percentiles on a scale that stretches towards 100: tenfold rarer is one step further.

    Returns:
        ``-log10(1 - share)``, such as 2 for p99, and the values in seconds. It ends where fewer than one value is left.
    """
    if not histogram.count:
        return [[], []]
    end = min(_CURVE_END, math.log10(histogram.count))
    steps = [step * _CURVE_STEP for step in range(int(end / _CURVE_STEP) + 1)] + [end]
    values = percentile_times(histogram, [*(100 * (1 - 10**-step) for step in steps[:-1]), 100.0])
    return [[_short(step) for step in steps], [_short(value) for value in values]]


def _columns(record: RunRecord, slices: Sequence[Slice], width_s: int) -> Callable[[_Reader], list[float | None]]:
    by_begin = {each.begin_s: each for each in slices}
    begins = _begins(record, slices, width_s)

    def column(read: _Reader) -> list[float | None]:
        return [_short(read(by_begin[begin])) if begin in by_begin else None for begin in begins]

    return column


_Reader = Callable[[Slice], float | None]


def _begins(record: RunRecord, slices: Sequence[Slice], width_s: int) -> range:
    end = max(math.ceil(record.duration_s), (slices[-1].begin_s + 1) if slices else 0)
    return range(0, end, width_s)


def _middles(record: RunRecord, slices: Sequence[Slice], width_s: int) -> list[float]:
    return [begin + width_s / 2 for begin in _begins(record, slices, width_s)]


def _rate(name: str, outcome: OutcomeClass) -> _Reader:
    return lambda each: each.counts.get(name, {}).get(outcome, 0) / each.seconds


def _band(column: Callable[[_Reader], list[float | None]], name: str, measure: str) -> dict[str, list[float | None]]:
    def reader(place: int) -> _Reader:
        def read(each: Slice) -> float | None:
            bands: Mapping[str, Percentiles] = getattr(each, measure)
            return bands[name][place] if name in bands else None

        return read

    return {percentile_label(percent): column(reader(place)) for place, percent in enumerate(BAND)}


def _gauge(name: str, end: int) -> _Reader:
    return lambda each: each.gauges[name][end] if name in each.gauges else None


def _member(name: str) -> _Reader:
    return lambda each: float(getattr(each.health, name))


def _span(span: Span) -> dict[str, Any]:
    return {"name": span.name, "kind": span.kind, "begin_s": span.begin_s, "end_s": span.end_s}


def _short(value: float | None) -> float | None:
    """Four digits, more than the precision of a histogram; None for no number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")

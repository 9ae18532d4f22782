"""What ``fleet.js`` draws, as JSON: columns over the slices' middles; null where nothing was reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from simulator.fleet.metrics.ages import requests_of, shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import CUMULATIVE
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Span
from simulator.fleet.report.figures import ALL_OPERATIONS, PERCENTILES, RunFigures, Slice, Timeline, percentile_name

_LINES: Final = ("sent", "ordered", "accepted", "reported", "unanswered")
"""What happens first stands first, and has the same colour in every plot."""
_CURVE_STEP: Final = 0.05
_CURVE_END: Final = 5.0
_HEALTH: Final = (
    "send_lag_p99_s",
    "send_lag_max_s",
    "loop_lag_max_s",
    "cpu_percent",
    "steal_percent",
)
_MEASURES: Final = ("response", "service")
_Column = list[float | None]


def plots_of(record: RunRecord, figures: RunFigures, timeline: Timeline) -> dict[str, Any]:
    """The document; times of answers are in seconds."""
    slices, width_s = timeline.slices, timeline.width_s
    whole = {ALL_OPERATIONS: figures.whole, **figures.operations, **{age.name: age for age in figures.ages}}
    by_begin = {each.begin_s: each for each in slices}
    begins = range(0, max(math.ceil(record.duration_s), (slices[-1].begin_s + 1) if slices else 0), width_s)

    def column(read: Callable[[Slice], float | None]) -> _Column:
        return [_short(read(by_begin[begin])) if begin in by_begin else None for begin in begins]

    def rate(name: str, outcome: OutcomeClass) -> _Column:
        return column(lambda each: each.counts.get(name, {}).get(outcome, 0) / each.seconds)

    def band(name: str, measure: str) -> dict[str, _Column]:
        def percentile(at: str) -> _Column:
            return column(lambda each: each.figures[name][f"{measure}_s"][at] if name in each.figures else None)

        return {at: percentile(at) for at in map(percentile_name, PERCENTILES)}

    def gauge(name: str, end: int) -> _Column:
        return column(lambda each: each.gauges[name][end] if name in each.gauges else None)

    counts = {
        name: sum(tally.count for tally in classes.values()) for name, classes in requests_of(record.operations).items()
    }
    busiest = sorted(counts, key=lambda name: (-counts[name], name))
    return {
        "duration_s": _short(max(record.duration_s, (slices[-1].begin_s + width_s) if slices else 0.0)),
        "width_s": width_s,
        "x": [begin + width_s / 2 for begin in begins],
        "phases": [_span(phase) for phase in timeline.spans],
        "faults": [_span(fault) for fault in record.faults],
        "gaps": [_span(Span(f"worker {gap.worker}", gap.reason, gap.from_s, gap.to_s)) for gap in record.gaps],
        # All of them together first, then ages, then each, the busiest first.
        "operations": [
            {
                "name": name,
                "rates": {
                    outcome: rate(name, outcome)
                    for outcome in OutcomeClass
                    if any(each.counts.get(name, {}).get(outcome) for each in slices)
                },
                **{measure: band(name, measure) for measure in _MEASURES},
                "curve": {measure: curve(getattr(whole[name], measure)) for measure in _MEASURES},
            }
            for name in (ALL_OPERATIONS, *shown_ages(record.operations), *busiest)
        ],
        "gauges": [
            {
                "title": title,
                # These only ever grow: what they came to so far.
                "is_total": title in CUMULATIVE,
                "lines": [{"name": label, "low": gauge(name, 0), "high": gauge(name, 1)} for label, name in lines],
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


def curve(histogram: Histogram) -> list[list[float | None]]:
    """Percentiles on a scale that stretches towards 100: tenfold rarer is one step further.

    Returns:
        ``-log10(1 - share)``, such as 2 for p99, and the values in seconds. It ends where fewer than one value is left.
    """
    if not histogram.count:
        return [[], []]
    end = min(_CURVE_END, math.log10(histogram.count))
    steps = [step * _CURVE_STEP for step in range(int(end / _CURVE_STEP) + 1)]
    values = histogram.percentiles([100 * (1 - 10**-step) for step in steps])
    return [[_short(step) for step in (*steps, end)], [_short(value) for value in (*values, histogram.max_s)]]


def _member(name: str) -> Callable[[Slice], float]:
    return lambda each: float(getattr(each.health, name))


def _span(span: Span) -> dict[str, Any]:
    return {"name": span.name, "kind": span.kind, "begin_s": span.begin_s, "end_s": span.end_s}


def _short(value: float | None) -> float | None:
    """Four digits, more than the precision of a histogram; None for no number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}")

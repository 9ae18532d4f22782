"""What ``fleet.js`` draws, as JSON: the figures of each slice of the run as columns, null where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.fleet.metrics.ages import is_age
from simulator.fleet.metrics.recorder import is_cumulative
from simulator.fleet.record import RunRecord, Span
from simulator.fleet.report.figures import ALL_OPERATIONS, FigureSet, Timeline, gap_spans, health_figures
from simulator.fleet.report.formatting import finite

_LINES: Final = ("sent", "ordered", "accepted", "reported", "unanswered")
"""What happens first stands first, and has the same colour in every plot."""


def plots_of(record: RunRecord, figures: FigureSet, timeline: Timeline) -> dict[str, Any]:
    """The document; times of answers are in seconds."""
    slices, width_s = timeline.slices, timeline.width_s
    end_s = max([math.ceil(record.duration_s), *(begin_s + width_s for begin_s in slices)])
    begins = range(0, end_s, width_s)
    gauges = {name: each for found in slices.values() for name, each in found["gauges"].items()}
    shape = {"seconds": 0, "figures": figures.as_dict(), "gauges": gauges, "generator": health_figures(record.health)}
    over_time = _columns(shape, [slices.get(begin_s) for begin_s in begins])
    document = {
        "duration_s": end_s,
        "width_s": width_s,
        "x": [begin_s + width_s / 2 for begin_s in begins],
        "phases": [_span(phase) for phase in timeline.spans],
        "faults": [_span(fault) for fault in record.faults],
        "gaps": [_span(gap) for gap in gap_spans(record)],
        # All of them together first, then ages, then each, the busiest first.
        "operations": [
            {"name": name, **over_time["figures"][name]}
            for name, each in sorted(figures.everything.items(), key=lambda item: _rank(item[0], item[1].total))
        ],
        "gauges": [{"title": title, **each} for title, each in _gauge_groups(over_time["gauges"]).items()],
        "seconds": over_time["seconds"],
        "generator": over_time["generator"],
    }
    found: dict[str, Any] = finite(document)
    return found


def _rank(name: str, count: int) -> tuple[object, ...]:
    return name != ALL_OPERATIONS, not is_age(name), 0 if is_age(name) else -count, name


def _columns(shape: object, rows: Sequence[Any]) -> Any:
    """Documents of one shape as one document, which has a list of numbers where each of them has a number."""
    if not isinstance(shape, Mapping):
        return rows
    return {name: _columns(each, [row and row.get(name) for row in rows]) for name, each in shape.items()}


def _gauge_groups(gauges: Mapping[str, Mapping[str, Sequence[float | None]]]) -> dict[str, dict[str, Any]]:
    """Gauges by plot; ``online`` first, then by title.

    ``readings_sent`` and ``readings_accepted`` share one that is called readings: these only ever grow. What was 0 all
    the time has none.
    """
    groups: dict[str, dict[str, Any]] = {}
    for name, each in sorted(gauges.items(), key=lambda item: (item[0] != "online", item[0])):
        if any(each["high"]):
            family, _, rest = name.partition("_")
            title, label = (family, rest) if (is_total := is_cumulative(name)) else (name, name)
            group = groups.setdefault(title.replace("_", " "), {"is_total": is_total, "lines": []})
            group["lines"].append({"name": label.replace("_", " "), **each})
    for group in groups.values():
        group["lines"].sort(key=lambda line: _LINES.index(line["name"]) if line["name"] in _LINES else len(_LINES))
    return groups


def _span(span: Span) -> dict[str, Any]:
    return {"name": span.name, "kind": span.kind, "begin_s": span.begin_s, "end_s": span.end_s}

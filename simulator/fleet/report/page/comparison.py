"""Two runs, or many, on one page that loads nothing and needs no script: the plots are SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.report.compare import Comparison, Difference, Estimate, Finding
from simulator.fleet.report.comparison_text import change_text, conclusion, figure_text
from simulator.fleet.report.history import Headline, History
from simulator.fleet.report.history_text import against_text, history_conclusion, note_of, rule_text
from simulator.report_parts.page import PageAssets, render_page
from simulator.report_parts.values import Tone

_PACKAGE: Final = "simulator.fleet.report.page"
_FAMILY: Final = "simulator.report_parts"
_ASSETS: Final = PageAssets(
    _PACKAGE, scripts=(), styles=((_FAMILY, "report.css"), (_PACKAGE, "fleet.css"), (_PACKAGE, "comparison.css"))
)
_SEALS: Final = {Tone.GOOD: "✓", Tone.WARN: "!", Tone.BAD: "✕"}
_CLASSES: Final = {
    Finding.WORSE: "bad",
    Finding.BETTER: "good",
    Finding.NOT_SHOWN: "same",
    Finding.TOO_FEW: "few",
    Finding.NOT_JUDGED: "unjudged",
}
_ORDER: Final = {"bad": 0, "good": 1}
"""What was found stands first."""
WIDTH: Final = 320.0
HEIGHT: Final = 96.0
_HEAD: Final = 18.0
"""Above the highest value, for its text."""
_EDGE: Final = 8.0
_BAR: Final = 200.0
_WIDEST: Final = 100.0
"""Percent of a change at which the drawn interval ends at the latest."""


def comparison_page(found: Comparison) -> str:
    """Two runs as a page, to be written as UTF-8."""
    shown = [abs(end) for each in found.differences if each.change for end in (each.change.low, each.change.high)]
    scale = min(max((end for end in shown if math.isfinite(end)), default=1.0) or 1.0, _WIDEST)
    rows: list[dict[str, object]] = [
        {
            "operation": each.operation,
            "name": each.name,
            "a": _interval_text(each, each.a),
            "b": _interval_text(each, each.b),
            "change": change_text(each),
            "finding": each.finding.value,
            "class": _CLASSES[each.finding],
            "bar": _bar(each.change, scale),
        }
        for each in found.differences
    ]
    rows.sort(key=lambda row: _ORDER.get(str(row["class"]), len(_ORDER)))
    tone = Tone.WARN if found.unjudged else Tone.BAD if found.is_worse else Tone.GOOD
    return render_page(
        "compare.html.j2",
        wardrobe=_ASSETS,
        found=found,
        headline=conclusion(found),
        tone=tone,
        seal=_SEALS[tone],
        rows=rows,
        scale=f"{scale:.3g}",
        width=_BAR,
    )


def _interval_text(each: Difference, estimate: Estimate) -> tuple[str, str]:
    value, low, high = (figure_text(each.figure, part) for part in (estimate.value, estimate.low, estimate.high))
    return value, f"{low} to {high}"


def _bar(change: Estimate | None, scale: float) -> dict[str, float] | None:
    """Where the change and its interval are drawn, in the middle of which is no change."""
    if change is None or not all(map(math.isfinite, (change.value, change.low, change.high))):
        return None

    def at(percent: float) -> float:
        return round(_BAR / 2 * (1 + max(-1.0, min(1.0, percent / scale))), 2)

    return {"low": at(change.low), "high": at(change.high), "value": at(change.value)}


# --- many runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dot:
    """A run in a plot.

    Attributes:
        kind: how it is coloured: ``bad``, ``good``, ``same``, ``few`` or ``unjudged``.
        title: what is said when somebody points at it.
    """

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A headline figure over all runs, from 0 upwards.

    Attributes:
        kind: of the latest run.
        line: through the runs that were judged, as the points of an SVG ``polyline``.
        limits: beyond these a run is worse, likewise.
        top: the highest value, in words.
        text: the latest run, in words.
    """

    name: str
    kind: str
    finding: str
    dots: tuple[Dot, ...]
    line: str
    limits: str
    top: str
    text: str


def history_page(history: History) -> str:
    """Many runs as a page, to be written as UTF-8."""
    tone = Tone.WARN if history.unjudged else Tone.BAD if history.is_worse else Tone.GOOD
    return render_page(
        "history.html.j2",
        wardrobe=_ASSETS,
        history=history,
        headline=history_conclusion(history),
        rule=rule_text(history),
        latest_note="" if history.unjudged else note_of(history.latest),
        tone=tone,
        seal=_SEALS[tone],
        plots=[_plot(history, headline) for headline in history.headlines],
        runs=[
            {
                "record": run.record,
                "name": run.folder.name,
                "note": note_of(run),
                "class": "unjudged" if run.unjudged else "bad" if run.names(Finding.WORSE) or run.has_lost else "same",
                "cells": [
                    (
                        headline.name,
                        figure_text(headline.figure, run.figures[headline.name].value),
                        _CLASSES[run.figures[headline.name].finding],
                    )
                    for headline in history.headlines
                ],
            }
            for run in reversed(history.runs)
        ],
        width=WIDTH,
        height=HEIGHT,
    )


def _plot(history: History, headline: Headline) -> Plot:
    judged = [run.figures[headline.name] for run in history.runs]
    finite = [value for each in judged for value in (each.value, each.limit) if math.isfinite(value)]
    top = max(finite, default=0.0) or 1.0
    step = (WIDTH - 2 * _EDGE) / max(1, len(judged) - 1)

    def place(number: int, value: float) -> tuple[float, float]:
        return round(_EDGE + number * step, 2), round(HEIGHT - _EDGE - value / top * (HEIGHT - _EDGE - _HEAD), 2)

    dots, line, limits = [], [], []
    for number, (run, each) in enumerate(zip(history.runs, judged, strict=True)):
        if math.isfinite(each.limit) and not run.unjudged:
            limits.append(place(number, each.limit))
        if not math.isfinite(each.value):
            continue
        x, y = place(number, each.value)
        title = f"{run.record.began_at}, {run.folder.name}: {against_text(headline, each)}; {each.finding}"
        dots.append(Dot(x, y, _CLASSES[each.finding], title))
        if not run.unjudged:
            line.append((x, y))
    latest = judged[-1]
    top_text = figure_text(headline.figure, max(finite)) if finite else ""
    text = against_text(headline, latest)
    kind = _CLASSES[latest.finding]
    return Plot(headline.name, kind, latest.finding, tuple(dots), _points(line), _points(limits), top_text, text)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in places)

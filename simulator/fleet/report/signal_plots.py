"""The day of a reading as a plot: in plain characters as wide as the terminal, and as one HTML page without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from simulator.fleet.models.day import SignalDay
from simulator.report_parts.page import PageAssets, render_page

ROWS: Final = 7
_LABEL: Final = 13
_NARROWEST: Final = 20
_HOURS: Final = (0, 6, 12, 18, 24)
_FEW_HOURS: Final = (0, 12, 24)
_ROOM_FOR_ALL: Final = 45
_WIDTH, _HEIGHT = 720, 150
_STYLES: Final = (("simulator.report_parts", "report.css"),)
_ASSETS: Final = PageAssets("simulator.fleet.report.page", scripts=(), styles=_STYLES)

Span = tuple[float, float, float] | None
"""Lowest, highest and mean of some samples; None without any."""


def terminal_plots(days: Sequence[SignalDay], width: int) -> Iterator[str]:
    """Lines of at most ``width`` characters, without ends: a plot of each reading, of its model's first device.

    A column reaches from the lowest to the highest of its time, so that nothing short is left out; ``*`` is the mean.
    It is empty where the device is off.
    """
    for number, day in enumerate(days):
        if number:
            yield ""
        yield from _terminal_plot(day, max(width, _LABEL + _NARROWEST))


def _terminal_plot(day: SignalDay, width: int) -> Iterator[str]:
    index, samples = next(iter(day.devices.items()))
    yield _cut(f"{day.model}  {day.name}{f' ({day.unit})' if day.unit else ''}, device {index + 1}", width)
    yield _cut(f"{'':{_LABEL}}{_summary(samples)}", width)
    cells = width - _LABEL
    spans = spans_of(samples, cells)
    known = [span for span in spans if span is not None]
    if not known:
        return
    low, high = min(span[0] for span in known), max(span[1] for span in known)
    rows = ROWS if high > low else 1
    grid = [[" "] * len(spans) for _ in range(rows)]
    for at, span in enumerate(spans):
        if span is None:
            continue
        bottom, top, mean = (_row(value, low, high, rows) for value in span)
        for row in range(bottom, top + 1):
            grid[row][at] = "*" if row == mean else "|"
    labels = {rows - 1: high, 0: low, **({rows // 2: (low + high) / 2} if rows > 1 else {})}
    for row in range(rows - 1, -1, -1):
        label = number_text(labels[row]) if row in labels else ""
        yield f"{label:>{_LABEL - 2}} |{''.join(grid[row])}".rstrip()
    yield _hours(cells)


def spans_of(samples: Sequence[float | None], cells: int) -> list[Span]:
    """Equal parts of the samples; a sample is in several of them where there are more parts than samples."""
    spans: list[Span] = []
    for cell in range(cells):
        begin, end = cell * len(samples) // cells, (cell + 1) * len(samples) // cells
        part = [value for value in samples[begin : max(end, begin + 1)] if value is not None]
        spans.append((min(part), max(part), math.fsum(part) / len(part)) if part else None)
    return spans


def number_text(value: float) -> str:
    """A number for an axis, in few characters: five significant digits."""
    return f"{value:.5g}"


def _row(value: float, low: float, high: float, rows: int) -> int:
    return min(rows - 1, int((value - low) / (high - low) * rows)) if high > low else 0


def _hours(cells: int) -> str:
    """The clock below a plot."""
    line = [" "] * (_LABEL + cells)
    for hour in _HOURS if cells >= _ROOM_FOR_ALL else _FEW_HOURS:
        text = f"{hour:02}:00"
        at = _LABEL + min(round(hour / 24 * cells), cells - len(text))
        line[at : at + len(text)] = text
    return "".join(line).rstrip()


def _summary(samples: Sequence[float | None]) -> str:
    values = [value for value in samples if value is not None]
    if not values:
        return "reads nothing on this day: it is off, or its files and formulas give no value"
    mean = math.fsum(values) / len(values)
    off = 1 - len(values) / len(samples)
    without = f", none in {off:.0%} of the day" if off else ""
    return f"{number_text(min(values))} to {number_text(max(values))}, mean {number_text(mean)}{without}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


@dataclass(frozen=True, slots=True)
class Line:
    """A device's line: SVG path data, which breaks where nothing was read."""

    device: int
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot of the page; heights are shares of the plot from its top, for labels."""

    day: SignalDay
    summary: str
    lines: tuple[Line, ...]
    labels: tuple[tuple[str, float], ...]


def signals_page(name: str, days: Sequence[SignalDay]) -> str:
    """One HTML page with the day of each reading, of up to three devices each; nothing is loaded. Pure.

    Args:
        name: of the scenario.
        days: what they read.
    """
    models: dict[str, list[Drawing]] = {}
    for day in days:
        models.setdefault(day.model, []).append(_drawing(day))
    begin = datetime.fromtimestamp(days[0].begin_s, UTC) if days else None
    return render_page(
        "signals.html.j2",
        wardrobe=_ASSETS,
        name=name,
        models=models,
        begin=begin.strftime("%Y-%m-%d %H:%M UTC") if begin else "",
        hours=[(f"{hour:02}:00", hour / 24) for hour in _HOURS],
        width=_WIDTH,
        height=_HEIGHT,
    )


def _drawing(day: SignalDay) -> Drawing:
    values = day.values
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.05
    low, high = low - room, high + room
    lines = tuple(
        Line(index + 1, _path(spans_of(samples, _WIDTH), low, high)) for index, samples in day.devices.items()
    )
    first, *_ = day.devices.values()
    marks = [low + room, (low + high) / 2, high - room]
    return Drawing(
        day,
        _summary(first if len(day.devices) == 1 else [value for each in day.devices.values() for value in each]),
        lines,
        tuple((number_text(mark), (high - mark) / (high - low)) for mark in marks),
    )


def _path(spans: Sequence[Span], low: float, high: float) -> str:
    """Through the lowest and the highest of each column."""
    parts, is_open = [], False
    for at, span in enumerate(spans):
        if span is None:
            is_open = False
            continue
        for value in span[:2] if span[0] != span[1] else span[:1]:
            y = (high - value) / (high - low) * _HEIGHT
            parts.append(f"{'L' if is_open else 'M'}{at + 0.5:g} {y:.1f}")
            is_open = True
        if at + 1 == len(spans) or spans[at + 1] is None:
            parts.append("h0.5")  # one sample alone is a point that can be seen
    return "".join(parts)

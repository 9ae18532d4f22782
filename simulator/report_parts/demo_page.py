"""The demo's report: a :class:`DemoStory` in, one HTML file's text out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from simulator.report_parts.page import render_page
from simulator.report_parts.values import Chart, CommandRow, DemoStory, Outage

_TICKS: Final = 8
_TICK_STEPS_S: Final = (0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600)


# What a command takes at least in the picture, so that short ones that follow each other do not hide each other.
_WIDTH_MIN: Final = 0.012


@dataclass(frozen=True, slots=True)
class Bar:
    """One command in the picture: waiting from ``created_s``, at work from ``begin_s`` to ``end_s``."""

    command: CommandRow
    row: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One device's line in the picture of the story.

    Attributes:
        rows: how many commands lie above each other.
    """

    device: str
    rows: int
    bars: tuple[Bar, ...]
    outages: tuple[Outage, ...]


def demo_page(story: DemoStory) -> str:
    """The whole page as text, to be written as UTF-8."""
    return render_page(
        "demo.html.j2",
        story=story,
        lanes=_lanes(story),
        ticks=axis_ticks(story.duration_s),
        plots=_plots(story),
    )


def axis_ticks(duration_s: float) -> tuple[float, ...]:
    """Round instants for an axis from 0 to ``duration_s``: at most eight steps, none so near the end that it is cut."""
    step_s = next((step for step in _TICK_STEPS_S if duration_s / step <= _TICKS), _TICK_STEPS_S[-1])
    count = int(duration_s * 0.97 // step_s)
    return tuple(float(step_s * index) for index in range(count + 1))


def _lanes(story: DemoStory) -> tuple[Lane, ...]:
    return tuple(
        _lane(
            card.name,
            [row for row in story.commands if row.device == card.name],
            tuple(
                replace(outage, to_s=min(outage.to_s, story.duration_s))
                for outage in story.outages
                if outage.device == card.name
            ),
            story.duration_s,
        )
        for card in story.devices
    )


def _lane(device: str, commands: list[CommandRow], outages: tuple[Outage, ...], duration_s: float) -> Lane:
    """Lay the commands out, each in the first row that is free where it begins."""
    free_from: list[float] = []
    bars: list[Bar] = []
    for command in sorted(commands, key=lambda row: row.created_s):
        end_s = duration_s if command.completed_s is None else command.completed_s
        begin_s = end_s if command.delivered_s is None else command.delivered_s
        row = next((at for at, free_s in enumerate(free_from) if free_s <= command.created_s), len(free_from))
        if row == len(free_from):
            free_from.append(0.0)
        free_from[row] = max(end_s, begin_s + _WIDTH_MIN * duration_s)
        bars.append(Bar(command, row, begin_s, end_s))
    return Lane(device, max(1, len(free_from)), tuple(bars), outages)


def _plots(story: DemoStory) -> dict[str, Any]:
    """What ``report.js`` draws; see there."""
    return {
        "duration_s": round(story.duration_s, 3),
        "marks": [{"at_s": mark.at_s, "label": mark.label} for mark in story.marks],
        "charts": [_plot(chart) for chart in story.charts],
    }


def _plot(chart: Chart) -> dict[str, Any]:
    return {
        "digits": chart.digits,
        "crowd": chart.crowd,
        "series": [
            {
                "name": line.name,
                "x": [round(at_s, 3) for at_s, _ in line.points],
                "y": [value for _, value in line.points],
            }
            for line in chart.series
        ],
    }

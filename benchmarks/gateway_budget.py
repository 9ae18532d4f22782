"""How soon commands and readings get through a gateway, by fleet and quota: the table and the plot of docs/scale.md.

Method: :mod:`benchmarks._gateway_model`, virtual time, so machine and load change nothing but how long this takes. Each
device is sent four commands a day and read every five minutes. *Plain* is a service with nothing but the
specification: the gateway polls, and each reading takes a request. *Extended* offers ``command-events`` and
``batch-sensor-data``. Command: from sending it to the gateway's having it (to the device it is one MQTT message more).
Reading: from the sensor to the service, with those that were merged into a later record.

    python benchmarks/gateway_budget.py [--quick] [--write]

``--quick`` leaves out 100,000 devices. ``--write`` puts table and plot into docs/.

Exit codes: 0 at most 1 % of any row's requests got 429, 1 more did.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._gateway_model import Scenario, simulate

FLEETS = (10, 100, 1_000, 5_000, 10_000, 100_000)
QUOTAS = (1_000, 10_000)
REFUSED_BAR = 0.01
PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
IMAGE = PAGE.parent / "images" / "gateway-scale.svg"
BEGIN, END = "<!-- table: written by benchmarks/gateway_budget.py -->", "<!-- end of table -->"


@dataclass(frozen=True, slots=True)
class Row:
    """What one scenario led to; durations in seconds: median, 99th percentile, longest."""

    devices: int
    quota: int
    extensions: bool
    command_s: tuple[float, float, float]
    reading_s: tuple[float, float, float]
    merged_share: float
    requests_per_min: float
    refused_share: float


def scenario_of(devices: int, quota: int, *, extensions: bool) -> Scenario:
    """Long enough for each idle device to be asked about in each of warming up, measuring and draining."""
    # Half of what the quota allows is a safe estimate of what the idle lane gets.
    sweep_s = max(60.0, devices / (0.45 * quota / 60))
    if extensions:
        measured_s = _long_enough(devices)
        return Scenario(devices, quota, events=True, batches=True, warm_up_s=sweep_s + 600, measured_s=measured_s)
    measured_s = max(sweep_s, _long_enough(devices))
    return Scenario(devices, quota, warm_up_s=sweep_s + 600, measured_s=measured_s, drain_s=1.5 * sweep_s)


def _long_enough(devices: int) -> float:
    """A few hundred commands, and no more than two days."""
    return min(172_800.0, max(1800.0, 300 * 86_400 / 4 / devices))


def run(given: tuple[int, int, bool]) -> Row:
    """One row."""
    devices, quota, extensions = given
    scenario = scenario_of(devices, quota, extensions=extensions)
    outcome = simulate(scenario)
    minutes = (scenario.warm_up_s + scenario.measured_s + scenario.drain_s) / 60
    return Row(
        devices,
        quota,
        extensions,
        (outcome.commands.at(0.5), outcome.commands.at(0.99), outcome.commands.max_s),
        (outcome.readings.at(0.5), outcome.readings.at(0.99), outcome.readings.max_s),
        outcome.merged_share,
        outcome.requests / minutes,
        outcome.refused_share,
    )


# --- the table --------------------------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """A duration as a person says it."""
    if math.isnan(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 36_000 else f"{seconds / 3600:.0f} h"


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "| devices | quota/min | service | command p50 | p99 | longest | reading p50 | p99 | merged | per min | 429 |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = (
            f"{row.devices:,}",
            f"{row.quota:,}",
            "extended" if row.extensions else "plain",
            *(span(each) for each in row.command_s),
            *(span(each) for each in row.reading_s[:2]),
            f"{100 * row.merged_share:.0f} %",
            f"{row.requests_per_min:,.0f}",
            f"{100 * row.refused_share:.2g} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# --- the plot ---------------------------------------------------------------------------------------------------------

_SERIES = (
    ("plain, 1,000 a minute", 1_000, False, "#c2410c", ""),
    ("plain, 10,000 a minute", 10_000, False, "#d97706", "7 4"),
    ("extended, 1,000 a minute", 1_000, True, "#1d4ed8", ""),
    ("extended, 10,000 a minute", 10_000, True, "#0891b2", "7 4"),
)
_TICKS_S = ((0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"))
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 980, 470, 84, 92
_PANELS = ((70, 460), (550, 940))
_LABEL = "How long 99 of 100 commands and readings take, by fleet size and quota"
_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2937}"
    ".head{font-size:18px;font-weight:700}.title{font-size:15px;font-weight:600}.tick{font-size:12px;fill:#4b5563}"
    ".grid{stroke:#e5e7eb;stroke-width:1}"
)


def _x(devices: int, panel: tuple[int, int]) -> float:
    part = (math.log10(devices) - 1) / 4
    return panel[0] + part * (panel[1] - panel[0])


def _y(seconds: float) -> float:
    low, high = math.log10(0.05), math.log10(60_000)
    return _HEIGHT - _BOTTOM - (math.log10(max(seconds, 0.05)) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{text}</text>'


def _panel(rows: Sequence[Row], panel: tuple[int, int], title: str, value: Callable[[Row], float]) -> list[str]:
    parts = [_text(panel[0], _TOP - 18, title, 'class="title"')]
    for seconds, name in _TICKS_S:
        y = _y(seconds)
        parts += [
            f'<line x1="{panel[0]}" y1="{y:.1f}" x2="{panel[1]}" y2="{y:.1f}" class="grid"/>',
            _text(panel[0] - 8, y + 4, name, 'class="tick" text-anchor="end"'),
        ]
    for devices in (10, 100, 1_000, 10_000, 100_000):
        x = _x(devices, panel)
        parts += [
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" class="grid"/>',
            _text(x, _HEIGHT - _BOTTOM + 18, f"{devices:,}", 'class="tick" text-anchor="middle"'),
        ]
    middle = (panel[0] + panel[1]) / 2
    parts.append(
        _text(middle, _HEIGHT - _BOTTOM + 38, "devices behind one gateway", 'class="tick" text-anchor="middle"')
    )
    for _, quota, extensions, colour, dashes in _SERIES:
        points = [
            (_x(row.devices, panel), _y(value(row)))
            for row in rows
            if row.quota == quota and row.extensions == extensions and not math.isnan(value(row))
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}" '
            'stroke-linejoin="round"/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    return parts


def plot(rows: Sequence[Row]) -> str:
    """SVG: how long 99 of 100 commands and readings take, both axes logarithmic."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_LABEL}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="#ffffff"/>',
        _text(24, 36, "One gateway, one key: 99 of 100 take no longer than this", 'class="head"'),
        *_panel(rows, _PANELS[0], "A command, from sending it to the gateway", lambda row: row.command_s[1]),
        *_panel(rows, _PANELS[1], "A reading, from the sensor to the service", lambda row: row.reading_s[1]),
    ]
    for number, (name, _, _, colour, dashes) in enumerate(_SERIES):
        x, y = 70 + number * 228, _HEIGHT - 22
        parts.append(
            f'<line x1="{x}" y1="{y - 4}" x2="{x + 30}" y2="{y - 4}" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes}"/>'
        )
        parts.append(_text(x + 38, y, name, 'class="tick"'))
    return "\n".join([*parts, "</svg>", ""])


# --- the program ------------------------------------------------------------------------------------------------------


def write(rows: Sequence[Row], made: str) -> None:
    """Put table and plot into docs/."""
    IMAGE.write_text(plot(rows), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{made}\n\n{END}{after}", encoding="utf-8")


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="leave out 100,000 devices")
    parser.add_argument("--write", action="store_true", help="put table and plot into docs/")
    given = parser.parse_args()
    fleets = [devices for devices in FLEETS if devices <= 10_000 or not given.quick]
    cases = [(devices, quota, ext) for devices in fleets for quota in QUOTAS for ext in (False, True)]
    with ProcessPoolExecutor(min(len(cases), os.cpu_count() or 1)) as pool:
        rows = list(pool.map(run, cases))
    today = dt.datetime.now(dt.UTC).date()
    made = f"Simulated on {today} with Python {platform.python_version()}, seed {Scenario(1, 1).seed}."
    print(f"{table(rows)}\n\n{made}")
    if given.write:
        write(rows, made)
    worst = max(row.refused_share for row in rows)
    if worst > REFUSED_BAR:
        print(f"FAILED: {100 * worst:.1f} % of a row's requests got 429; the bar is 1 %")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

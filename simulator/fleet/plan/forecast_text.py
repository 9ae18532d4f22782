"""A forecast as lines for a person."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from simulator.fleet.plan.forecast import Forecast
from simulator.fleet.scenario.preparation import REGISTERED_PER_S

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_KILO: Final = 1000.0
_TEN: Final = 10
_BAR: Final = 30


def describe(made: Forecast) -> Iterator[str]:
    """The lines, without ends."""
    models = ", ".join(f"{count:,} {name}" for name, count in made.models.items())
    has_devices = made.kind != "onboarding_storm"
    kind, over = made.kind.replace("_", " "), f"at level {made.level} over {made.transport}"
    # Without devices there are none that could be of a level, or poll.
    yield f"{made.name}: {kind} {over if has_devices else 'over http'}, to {made.target}"
    if made.description:
        yield made.description
    if has_devices:
        yield f"devices     {made.devices:,} ({models})"
        yield from (f"{model} reads {', '.join(names)}" for model, names in made.readings.items() if names)
    elif made.kind == "onboarding_storm":
        yield f"labels      {made.devices:,}"
    yield f"workers     {made.workers}"
    if made.preparing_s:
        limited = f"{clock(round(made.preparing_limited_s))} within a quota of 1,000 a minute for each key"
        needed = f"{clock(math.ceil(made.preparing_s))} to register all devices at {REGISTERED_PER_S:g}/s"
        yield f"preparing   about {needed}; {limited}"
    yield f"takes       {clock(made.duration_s)}; at most {clock(made.longest_s)} with barriers that wait and the drain"
    yield f"seed        {made.seed}, digest {made.digest}"
    yield ""
    yield from table(
        ["phase", "from", "to", "", "online" if has_devices else "", "requests/s", "until"],
        [
            [
                f"{phase.name} ({phase.kind})",
                clock(phase.begin_s),
                clock(phase.end_s),
                _bar(phase.begin_s / made.duration_s, phase.end_s / made.duration_s),
                _online(phase.online_from, phase.online_to) if has_devices else "",
                _number(sum(phase.rates.values())),
                phase.until or "",
            ]
            for phase in made.phases
        ],
    )
    if made.faults:
        yield ""
        yield from table(
            ["fault", "from", "to", "", "devices"],
            [
                [
                    fault.kind,
                    clock(fault.begin_s),
                    clock(fault.end_s),
                    _bar(fault.begin_s / made.duration_s, fault.end_s / made.duration_s),
                    f"{fault.devices:,}",
                ]
                for fault in made.faults
            ],
        )
    if made.peak_rates:
        yield ""
        yield from table(
            ["operation", "requests/s in the busiest phase"],
            [[name, _number(rate)] for name, rate in made.peak_rates.items()],
        )
    yield ""
    yield from _needs(made)


def _needs(made: Forecast) -> Iterator[str]:
    yield f"requests    about {made.requests:,}"
    yield f"bytes       about {_size(made.sent_bytes)} sent, {_size(made.received_bytes)} received"
    short = "" if made.sockets <= made.ports else f"; only {made.ports:,} ports: raise target.source_addresses"
    yield f"sockets     at most about {made.sockets:,}{short}"
    keys = "1 key" if made.keys == 1 else f"{made.keys} keys"
    yield f"quota       {made.quota_per_minute:,} requests a minute with {keys}; at 1,000 a minute "
    yield f"            it would need {made.keys_needed}"
    for sentence in made.unplanned:
        yield f"not counted {sentence}"
    for sentence in made.notes:
        yield f"note        {sentence}"


def clock(seconds: float) -> str:
    """``1:30`` for a minute and a half; ``2:00:00`` for two hours; ``0:00.250`` below a second."""
    whole = int(seconds)
    rest = f"{seconds - whole:.3f}"[1:] if seconds - whole > 1 / _KILO else ""
    if whole >= _HOUR_S:
        return f"{whole // _HOUR_S}:{whole % _HOUR_S // _MINUTE_S:02d}:{whole % _MINUTE_S:02d}{rest}"
    return f"{whole // _MINUTE_S}:{whole % _MINUTE_S:02d}{rest}"


def _bar(begin: float, end: float) -> str:
    """Where on the run's time line: every one is at least one sign long."""
    first = min(round(begin * _BAR), _BAR - 1)
    last = max(round(end * _BAR), first + 1)
    return "." * first + "#" * (last - first) + "." * (_BAR - last)


def _online(first: int, last: int) -> str:
    return f"{last:,}" if first == last else f"{first:,} -> {last:,}"


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= _TEN else f"{rate:.2g}"


def _size(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size_bytes < _KILO:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= _KILO
    return f"{size_bytes:.1f} GB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell, without ends of lines."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

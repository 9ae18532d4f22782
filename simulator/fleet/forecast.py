"""What a run will be, in figures, without doing it: what ``plan`` prints."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from simulator.fleet.faults import count_concerned
from simulator.fleet.plan import PhaseSpan, Timeline, count_workers, digest_of, models_of
from simulator.fleet.record import Span
from simulator.fleet.report.formatting import clock_text
from simulator.fleet.scenario.model import (
    REGISTERED_PER_S,
    BackfillScenario,
    DevicesScenario,
    OnboardingScenario,
    Scenario,
)
from simulator.wire.limits import QUOTA_PER_MINUTE

_PORTS: Final = 28_000
_HELD_POLLS_OF_A_COMMAND: Final = 2
"""The list changes when it comes and when its result does: both times the held poll is answered."""
_MINUTE_S: Final = 60
_UNPLANNED: Final = {
    "backfill": "history is sent as fast as the target takes it",
    "devices": "retries, and backlogs after faults",
}


def forecast(scenario: Scenario, cores: int | None = None) -> dict[str, Any]:
    """The figures of a scenario, on so many cores (None asks this machine), as ``plan --json`` prints them.

    Rates are requests per second by operation: averages of each phase. ``requests``, ``sockets``: about, ``sockets``
    at most, of which ``ports`` can be had from the source addresses. ``preparing_s``: to register all devices first, at
    the rate of a local service. ``longest_s``: with every barrier's whole wait and the drain. ``quota_per_minute``: of
    one key in the busiest minute; ``keys_needed``: at the default quota.
    """
    timeline = Timeline.of(scenario)
    phases: list[dict[str, Any]] = [
        {
            "name": phase.name,
            "kind": phase.kind,
            "begin_s": span.begin_s,
            "end_s": span.end_s,
            "online_from": round(span.online_from * scenario.fleet.devices),
            "online_to": round(span.online_to * scenario.fleet.devices),
            "until": phase.until,
            "rates": rates_of(scenario, span),
        }
        for span, phase in zip(timeline.spans, scenario.phases, strict=True)
    ]
    rates: list[dict[str, float]] = [phase["rates"] for phase in phases]
    busiest = max(sum(rate for name, rate in each.items() if name.startswith("http.")) for each in rates)
    keys = max(len(scenario.target.keys), 1)
    counts = Counter(models_of(scenario))
    requests = sum(sum(phase["rates"].values()) * (phase["end_s"] - phase["begin_s"]) for phase in phases)
    return {
        "name": scenario.scenario,
        "description": scenario.description,
        "kind": scenario.kind,
        "transport": scenario.target.transport,
        "target": scenario.target.base_url,
        "seed": scenario.seed,
        "digest": digest_of(scenario),
        "devices": scenario.fleet.devices,
        "models": {model.name: counts[index] for index, model in enumerate(scenario.fleet.models)},
        "workers": count_workers(scenario, cores),
        "phases": phases,
        "faults": [
            {"name": fault.name, "begin_s": fault.begin_s, "end_s": fault.end_s, "devices": fault.devices}
            for fault in planned_faults(scenario)
        ],
        "peak_rates": {name: max(each.get(name, 0.0) for each in rates) for name in sorted(set().union(*rates))},
        "requests": round(requests + _batches_of_history(scenario)),
        "sockets": sockets_of(scenario),
        "ports": _PORTS * scenario.target.source_count,
        "preparing_s": 0.0 if scenario.kind == "onboarding" else scenario.fleet.devices / REGISTERED_PER_S,
        "duration_s": timeline.end_s,
        "longest_s": timeline.end_s
        + sum(phase.until_within_s for phase in scenario.phases if phase.until is not None)
        + scenario.drain_s,
        "quota_per_minute": round(busiest * _MINUTE_S / keys),
        "keys": keys,
        "keys_needed": max(-(-round(busiest * _MINUTE_S) // QUOTA_PER_MINUTE), 1),
        "unplanned": _UNPLANNED.get(scenario.kind, ""),
    }


def planned_faults(scenario: Scenario) -> tuple[Span, ...]:
    """When something is broken on purpose, as planned: seconds since the begin. Barriers move it."""
    counts = count_concerned(scenario.faults, scenario.seed, scenario.fleet.devices)
    return tuple(
        Span(fault.title, fault.kind, fault.at_s, fault.at_s + fault.duration_s, count)
        for fault, count in zip(scenario.faults, counts, strict=True)
    )


def sockets_of(scenario: Scenario) -> int:
    """How many sockets the devices have at most."""
    target, devices = scenario.target, scenario.fleet.devices
    if target.is_pooled:
        return target.pool
    # While the service holds its poll, a device sends over a second socket.
    return devices * (2 if target.holds_polls else 1)


def rates_of(scenario: Scenario, span: PhaseSpan) -> dict[str, float]:
    """Requests per second of each operation in a phase, on average; without those of which there are none."""
    factor, online = span.rate_factor, (span.online_from + span.online_to) / 2
    asked = online * factor
    rates: dict[str, float] = defaultdict(float)
    if isinstance(scenario, OnboardingScenario):
        settings = scenario.onboarding
        rates["http.scan_qr"] = settings.rate_per_s * factor
        rates["http.register"] = settings.rate_per_s * factor * (1 + settings.races)
    for arrivals in scenario.arrivals:
        rates[f"http.{arrivals.operation}"] += arrivals.rate_per_s * asked
    if isinstance(scenario, DevicesScenario):
        protocol, is_held = scenario.target.protocol, scenario.target.holds_polls
        poll = "http.long_poll" if is_held else "http.poll"
        for model in scenario.fleet.models:
            devices = model.share * scenario.fleet.devices * online
            rates[f"{protocol}.sensor_data"] += devices / model.telemetry.every_s
            if protocol == "http":
                rates[poll] += devices / (model.poll.wait_s if is_held else model.poll.every_s)
        commands = sum(command.rate_per_s for command in scenario.commands) * asked
        rates["http.send_command"] += commands
        rates[f"{protocol}.report"] += commands
        if is_held:
            rates[poll] += _HELD_POLLS_OF_A_COMMAND * commands
    return {name: rate for name, rate in rates.items() if rate > 0}


def _batches_of_history(scenario: Scenario) -> float:
    if not isinstance(scenario, BackfillScenario):
        return 0.0
    history_s, devices = scenario.backfill.history_s, scenario.fleet.devices
    models = scenario.fleet.models
    return sum(each.share * devices * history_s / each.telemetry.every_s / each.telemetry.batch for each in models)


# --- for a person -----------------------------------------------------------------------------------------------------


def describe(made: Mapping[str, Any]) -> Iterator[str]:
    """The figures of a forecast in lines, without ends."""
    yield f"{made['name']}: {made['kind']} over {made['transport']}, to {made['target']}"
    if made["description"]:
        yield made["description"]
    models = ", ".join(f"{count:,} {name}" for name, count in made["models"].items())
    yield f"devices     {made['devices']:,}{f' ({models})' if models else ''}"
    yield f"workers     {made['workers']}"
    if made["preparing_s"]:
        needed = clock_text(math.ceil(made["preparing_s"]))
        yield f"preparing   about {needed} to register all devices at {REGISTERED_PER_S:g}/s"
    longest = clock_text(made["longest_s"])
    yield f"takes       {clock_text(made['duration_s'])}; at most {longest} with barriers that wait and the drain"
    yield f"seed        {made['seed']}, digest {made['digest']}"

    yield ""
    phases = [
        [
            f"{phase['name']} ({phase['kind']})",
            clock_text(phase["begin_s"]),
            clock_text(phase["end_s"]),
            f"{phase['online_from']:,} -> {phase['online_to']:,}",
            f"{sum(phase['rates'].values()):,.4g}",
            phase["until"] or "",
        ]
        for phase in made["phases"]
    ]
    yield from _table([["phase", "from", "to", "online", "requests/s", "until"], *phases])
    if made["faults"]:
        yield ""
        faults = [
            [each["name"], clock_text(each["begin_s"]), clock_text(each["end_s"]), f"{each['devices']:,}"]
            for each in made["faults"]
        ]
        yield from _table([["fault", "from", "to", "devices"], *faults])
    if made["peak_rates"]:
        yield ""
        rates = [[name, f"{rate:,.4g}"] for name, rate in made["peak_rates"].items()]
        yield from _table([["operation", "requests/s in the busiest phase"], *rates])
    yield ""
    yield f"requests    about {made['requests']:,}"
    is_short = made["sockets"] > made["ports"]
    short = f"; only {made['ports']:,} ports: list more in target.source_addresses" if is_short else ""
    yield f"sockets     at most about {made['sockets']:,}{short}"
    keys = "1 key" if made["keys"] == 1 else f"{made['keys']} keys"
    quota = f"{made['quota_per_minute']:,} requests a minute with {keys}"
    yield f"quota       {quota}; at {QUOTA_PER_MINUTE:,} a minute it would need {made['keys_needed']}"
    if made["unplanned"]:
        yield f"not counted {made['unplanned']}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

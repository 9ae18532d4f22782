"""What a run will be, in figures, without doing it: what ``plan`` prints, and what ``run`` holds against its caps."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.faults import count_concerned
from simulator.fleet.plan import PhaseSpan, Plan, count_workers
from simulator.fleet.record import Span
from simulator.fleet.report.formatting import clock_text
from simulator.fleet.scenario.model import (
    REGISTERED_PER_S,
    BackfillScenario,
    DevicesScenario,
    OnboardingScenario,
    Scenario,
    StormPhase,
)
from simulator.wire.limits import QUOTA_PER_MINUTE

_PORTS: Final = 28_000
_HELD_POLLS_OF_A_COMMAND: Final = 2
"""The list changes when it comes and when its result does: both times the held poll is answered."""
_MINUTE_S: Final = 60
_BAR: Final = 30

Rates = Mapping[str, float]
"""Operation to requests per second."""


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """One phase; ``online_from`` and ``online_to`` are devices that are switched on, ``rates`` averages."""

    name: str
    kind: str
    begin_s: float
    end_s: float
    online_from: int
    online_to: int
    until: str | None
    rates: Rates


@dataclass(frozen=True, slots=True)
class Forecast:
    """A whole run.

    Attributes:
        models: devices of each.
        peak_rates: of each operation, in its busiest phase.
        requests: in all, about.
        sockets: at most, about; ``ports`` of them can be had from the source addresses.
        preparing_s: to register all devices first, at the rate of a local service; 0 where none are.
        duration_s: of the phases; ``longest_s`` with every barrier's whole wait and the drain.
        quota_per_minute: requests of one key in the busiest minute.
        keys: in the pool; ``keys_needed`` at the default quota.
        unplanned: what depends on the target's answers and stands in no figure.
    """

    name: str
    kind: str
    transport: str
    target: str
    seed: int
    digest: str
    devices: int
    description: str
    models: Mapping[str, int]
    workers: int
    phases: tuple[PhaseForecast, ...]
    faults: tuple[Span, ...]
    peak_rates: Rates
    requests: int
    sockets: int
    ports: int
    preparing_s: float
    duration_s: float
    longest_s: float
    quota_per_minute: int
    keys: int
    keys_needed: int
    unplanned: tuple[str, ...]


def forecast(plan: Plan, cores: int | None = None) -> Forecast:
    """The figures of a plan, on so many cores; None asks this machine."""
    scenario = plan.scenario
    phases = tuple(_phase(scenario, span) for span in plan.timeline.spans)
    busiest = max(sum(rate for name, rate in phase.rates.items() if name.startswith("http.")) for phase in phases)
    requests = sum(sum(phase.rates.values()) * (phase.end_s - phase.begin_s) for phase in phases)
    keys = max(len(scenario.target.keys), 1)
    waits_s = sum(phase.until_within_s for phase in scenario.phases if phase.until is not None)
    names = sorted({name for phase in phases for name in phase.rates})
    counts = Counter(plan.models.tolist())
    return Forecast(
        name=scenario.scenario,
        kind=scenario.kind,
        transport=scenario.target.transport,
        target=scenario.target.base_url,
        seed=scenario.seed,
        digest=plan.digest,
        devices=scenario.fleet.devices,
        description=scenario.description,
        models={model.name: counts[index] for index, model in enumerate(scenario.fleet.models)},
        workers=count_workers(scenario, cores),
        phases=phases,
        faults=planned_faults(scenario),
        peak_rates={name: max(phase.rates.get(name, 0.0) for phase in phases) for name in names},
        requests=round(requests + _batches_of_history(scenario)),
        sockets=sockets_of(scenario),
        ports=_PORTS * scenario.target.source_count,
        preparing_s=0.0 if scenario.kind == "onboarding" else scenario.fleet.devices / REGISTERED_PER_S,
        duration_s=plan.end_s,
        longest_s=plan.end_s + waits_s + scenario.drain_s,
        quota_per_minute=round(busiest * _MINUTE_S / keys),
        keys=keys,
        keys_needed=max(-(-round(busiest * _MINUTE_S) // QUOTA_PER_MINUTE), 1),
        unplanned=tuple(_unplanned(scenario)),
    )


def planned_faults(scenario: Scenario) -> tuple[Span, ...]:
    """When something is broken on purpose, as planned: seconds since the begin. Barriers move it."""
    counts = count_concerned(scenario.faults, scenario.seed, scenario.fleet.devices)
    return tuple(
        Span(fault.title, fault.kind, fault.at_s, fault.at_s + fault.duration_s, count)
        for fault, count in zip(scenario.faults, counts, strict=True)
    )


def busiest_rate(plan: Plan) -> float:
    """Requests per second of all operations, in the busiest phase."""
    return max(sum(_phase(plan.scenario, span).rates.values()) for span in plan.timeline.spans)


def sockets_of(scenario: Scenario) -> int:
    """How many sockets the devices have at most."""
    target, devices = scenario.target, scenario.fleet.devices
    if target.is_pooled:
        return target.pool
    # While the service holds its poll, a device sends over a second socket.
    return devices * (2 if target.traits.polls == "held" else 1)


def _phase(scenario: Scenario, span: PhaseSpan) -> PhaseForecast:
    phase, count = scenario.phases[span.index], scenario.fleet.devices
    online = (span.online_from + span.online_to) / 2
    # The operator does not know who is away: commands go on in a storm.
    asked = online * span.rate_factor
    if isinstance(phase, StormPhase):
        online *= 1 - phase.share * phase.waves * phase.away_s / phase.duration_s
    rates = {name: rate for name, rate in _rates(scenario, online, asked, span.rate_factor).items() if rate > 0}
    ends = (round(span.online_from * count), round(span.online_to * count))
    return PhaseForecast(phase.name, phase.kind, span.begin_s, span.end_s, *ends, phase.until, rates)


def _rates(scenario: Scenario, online: float, asked: float, factor: float) -> Rates:
    """Requests per second of each operation.

    Args:
        scenario: of the run.
        online: share of the devices that are there.
        asked: what the rates of commands and arrivals are multiplied with.
        factor: of the phase.
    """
    rates: dict[str, float] = defaultdict(float)
    if isinstance(scenario, OnboardingScenario):
        settings = scenario.onboarding
        labels = settings.rate_per_s * factor
        parts = {"scan_qr": 1.0, "register": 1 + settings.races, "remove": settings.remove}
        return {f"http.{name}": labels * part for name, part in parts.items()}
    for arrivals in scenario.arrivals:
        rates[f"http.{arrivals.operation}"] += arrivals.rate_per_s * asked
    if not isinstance(scenario, DevicesScenario):
        return rates
    transport = scenario.target.traits
    is_held = transport.polls == "held"
    poll = "http.long_poll" if is_held else "http.poll"
    for model in scenario.fleet.models:
        devices = model.share * scenario.fleet.devices * online
        rates[f"{transport.protocol}.sensor_data"] += devices / model.telemetry.every_s
        if not transport.is_pushed:
            rates[poll] += devices / (model.poll.wait_s if is_held else model.poll.every_s)
    commands = sum(command.rate_per_s for command in scenario.commands) * asked
    rates["http.send_command"] += commands
    rates[f"{transport.protocol}.report"] += commands
    if is_held:
        rates[poll] += _HELD_POLLS_OF_A_COMMAND * commands
    return rates


def _batches_of_history(scenario: Scenario) -> float:
    if not isinstance(scenario, BackfillScenario):
        return 0.0
    return sum(
        model.share
        * scenario.fleet.devices
        * scenario.backfill.history_s
        / model.telemetry.every_s
        / model.telemetry.batch
        for model in scenario.fleet.models
    )


def _unplanned(scenario: Scenario) -> Iterator[str]:
    if isinstance(scenario, BackfillScenario):
        yield "history is sent as fast as the target takes it"
    if isinstance(scenario, DevicesScenario):
        yield "retries, and backlogs after storms"


# --- for a person -----------------------------------------------------------------------------------------------------


def describe(made: Forecast) -> Iterator[str]:
    """The lines, without ends."""
    yield f"{made.name}: {made.kind} over {made.transport}, to {made.target}"
    if made.description:
        yield made.description
    models = ", ".join(f"{count:,} {name}" for name, count in made.models.items())
    yield f"devices     {made.devices:,}{f' ({models})' if models else ''}"
    yield f"workers     {made.workers}"
    if made.preparing_s:
        needed = clock_text(math.ceil(made.preparing_s))
        yield f"preparing   about {needed} to register all devices at {REGISTERED_PER_S:g}/s"
    longest = clock_text(made.longest_s)
    yield f"takes       {clock_text(made.duration_s)}; at most {longest} with barriers that wait and the drain"
    yield f"seed        {made.seed}, digest {made.digest}"

    def times(begin_s: float, end_s: float) -> list[str]:
        first = min(round(begin_s / made.duration_s * _BAR), _BAR - 1)
        last = max(round(end_s / made.duration_s * _BAR), first + 1)
        bar = "." * first + "#" * (last - first) + "." * (_BAR - last)
        return [clock_text(begin_s), clock_text(end_s), bar]

    yield ""
    yield from _table(
        ["phase", "from", "to", "", "online", "requests/s", "until"],
        [
            [
                f"{phase.name} ({phase.kind})",
                *times(phase.begin_s, phase.end_s),
                f"{phase.online_from:,} -> {phase.online_to:,}",
                f"{sum(phase.rates.values()):,.4g}",
                phase.until or "",
            ]
            for phase in made.phases
        ],
    )
    if made.faults:
        yield ""
        rows = [[each.name, *times(each.begin_s, each.end_s), f"{each.devices:,}"] for each in made.faults]
        yield from _table(["fault", "from", "to", "", "devices"], rows)
    if made.peak_rates:
        yield ""
        rows = [[name, f"{rate:,.4g}"] for name, rate in made.peak_rates.items()]
        yield from _table(["operation", "requests/s in the busiest phase"], rows)
    yield ""
    yield f"requests    about {made.requests:,}"
    short = "" if made.sockets <= made.ports else f"; only {made.ports:,} ports: raise target.source_addresses"
    yield f"sockets     at most about {made.sockets:,}{short}"
    keys = "1 key" if made.keys == 1 else f"{made.keys} keys"
    yield f"quota       {made.quota_per_minute:,} requests a minute with {keys}; at 1,000 a minute "
    yield f"            it would need {made.keys_needed}"
    yield from (f"not counted {sentence}" for sentence in made.unplanned)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

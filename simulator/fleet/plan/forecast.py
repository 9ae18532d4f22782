"""What a run will be, in figures, without doing it: what ``fleet-simulator plan`` prints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.wire.limits import QUOTA_PER_MINUTE
from simulator.fleet.faults import count_concerned
from simulator.fleet.plan.plan import Plan, poll_period_s
from simulator.fleet.plan.streams import streams_of
from simulator.fleet.plan.timeline import PhaseSpan
from simulator.fleet.plan.workers import count_workers
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.kinds import BackfillSettings, OnboardingSettings
from simulator.fleet.scenario.load import ClosedArrivals, OpenArrivals
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.phases import StormPhase
from simulator.fleet.scenario.preparation import REGISTERED_PER_S, preparing_s

_PORTS: Final = 28_000
_SCAN: Final = "http.scan_qr"
NO_POLLS: Final = frozenset({"backfill", "onboarding_storm"})
_HEAD_BYTES: Final = 260
_READING_BYTES: Final = (90, 32)
"""Of one reading in JSON: what every one has, and what each value adds."""
_HELD_POLLS_OF_A_COMMAND: Final = 2
"""The list changes when it comes and when its result does: both times the held poll is answered."""
_BODY_BYTES: Final[Mapping[str, tuple[int, int]]] = {
    "http.poll": (0, 60),
    "http.long_poll": (0, 250),
    "http.sensor_data": (0, 190),
    "http.report": (160, 420),
    "http.send_command": (140, 420),
    "http.scan_qr": (180, 420),
    "http.register": (170, 380),
    "http.remove": (0, 0),
    "mqtt.sensor_data": (0, 0),
    "mqtt.report": (120, 0),
    "mqtt.command": (0, 480),
}
"""Bodies of request and answer, about; readings are added to the request."""

Rates = Mapping[str, float]
"""Operation to requests per second."""


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """One phase.

    Attributes:
        online_from, online_to: devices that are switched on.
        until: its barrier.
        rates: on average.
    """

    name: str
    kind: str
    begin_s: float
    end_s: float
    online_from: int
    online_to: int
    until: str | None
    rates: Rates


@dataclass(frozen=True, slots=True)
class FaultForecast:
    """One fault; ``kind`` has its name in brackets where it has one."""

    kind: str
    begin_s: float
    end_s: float
    devices: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """A whole run.

    Attributes:
        description: what the run is for; may be empty.
        models: devices of each.
        readings: of each model, with units in brackets; those of a product's own tables are in its file.
        workers: processes.
        peak_rates: of each operation, in its busiest phase.
        requests: in all.
        sockets: at most, about; ``ports`` of them can be had from the source addresses.
        sent_bytes, received_bytes: about.
        preparing_s: to register all devices first, at the rate of a local service; 0 where none are.
        preparing_limited_s: the same within the service's default quota of all keys.
        duration_s: of the phases; ``longest_s`` with every barrier's whole wait and the drain.
        quota_per_minute: requests of one key in the busiest minute.
        keys: in the pool; ``keys_needed`` at the service's default quota.
        unplanned: what depends on the target's answers and stands in no figure.
        notes: what somebody who wrote the scenario may not have meant.
    """

    name: str
    kind: str
    level: str
    transport: str
    target: str
    seed: int
    digest: str
    devices: int
    description: str
    models: Mapping[str, int]
    readings: Mapping[str, tuple[str, ...]]
    workers: int
    phases: tuple[PhaseForecast, ...]
    faults: tuple[FaultForecast, ...]
    peak_rates: Rates
    requests: int
    sockets: int
    ports: int
    sent_bytes: int
    received_bytes: int
    preparing_s: float
    preparing_limited_s: float
    duration_s: float
    longest_s: float
    quota_per_minute: int
    keys: int
    keys_needed: int
    unplanned: tuple[str, ...]
    notes: tuple[str, ...] = ()


def forecast(plan: Plan, cores: int | None = None) -> Forecast:
    """The figures of a plan.

    Args:
        plan: of the run.
        cores: of this machine, for ``workers: auto``; None asks the machine.
    """
    scenario = plan.scenario
    phases = tuple(_phase(scenario, span) for span in plan.timeline.spans)
    peaks = _peaks(phases)
    busiest = max(sum(rate for name, rate in phase.rates.items() if name.startswith("http.")) for phase in phases)
    notes: tuple[str, ...] = ()
    if scenario.kind == "onboarding_storm":
        phases, notes = _as_labels_last(phases, scenario.fleet.devices)
    counts = {name: sum(p.rates.get(name, 0.0) * (p.end_s - p.begin_s) for p in phases) for name in peaks}
    counts = {**counts, **_history(scenario)}
    keys = max(len(scenario.target.keys), 1)
    sent, received = _volume(scenario, counts)
    waits_s = sum(phase.until_within_s for phase in scenario.phases if phase.until is not None)
    return Forecast(
        name=scenario.scenario,
        kind=scenario.kind,
        level=scenario.level,
        transport=scenario.target.transport,
        target=scenario.target.base_url,
        seed=scenario.seed,
        digest=plan.digest,
        devices=scenario.fleet.devices,
        description=scenario.description,
        models=_models(plan),
        readings={model.name: tuple(_readings(model)) for model in scenario.fleet.models},
        workers=count_workers(scenario, cores),
        phases=phases,
        faults=tuple(_faults(plan)),
        peak_rates=peaks,
        requests=round(sum(counts.values())),
        sockets=sockets_of(scenario),
        ports=_PORTS * scenario.target.source_count,
        sent_bytes=sent,
        received_bytes=received,
        preparing_s=preparing_s(scenario),
        preparing_limited_s=preparing_s(scenario) * REGISTERED_PER_S * 60 / QUOTA_PER_MINUTE / keys,
        duration_s=plan.end_s,
        longest_s=plan.end_s + waits_s + scenario.drain_s,
        quota_per_minute=round(busiest * 60 / keys),
        keys=keys,
        keys_needed=max(-(-round(busiest * 60) // QUOTA_PER_MINUTE), 1),
        unplanned=tuple(_unplanned(scenario)),
        notes=notes,
    )


def busiest_rate(plan: Plan) -> float:
    """Requests per second of all operations, in the busiest phase."""
    return max(sum(_phase(plan.scenario, span).rates.values()) for span in plan.timeline.spans)


def _peaks(phases: Sequence[PhaseForecast]) -> Rates:
    names = sorted({name for phase in phases for name in phase.rates})
    return {name: max(phase.rates.get(name, 0.0) for phase in phases) for name in names}


def _models(plan: Plan) -> Mapping[str, int]:
    counts = Counter(plan.models.tolist())
    return {model.name: counts[index] for index, model in enumerate(plan.scenario.fleet.models)}


def _phase(scenario: Scenario, span: PhaseSpan) -> PhaseForecast:
    phase = scenario.phases[span.index]
    online = (span.online_from + span.online_to) / 2
    # The operator does not know who is away: commands go on in a storm.
    asked = online * span.rate_factor
    if isinstance(phase, StormPhase):
        online *= 1 - phase.share * phase.waves * phase.away_s / phase.duration_s
    count = scenario.fleet.devices
    rates = {name: rate for name, rate in _rates(scenario, online, asked, span.rate_factor).items() if rate > 0}
    ends = (round(span.online_from * count), round(span.online_to * count))
    return PhaseForecast(phase.name, phase.kind, span.begin_s, span.end_s, *ends, phase.until, rates)


def _as_labels_last(phases: Sequence[PhaseForecast], labels: int) -> tuple[tuple[PhaseForecast, ...], tuple[str, ...]]:
    """Phases of an onboarding storm as far as their labels suffice, and a sentence where they do not."""
    left, end_s, found = float(labels), 0.0, []
    for phase in phases:
        length_s, rate = phase.end_s - phase.begin_s, phase.rates.get(_SCAN, 0.0)
        used = min(left, rate * length_s)
        share = used / (rate * length_s) if rate else 0.0
        if used:
            end_s = phase.begin_s + used / rate
        left -= used
        found.append(replace(phase, rates={name: rate * share for name, rate in phase.rates.items() if share}))
    if end_s >= phases[-1].end_s - 1:
        return tuple(found), ()
    wanted = sum(phase.rates.get(_SCAN, 0.0) * (phase.end_s - phase.begin_s) for phase in phases)
    note = (
        f"the last of {labels:,} labels comes after {end_s:.0f} s, and nothing happens afterwards: fleet.devices "
        f"{wanted:,.0f} would last for all phases"
    )
    return tuple(found), (note,)


def _rates(scenario: Scenario, online: float, asked: float, factor: float) -> Rates:
    """Requests per second of each operation.

    Args:
        scenario: of the run.
        online: share of the devices that are there.
        asked: what the rates of commands and arrivals are multiplied with.
        factor: of the phase.
    """
    match scenario.kind:
        case "onboarding_storm":
            settings = scenario.onboarding or OnboardingSettings()
            labels = settings.rate_per_s * factor
            return {
                _SCAN: labels,
                "http.register": labels * (1 + settings.races),
                "http.remove": labels * settings.remove,
            }
        case "backfill":
            return {}
    if scenario.arrivals:
        return _arrivals(scenario, asked)
    return _devices(scenario, online, asked)


def _arrivals(scenario: Scenario, times: float) -> Rates:
    rates: dict[str, float] = defaultdict(float)
    for arrivals in scenario.arrivals:
        if isinstance(arrivals, OpenArrivals):
            # Polls and the operator's commands are HTTP, whatever devices use.
            protocol = scenario.target.traits.protocol if arrivals.operation == "sensor_data" else "http"
            rates[f"{protocol}.{arrivals.operation}"] += arrivals.rate_per_s * times
    return rates


def _devices(scenario: Scenario, online: float, asked: float) -> Rates:
    transport = scenario.target.traits
    protocol, poll = transport.protocol, "long_poll" if transport.polls == "held" else "poll"
    rates: dict[str, float] = defaultdict(float)
    for model in scenario.fleet.models:
        devices = model.share * scenario.fleet.devices * online
        rates[f"{protocol}.sensor_data"] += devices / model.telemetry.every_s
        if not transport.is_pushed:
            rates[f"http.{poll}"] += devices / poll_period_s(scenario, model)
    commands = sum(stream.rate_per_s for stream in streams_of(scenario)) * asked
    rates["http.send_command"] += commands
    rates[f"{protocol}.report"] += commands
    if transport.is_pushed:
        rates[f"{protocol}.command"] += commands
    elif poll == "long_poll":
        rates["http.long_poll"] += _HELD_POLLS_OF_A_COMMAND * commands
    return rates


def _history(scenario: Scenario) -> Rates:
    """Requests of a backfill: batches of what was recorded."""
    if scenario.kind != "backfill":
        return {}
    history_s = (scenario.backfill or BackfillSettings()).history_s
    batches = sum(
        model.share * scenario.fleet.devices * history_s / model.telemetry.every_s / model.telemetry.batch
        for model in scenario.fleet.models
    )
    return {"http.sensor_data": batches}


def _volume(scenario: Scenario, counts: Rates) -> tuple[int, int]:
    fixed, each = _READING_BYTES
    models = scenario.fleet.models
    reading = sum(model.share * (fixed + each * len(model.signals)) for model in models)
    batch = sum(m.share * m.telemetry.batch for m in models) if scenario.kind == "backfill" else 1
    sent = received = 0.0
    for name, count in counts.items():
        head = _HEAD_BYTES if name.startswith("http.") else len("v1/devices//sensor-data") + 40
        out, back = _BODY_BYTES[name]
        sent += count * (head + out + (reading * batch if name.endswith("sensor_data") else 0))
        received += count * (head + back)
    return round(sent), round(received)


def _readings(model: ModelSettings) -> Iterator[str]:
    """Names and units of what a model reads, by its signals."""
    for name, signal in model.signals.items():
        yield f"{name} ({signal.unit})" if signal.unit else name


def sockets_of(scenario: Scenario) -> int:
    """How many sockets the devices have at most."""
    target, devices = scenario.target, scenario.fleet.devices
    if not target.traits.has_sessions and target.connections == "pooled":
        return target.pool
    # While the service holds its poll, a device sends over a second socket.
    is_held = target.traits.polls == "held" and scenario.level == "core" and scenario.kind not in NO_POLLS
    return devices * (2 if is_held else 1)


def _faults(plan: Plan) -> Iterator[FaultForecast]:
    scenario = plan.scenario
    counts = count_concerned(scenario.faults, scenario.seed, scenario.fleet.devices)
    for fault, devices in zip(scenario.faults, counts, strict=True):
        title = fault.title
        kind = fault.kind if title == fault.kind else f"{fault.kind} ({title})"
        yield FaultForecast(kind, fault.at_s, fault.at_s + fault.duration_s, devices)


def _unplanned(scenario: Scenario) -> Iterator[str]:
    for arrivals in scenario.arrivals:
        if isinstance(arrivals, ClosedArrivals):
            yield f"{arrivals.users} users of {arrivals.operation}: as fast as they are answered"
    if scenario.kind == "backfill":
        yield "history is sent as fast as the target takes it"
    if scenario.kind in {"load", "command_round_trip"}:
        yield "retries, and backlogs after storms"

"""What each section cannot know on its own: whether the parts of a scenario fit each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from simulator.fleet.scenario.conditions import Condition, ConditionError, parse_condition
from simulator.fleet.scenario.fault_checks import check_faults
from simulator.fleet.scenario.files import check_files
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.kinds import OnboardingSettings
from simulator.fleet.scenario.model import AUTO, Scenario
from simulator.fleet.scenario.phases import HoldPhase, RampPhase, StormPhase
from simulator.fleet.scenario.preparation import check_preparation
from simulator.fleet.scenario.threshold_checks import check_thresholds
from simulator.fleet.scenario.unused import check_unused
from simulator.fleet.settings import shares_make_one

_ONLY_OVER_HTTP: Final = {
    "onboarding_storm": "labels are scanned and devices registered over HTTP, whatever they speak later",
    "backfill": "history goes as arrays straight to the service, which speaks no MQTT",
}
_NOT_OF_WIRE: Final = {
    "firmware": "with firmware",
    "telemetry": "that read their sensors by a schedule: 'arrivals:' say how often",
    "poll": "that ask for commands by a schedule: 'arrivals:' say how often",
}
_NO_DEVICES: Final = {"onboarding_storm", "backfill"}
_SECTION_OF_KIND: Final = {"onboarding_storm": "onboarding", "backfill": "backfill"}


def check_scenario(scenario: Scenario, folder: Path) -> list[Finding]:
    """Everything that does not fit.

    Args:
        scenario: whose sections are valid each for itself.
        folder: relative paths in it start here.
    """
    checks: tuple[Callable[[Scenario], Iterator[Finding]], ...] = (
        _target,
        _connections,
        _models,
        check_preparation,
        _sections,
        _kind,
        _level,
        _wire,
        _phases,
        _barriers,
        check_faults,
        check_thresholds,
        check_unused,
    )
    return [*(finding for check in checks for finding in check(scenario)), *check_files(scenario, folder)]


def _target(scenario: Scenario) -> Iterator[Finding]:
    target = scenario.target
    if target.transport == "mqtt":
        if target.broker is None:
            yield Finding.at(
                ("target", "transport"), ("target", "broker"), issue="mqtt needs a section 'broker:' with host and port"
            )
        if target.through == "service":
            yield Finding.at(
                ("target", "transport"),
                ("target", "through"),
                issue="the service speaks no MQTT, the gateway does: add 'through: gateway'",
            )
    elif target.broker is not None:
        yield Finding.at(
            ("target", "broker"), ("target", "transport"), issue="does nothing without 'transport: mqtt'; remove it"
        )
    if target.broker is not None and target.broker.ca_file is not None and not target.broker.tls:
        yield Finding.at(("target", "broker", "ca_file"), ("target", "broker", "tls"), issue="needs 'tls: true'")
    if target.tls is not None and not target.base_url.startswith("https:"):
        yield Finding.at(("target", "tls"), ("target", "base_url"), issue="needs a base_url that begins with https://")
    twice = [key for key, count in Counter(pair.api_key for pair in target.keys).items() if count > 1]
    if twice:
        yield Finding.at(("target", "keys"), issue="holds a key pair twice; each pair of a pool is another one")


def _connections(scenario: Scenario) -> Iterator[Finding]:
    target = scenario.target
    given = target.model_fields_set
    if target.traits.has_sessions:
        for name in sorted(given & {"connections", "pool"}):
            issue = (
                f"does nothing with 'transport: {target.transport}': every device has a session of its own; remove it"
            )
            yield Finding.at(("target", name), ("target", "transport"), issue=issue)
    elif target.connections == "per_device" and "pool" in given:
        yield Finding.at(
            ("target", "pool"),
            ("target", "connections"),
            issue="does nothing with 'connections: per_device'; remove one",
        )
    devices = scenario.fleet.devices
    if target.is_pooled and scenario.workers != AUTO and target.pool < min(int(scenario.workers), devices):
        issue = f"each has a connection at least, and target.pool has {target.pool}; write fewer, or more there"
        yield Finding.at(("workers",), ("target", "pool"), issue=issue)


def _models(scenario: Scenario) -> Iterator[Finding]:
    models = scenario.fleet.models
    for index, model in enumerate(models):
        here = ("fleet", "models", index)
        if model.name in {other.name for other in models[:index]}:
            yield Finding.at(
                (*here, "name"), issue=f"there is a model {model.name!r} already: give each a name of its own"
            )
        polls = model.poll.model_fields_set
        transport = scenario.target.transport
        kind_of_polls = scenario.target.traits.polls
        if "wait_s" in polls and kind_of_polls != "held":
            yield Finding.at(
                (*here, "poll", "wait_s"),
                ("target", "transport"),
                issue=f"does nothing with 'transport: {transport}': only http_long_poll has polls that are held",
            )
        if "every_s" in polls and kind_of_polls != "periodic":
            yield Finding.at(
                (*here, "poll", "every_s"),
                ("target", "transport"),
                issue=f"does nothing with 'transport: {transport}': only http_poll asks periodically",
            )
    total = sum(model.share for model in models)
    if not shares_make_one(model.share for model in models):
        yield Finding.at(
            ("fleet", "models"), issue=f"the shares of the models make {total:.6g} together; they must make 1"
        )


def _sections(scenario: Scenario) -> Iterator[Finding]:
    for kind, name in _SECTION_OF_KIND.items():
        is_there = getattr(scenario, name) is not None
        if is_there and scenario.kind != kind:
            yield Finding.at((name,), ("kind",), issue=f"does nothing without 'kind: {kind}'; remove it")
        if scenario.kind == kind and not is_there:
            yield Finding.at(
                ("kind",), (name,), issue=f"{kind} needs a section '{name}:'; 'fleet-simulator init' has one"
            )


def _kind(scenario: Scenario) -> Iterator[Finding]:
    if scenario.kind == "onboarding_storm":
        yield from _labels(scenario)
    if scenario.kind == "command_round_trip" and not scenario.commands:
        yield Finding.at(("kind",), ("commands",), issue="command_round_trip needs 'commands:' to follow")
    if scenario.kind != "load" and scenario.arrivals:
        yield Finding.at(("arrivals",), ("kind",), issue=f"kind {scenario.kind} makes requests of its own; remove them")
    if not scenario.audit.numbers and (scenario.level != "core" or scenario.kind == "backfill"):
        issue = "only devices with the agent's core make sure that no two readings have the same millisecond"
        yield Finding.at(("audit", "numbers"), ("level",), issue=f"{issue}; leave it out, or take 'level: core'")
    if scenario.kind in {"onboarding_storm", "backfill"} and scenario.commands:
        yield Finding.at(("commands",), ("kind",), issue=f"kind {scenario.kind} sends no commands; remove them")
    if scenario.kind in _ONLY_OVER_HTTP and scenario.target.traits.protocol != "http":
        issue = f"{_ONLY_OVER_HTTP[scenario.kind]}; take transport http_poll"
        yield Finding.at(("kind",), ("target", "transport"), issue=issue)


def _labels(scenario: Scenario) -> Iterator[Finding]:
    rate_per_s = (scenario.onboarding or OnboardingSettings()).rate_per_s
    scanned = rate_per_s * sum(phase.rate_factor * phase.duration_s for phase in scenario.phases)
    if scanned < scenario.fleet.devices:
        yield Finding.at(
            ("phases",),
            ("fleet", "devices"),
            ("onboarding", "rate_per_s"),
            issue=f"at {rate_per_s:g} labels/s only {scanned:.0f} of {scenario.fleet.devices} are scanned; "
            "make a phase longer or the rate higher",
        )


def _level(scenario: Scenario) -> Iterator[Finding]:
    if scenario.level == "core" and scenario.arrivals:
        yield Finding.at(
            ("arrivals",),
            ("level",),
            issue="devices of level core send by their own schedules; give 'level: wire', or use models and commands",
        )
    if scenario.level == "wire" and scenario.kind == "load" and scenario.target.traits.protocol != "http":
        issue = "level wire makes requests over HTTP; take transport http_poll, or 'level: core'"
        yield Finding.at(("level",), ("target", "transport"), issue=issue)
    if "on_limited" in scenario.target.model_fields_set and (scenario.level == "wire" or scenario.kind in _NO_DEVICES):
        issue = (
            "does nothing without devices that could wait: pure load, storms of labels and history have none; remove it"
        )
        yield Finding.at(("target", "on_limited"), ("kind",), ("level",), issue=issue)


def _wire(scenario: Scenario) -> Iterator[Finding]:
    if scenario.level != "wire":
        return
    if scenario.kind == "load" and not scenario.arrivals:
        issue = "level wire sends what 'arrivals:' ask for and nothing else; add that section, or take 'level: core'"
        yield Finding.at(("level",), ("arrivals",), issue=issue)
    if scenario.commands:
        yield Finding.at(
            ("commands",),
            ("level",),
            issue="nobody would carry them out: level wire has no devices; give 'level: core', "
            "or arrivals with 'operation: send_command'",
        )
    for index, model in enumerate(scenario.fleet.models):
        for name, lack in _NOT_OF_WIRE.items():
            if name in model.model_fields_set:
                issue = f"level wire has no devices {lack}"
                yield Finding.at(("fleet", "models", index, name), ("level",), issue=issue)


def _phases(scenario: Scenario) -> Iterator[Finding]:
    online = 0.0
    for index, phase in enumerate(scenario.phases):
        here = ("phases", index)
        if phase.name in {other.name for other in scenario.phases[:index]}:
            yield Finding.at(
                (*here, "name"), issue=f"there is a phase {phase.name!r} already: give each a name of its own"
            )
        match phase:
            case RampPhase():
                if phase.to == online:
                    yield Finding.at((*here, "to"), ("phases",), issue=f"{online:.6g} of the fleet is online already")
                online = phase.to
            case HoldPhase():
                online = online if index else 1.0
            case StormPhase():
                online = online if index else 1.0
                if phase.waves * phase.away_s > phase.duration_s:
                    needed_s = phase.waves * phase.away_s
                    yield Finding.at(
                        (*here, "duration_s"),
                        (*here, "away_s"),
                        (*here, "waves"),
                        issue=f"{phase.waves} waves of {phase.away_s:g} s do not fit into {phase.duration_s:g} s; "
                        f"give at least {needed_s:g}",
                    )
                if phase.share == 0 or online == 0:
                    yield Finding.at((*here, "share"), ("phases",), issue="nobody is online whom this storm would hit")
        if scenario.level == "wire" and isinstance(phase, StormPhase):
            yield Finding.at((*here, "kind"), ("level",), issue="level wire has no devices for a storm to take down")


def _barriers(scenario: Scenario) -> Iterator[Finding]:
    online = 0.0
    for index, phase in enumerate(scenario.phases):
        here = ("phases", index, "until")
        online = phase.to if isinstance(phase, RampPhase) else online if index else 1.0
        if phase.until is None:
            if "until_within_s" in phase.model_fields_set:
                yield Finding.at(("phases", index, "until_within_s"), here, issue="does nothing without 'until'")
            continue
        try:
            condition = parse_condition(phase.until)
        except ConditionError as error:
            yield Finding.at(here, issue=str(error))
            continue
        yield from _unreachable(condition, online, scenario, index)


def _unreachable(condition: Condition, online: float, scenario: Scenario, index: int) -> Iterator[Finding]:
    devices = scenario.fleet.devices
    for part in condition.comparisons:
        if part.gauge == "online" and part.comparison in {">", ">=", "=="}:
            wanted = part.number * devices if part.of_devices else part.number
            if wanted > round(online * devices):
                yield Finding.at(
                    ("phases", index, "until"),
                    ("phases",),
                    ("fleet", "devices"),
                    issue=f"never holds: this phase ends with {online:.6g} of {devices} devices online",
                )
        if part.gauge in {"open_commands", "waiting_readings"} and scenario.level == "wire":
            yield Finding.at(
                ("phases", index, "until"), ("level",), issue=f"level wire has no {part.gauge}; give 'level: core'"
            )

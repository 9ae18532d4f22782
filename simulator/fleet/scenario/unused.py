"""Keys that have no effect with a scenario's kind, level or transport: what is accepted has an effect.

A key counts when it is given with another value than its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import BaseModel

from agent.wire.extensions import BATCH_SENSOR_DATA, COMMAND_TTL, LONG_POLL
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.load import OpenArrivals
from simulator.fleet.scenario.model import Scenario
from simulator.yaml_document import KeyPath

Condition = Callable[[Scenario], bool]
_UPDATE: Final = "update_firmware"
_PING: Final = "ping"
_HISTORY_CONNECTIONS: Final = 32


@dataclass(frozen=True, slots=True)
class Unused:
    """Some keys that have no effect.

    Attributes:
        when: of which scenarios.
        keys: patterns of ``target.pool`` and its like; of lists every item counts. What is below a key counts with it.
        why: a sentence that goes on after "does nothing:".
        cause: the key that decides.
        above: only larger numbers have none.
    """

    when: Condition
    keys: tuple[str, ...]
    why: str
    cause: KeyPath = ("kind",)
    above: float | None = None


def _kind(kind: str) -> Condition:
    # Over MQTT they are refused as a whole.
    return lambda scenario: scenario.kind == kind and scenario.target.traits.protocol != "mqtt"


def _commands(*names: str) -> Callable[[Scenario], bool]:
    return lambda scenario: any(command.payload.get("command") in names for command in scenario.commands)


def _lacks(extension: str) -> Condition:
    def lacks(scenario: Scenario) -> bool:
        dialect = scenario.target.dialect.dialect()
        return dialect.extensions is not None and extension not in dialect.extensions

    return lacks


def _has_rates(scenario: Scenario) -> bool:
    """Whether there is a rate that a phase could multiply."""
    is_open = any(isinstance(arrivals, OpenArrivals) for arrivals in scenario.arrivals)
    return is_open or bool(scenario.commands) or scenario.kind == "onboarding_storm"


def _is_played(scenario: Scenario) -> bool:
    return scenario.kind in {"load", "command_round_trip"}


_OF_COMMANDS: Final = tuple(
    f"target.dialect.{name}" for name in ("command_id", "results", "results_table", "command_lists")
)
_NO_SOCKETS: Final = ("target.through", "target.connections", "target.source_addresses")
_SPEECH: Final = (*_OF_COMMANDS, "target.dialect.time_zone", "target.dialect.recorded_at_reading")
UNUSED: Final = (
    Unused(_kind("onboarding_storm"), ("workers",), "one process plays all labels"),
    Unused(_kind("onboarding_storm"), _NO_SOCKETS, "labels go to the service itself, over target.pool"),
    Unused(
        _kind("onboarding_storm"),
        ("fleet.models", *_SPEECH, "audit"),
        "labels have no devices that read sensors or take commands",
    ),
    Unused(
        _kind("onboarding_storm"),
        ("phases.*.until", "phases.*.to"),
        "labels are scanned at onboarding.rate_per_s times rate_factor, and are never online",
    ),
    Unused(_kind("backfill"), _NO_SOCKETS, "history goes to the service itself, over the connections of target.pool"),
    Unused(
        _kind("backfill"),
        ("target.pool",),
        f"history takes {_HISTORY_CONNECTIONS} connections at most",
        above=_HISTORY_CONNECTIONS,
    ),
    Unused(
        _kind("backfill"),
        (*_OF_COMMANDS, "target.dialect.recorded_at_reading"),
        "history has no commands, and its readings carry recorded_at",
    ),
    Unused(
        _kind("backfill"),
        ("fleet.models.*.poll", "fleet.models.*.firmware"),
        "history has readings at their true times alone",
    ),
    Unused(_kind("backfill"), ("phases.*.rate_factor", "phases.*.to"), "history goes as fast as the target takes it"),
    Unused(_kind("backfill"), ("audit.late_after_s",), "history is late by its nature"),
    Unused(
        lambda scenario: _is_played(scenario) and not _has_rates(scenario),
        ("phases.*.rate_factor",),
        "there is no rate to multiply: neither 'commands' nor open 'arrivals'",
        ("commands",),
    ),
    Unused(
        lambda scenario: scenario.target.traits.needs_gateway,
        ("target.on_limited", "target.dialect.results", "target.dialect.results_table"),
        "over MQTT devices talk to the gateway, which answers no 429 and reports the results itself",
        ("target", "transport"),
    ),
    Unused(
        lambda scenario: scenario.level == "wire" and not scenario.target.traits.needs_gateway,
        ("target.dialect.results", "target.dialect.results_table"),
        "level wire has no devices to report results",
        ("level",),
    ),
    Unused(
        lambda scenario: _is_played(scenario) and scenario.level == "core" and not _commands(_PING, _UPDATE)(scenario),
        ("fleet.models.*.firmware",),
        f"nobody asks for the version: send the command {_PING!r} or {_UPDATE!r}",
        ("commands",),
    ),
    Unused(
        lambda scenario: _commands(_PING)(scenario) and not _commands(_UPDATE)(scenario),
        ("fleet.models.*.firmware.update_s", "fleet.models.*.firmware.failure_share"),
        f"there are no updates: send the command {_UPDATE!r}",
        ("commands",),
    ),
    Unused(
        lambda scenario: not scenario.target.traits.needs_gateway and _lacks(BATCH_SENSOR_DATA)(scenario),
        ("fleet.models.*.telemetry.batch",),
        f"the service takes no arrays: target.dialect.extensions lacks {BATCH_SENSOR_DATA!r}",
        ("target", "dialect", "extensions"),
    ),
    Unused(
        _lacks(LONG_POLL),
        ("fleet.models.*.poll.wait_s",),
        f"the service holds no polls: target.dialect.extensions lacks {LONG_POLL!r}",
        ("target", "dialect", "extensions"),
    ),
    Unused(
        _lacks(COMMAND_TTL),
        ("commands.*.ttl_s",),
        f"the service ends no commands: target.dialect.extensions lacks {COMMAND_TTL!r}",
        ("target", "dialect", "extensions"),
    ),
)
"""All of them."""
_HOLDS_ALONE: Final = {
    "onboarding_storm": "labels have no devices that come and go",
    "backfill": "history has no devices that come and go",
}


def check_unused(scenario: Scenario) -> Iterator[Finding]:
    """A finding for each key that is given and has no effect."""
    given = dict(_given(scenario, ()))
    for unused in UNUSED:
        if unused.when(scenario):
            for path, value in given.items():
                if _matches(path, unused.keys) and (unused.above is None or value > unused.above):
                    yield Finding.at(path, unused.cause, issue=f"does nothing: {unused.why}; remove it")
    reason = _HOLDS_ALONE.get(scenario.kind)
    for index, phase in enumerate(scenario.phases):
        if reason is not None and phase.kind != "hold":
            yield Finding.at(
                ("phases", index, "kind"), ("kind",), issue=f"{phase.kind} does nothing: {reason}; write kind: hold"
            )


def _matches(path: KeyPath, patterns: tuple[str, ...]) -> bool:
    text = ".".join(map(str, path))
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _given(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Every key that is given with another value than its default, by its path; sections before what is in them."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            field, found = type(value).model_fields[name], getattr(value, name)
            if found != field.get_default(call_default_factory=True):
                here = (*path, field.alias or name)
                yield here, found
                yield from _given(found, here)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _given(item, (*path, name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _given(item, (*path, index))

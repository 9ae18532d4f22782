"""Checks that the faults of a scenario can take effect: in its kind, within its phases, on readings that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.faults.registry import LINK_KINDS
from simulator.fleet.metrics.subjects import nearest
from simulator.fleet.scenario.faults import FaultSettings, fault_end_s
from simulator.fleet.scenario.files import product_of, signals_of_models
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.registry import SignalSettings

_NO_FAULTS: Final = {
    "backfill": "history is lived through in virtual time and sent as it is",
    "onboarding_storm": "labels are scanned without devices or links that could fail",
}
"""Kinds that play no fault, and why."""
READING_KEYS: Final = ("readings", "drop", "rename", "factors")
"""The keys of faults that name readings as the devices have them."""
RETYPED: Final = "retype"
"""This one names readings as they are sent, with other faults' new names."""


def check_faults(scenario: Scenario) -> Iterator[Finding]:
    """When faults are played, and whether they are."""
    reason = _NO_FAULTS.get(scenario.kind)
    if scenario.faults and reason is not None:
        yield Finding.at(("faults",), ("kind",), issue=f"kind {scenario.kind} plays none: {reason}; remove them")
        return
    for index, fault in enumerate(scenario.faults):
        here = ("faults", index)
        if scenario.level == "wire" and fault.kind not in LINK_KINDS:
            yield Finding.at((*here, "kind"), ("level",), issue=f"level wire has no devices for {fault.kind}")
        if fault.kind == "slow_loris" and fault.share != 1:
            issue = "does nothing: these connections belong to no device; write fewer of them in 'connections'"
            yield Finding.at((*here, "share"), (*here, "kind"), issue=issue)
        end_s = fault_end_s(fault)
        if end_s > scenario.duration_s:
            yield Finding.at(
                (*here, "duration_s" if end_s > fault.at_s else "at_s"),
                (*here, "at_s"),
                ("phases",),
                issue=f"ends {end_s:g} s after the begin; the phases end after {scenario.duration_s:g} s",
            )


def check_fault_readings(scenario: Scenario, folder: Path) -> Iterator[Finding]:
    """Whether the readings that faults name are there; not for readings that a program gives.

    Args:
        scenario: that names them.
        folder: relative paths start here.
    """
    try:
        all_signals = signals_of_models(scenario, product_of(scenario, folder))
    except ConfigurationError:
        return  # which the files' own check says
    known = {name for model in map(_names_of_model, scenario.fleet.models, all_signals) for name in model}
    added = {name for fault in scenario.faults for name in _new_names(fault)}
    for index, fault in enumerate(scenario.faults):
        for key in (*READING_KEYS, RETYPED):
            named: Sequence[str] | Mapping[str, object] = getattr(fault, key, ())
            there = known | added if key == RETYPED else known
            for place, name in enumerate(named):
                if name not in there:
                    step = name if isinstance(named, Mapping) else place
                    yield Finding.at(
                        ("faults", index, key, step),
                        ("fleet", "models"),
                        issue=f"no model has a reading {name!r} ({', '.join(sorted(there))}){nearest(name, there)}",
                    )


def _names_of_model(model: ModelSettings, signals: Mapping[str, SignalSettings]) -> set[str]:
    """What the devices of a model read, in any of their states."""
    found = set(_names_of(signals))
    for state in (model.states or {}).values():
        found.update(_names_of(state.signals))
    if model.battery is not None and model.battery.reading is not None:
        found.add(model.battery.reading)
    return found


def _names_of(signals: Mapping[str, SignalSettings]) -> Iterator[str]:
    for name, settings in signals.items():
        yield from settings.names(name)


def _new_names(fault: FaultSettings) -> Iterator[str]:
    """Readings that there are while this fault lasts, and not before."""
    yield from getattr(fault, "add", {})
    yield from getattr(fault, "rename", {}).values()

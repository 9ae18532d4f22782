"""Checks that the faults of a scenario can take effect: in its kind, within its phases, on readings that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.fleet.faults import LINK_KINDS
from simulator.fleet.metrics.subjects import nearest
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.model import Scenario

_NO_FAULTS: Final = {
    "backfill": "history is lived through in virtual time and sent as it is",
    "onboarding_storm": "labels are scanned without devices or links that could fail",
}
"""Kinds that play no fault, and why."""


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
        end_s = fault.at_s + fault.duration_s
        if end_s > scenario.duration_s:
            yield Finding.at(
                (*here, "duration_s" if end_s > fault.at_s else "at_s"),
                (*here, "at_s"),
                ("phases",),
                issue=f"ends {end_s:g} s after the begin; the phases end after {scenario.duration_s:g} s",
            )


def check_fault_readings(scenario: Scenario) -> Iterator[Finding]:
    """Whether the readings that faults name are there."""
    known = {name for model in scenario.fleet.models for name in model.signals}
    for index, fault in enumerate(scenario.faults):
        for place, name in enumerate(getattr(fault, "readings", ())):
            if name not in known:
                yield Finding.at(
                    ("faults", index, "readings", place),
                    ("fleet", "models"),
                    issue=f"no model has a reading {name!r} ({', '.join(sorted(known))}){nearest(name, known)}",
                )

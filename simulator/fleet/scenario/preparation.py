"""How long registering the devices of a scenario takes, before its first request, and whether that is too long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.model import Scenario

REGISTERED_PER_S: Final = 400.0
"""Devices that the local service registered in a second, on two cores with little other work."""
_REGISTERS_NONE: Final = {
    "onboarding_storm": "its labels are what is registered",
}
_MINUTE_S: Final = 60.0
_KEY: Final = "prepare_within_s"


def preparing_s(scenario: Scenario) -> float:
    """Seconds to register all devices at :data:`REGISTERED_PER_S`; 0 for kinds that register none beforehand."""
    return 0.0 if scenario.kind in _REGISTERS_NONE else scenario.fleet.devices / REGISTERED_PER_S


def check_preparation(scenario: Scenario) -> Iterator[Finding]:
    """Whether the devices can be registered within the time that the scenario gives."""
    fleet = scenario.fleet
    reason = _REGISTERS_NONE.get(scenario.kind)
    if reason is not None:
        if _KEY in fleet.model_fields_set:
            issue = f"does nothing with kind {scenario.kind}: {reason}; remove it"
            yield Finding.at(("fleet", _KEY), ("kind",), issue=issue)
        return
    needed_s = preparing_s(scenario)
    if needed_s > fleet.prepare_within_s:
        yield Finding.at(
            ("fleet", "devices"),
            ("fleet", _KEY),
            issue=f"registering {fleet.devices:,} devices takes about {needed_s / _MINUTE_S:.0f} minutes at "
            f"{REGISTERED_PER_S:g}/s, more than prepare_within_s ({fleet.prepare_within_s / _MINUTE_S:g}): take fewer "
            f"devices that read and poll more often, or write {_KEY}: {math.ceil(needed_s / _MINUTE_S)}m, also where "
            "they are registered already",
        )

"""What is broken on purpose: the faults that a scenario may name, each with keys of its own by its ``kind``."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.fleet.faults.registry import DeviceFaultSettings, build_faults
from simulator.fleet.signals.base import Individual

FaultSettings = DeviceFaultSettings
"""One fault."""


def fault_end_s(fault: FaultSettings) -> float:
    """When a fault ends, seconds since the begin of the first phase; its begin for one that does not end by itself."""
    duration_s: float = getattr(fault, "duration_s", 0.0)
    return fault.at_s + duration_s


def fault_title(fault: FaultSettings) -> str:
    """What a person calls it: its own name, or what kind of link it makes, or its kind."""
    return fault.name or str(getattr(fault, "profile", fault.kind))


def count_concerned(faults: Sequence[FaultSettings], seed: int, devices: int) -> list[int]:
    """How many devices each fault concerns: as many as will be in the record, not about a share of them.

    Args:
        faults: all of the scenario, in its order.
        seed: of the scenario.
        devices: of the fleet.
    """
    made = build_faults(faults, origin_s=0.0)
    if all(fault.share >= 1 for fault in faults):
        return [devices] * len(made)
    fleet = [Individual.at(seed, index) for index in range(devices)]
    return [sum(map(fault.chooses, fleet)) for fault in made]

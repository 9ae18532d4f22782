"""What is broken on purpose: the faults that a scenario may name, each with keys of its own by its ``kind``."""

from __future__ import annotations

from simulator.fleet.faults.kinds import DeviceFaultSettings

FaultSettings = DeviceFaultSettings
"""One fault."""


def fault_end_s(fault: FaultSettings) -> float:
    """When a fault ends, seconds since the begin of the first phase; its begin for one that does not end by itself."""
    duration_s: float = getattr(fault, "duration_s", 0.0)
    return fault.at_s + duration_s

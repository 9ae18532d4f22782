"""How many processes a run takes: one answer for the plan that is printed and for the run."""

from __future__ import annotations

import os
from typing import Final

from simulator.fleet.scenario.model import AUTO, Scenario

_DEVICES_OF_ONE_WORKER: Final = 2_500


def count_workers(scenario: Scenario, cores: int | None = None) -> int:
    """How many processes make the load.

    Args:
        scenario: to be run.
        cores: of this machine, for ``workers: auto``; None asks the machine.
    """
    if scenario.kind not in {"load", "command_round_trip"}:
        return 1
    if scenario.workers != AUTO:
        return min(int(scenario.workers), scenario.fleet.devices)
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, -(-scenario.fleet.devices // _DEVICES_OF_ONE_WORKER)))
